"""HTTP: metrics, health, the network, statistics, taps, and a status page.

The app gets its answers from callables (``HttpQueries``), so it knows neither the engine nor the monitor. It runs on
the I/O thread. Handlers that walk over all boxes (metrics, statistics) are plain functions: starlette runs them on
other threads, so that a scrape of 1,000 boxes does not hold up a socket. The requests here change nothing,
but for those of an administrator; ``router/http/change.py`` has the requests that change the network.

``router/http/server.py`` serves the app.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from catalog.config.words import did_you_mean
from catalog.describe import TapPlace, find_tap_place, network_json, tap_places
from catalog.errors import AuroraError
from catalog.network import Network
from router.access.http_door import user_of
from router.console.handlers import ConsoleHandlers, ConsoleQueries
from router.http.answers import HEADERS, RequestError, json_answer
from router.http.change import ChangeDoor, ChangeHandlers
from router.http.history import HistoryHandlers, HistoryQueries
from router.http.openapi import document
from router.http.operations import (
    CHANGE_OPERATIONS,
    CONSOLE_OPERATIONS,
    EXPLAIN_LIMIT,
    EXPLAIN_OUTPUT,
    EXPLAIN_WHERE,
    FOLLOW,
    HISTORY_OPERATIONS,
    LIMIT,
    NAME,
    NAME_AT,
    NAME_KIND,
    OPERATIONS,
    SAVEPOINT_NAME,
    TAP_EVERY,
    TAP_LIMIT,
    TAP_PLACES,
    TAP_WHERE,
    VIEW_OPERATIONS,
    HttpOperation,
    route_of,
)
from router.http.views import ViewHandlers, ViewQueries
from router.tap import KeepRows, Tap, TapSource, Unregister

MAX_TAPS = 16
MAX_FOLLOWERS = 4

Explanation = Callable[[], Mapping[str, Any]]
"""Makes an answer of ``/api/v1/explain``. It takes some time, so the thread that found the tuple does not call it."""


class FollowQuery(Protocol):
    def __call__(self, output: str, where: str, found: Callable[[Explanation], None]) -> Callable[[], None]:
        """Call ``found``, on any thread, with the explanation of the next tuple of an output that meets a condition.
        Return a callable that ends it. Raises AuroraError."""


@dataclass(frozen=True)
class AdminQueries:
    """What only an administrator may ask. Each takes some time, and raises AuroraError."""

    names: Callable[[], Sequence[Mapping[str, Any]]]
    drop_name: Callable[[str, str, str], None]  # reader or source, the output or stream, the name
    savepoint: Callable[[str], str]  # a name in; the folder on the daemon's machine out


@dataclass(frozen=True)
class HttpQueries:
    """The callables that answer the app's requests. The app calls them on any thread."""

    metrics: Callable[[str], tuple[bytes, str]]  # the Accept header in; body and content type out
    stats: Callable[[], Mapping[str, Any]]
    bills: Callable[[], Mapping[str, Any]]
    network: Callable[[], Network]
    ready: Callable[[], Mapping[str, str]]  # by check: "" when it passes, else the reason why not
    dead_letters: Callable[[int], Sequence[Mapping[str, Any]]]  # a limit in; the newest out
    tap: TapSource
    explain: Callable[[str, str, int], Mapping[str, Any]]  # output, predicate and limit in; raises AuroraError
    follow: FollowQuery
    drops: Callable[[int], Mapping[str, Any]]  # a limit in; the shed plans and what each dropped out
    tap_filter: Callable[[TapPlace, str], KeepRows] | None = None  # a place and an expression in; raises AuroraError
    change: ChangeDoor | None = None  # None: the network cannot be changed
    history: HistoryQueries | None = None
    views: ViewQueries | None = None
    admin: AdminQueries | None = None
    console: ConsoleQueries | None = None  # None: there is no page
    version: str = ""


class HttpApp:
    """The ASGI app. Call ``close`` before the server stops: it ends the taps, which have no end of their own."""

    def __init__(self, queries: HttpQueries) -> None:
        handlers = self._handlers = _Handlers(queries)
        routes = [route_of(operation, handlers) for operation in OPERATIONS]
        operations: tuple[HttpOperation, ...] = OPERATIONS
        if queries.change is not None:
            changes = ChangeHandlers(queries.change)
            routes += [route_of(operation, changes) for operation in CHANGE_OPERATIONS]
            operations += CHANGE_OPERATIONS
        self._console = None if queries.console is None else ConsoleHandlers(queries.console)
        if self._console is not None:
            routes += self._console.routes()
            operations += CONSOLE_OPERATIONS
        if queries.history is not None:
            history = HistoryHandlers(queries.history, _check_tap)
            routes += [route_of(operation, history) for operation in HISTORY_OPERATIONS]
            operations += HISTORY_OPERATIONS
        if queries.views is not None:
            views = ViewHandlers(queries.views, _check_tap)
            routes += [route_of(operation, views) for operation in VIEW_OPERATIONS]
            operations += VIEW_OPERATIONS
        handlers.document = document(operations, queries.version)
        self._paths = [route.path for route in routes]
        answers = {RequestError: _refuse, 404: self._not_found, HTTPException: _refuse_plainly}
        self._app = Starlette(routes=routes, exception_handlers=answers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    def open(self) -> None:
        """Begin what runs beside the requests. On the loop's thread."""
        if self._console is not None:
            self._console.open()

    def close(self) -> None:
        """End all taps and pages. On the loop's thread."""
        if self._console is not None:
            self._console.close()
        for tap in self._handlers.taps:
            tap.end()

    def _not_found(self, request: Request, _: Exception) -> Response:
        path = request.url.path[:200]
        return json_answer({"error": f"there is nothing at {path}", "hint": did_you_mean(path, self._paths)}, 404)


def make_app(queries: HttpQueries) -> HttpApp:
    return HttpApp(queries)


def _refuse_plainly(_: Request, error: Exception) -> Response:
    """Answer what starlette refuses by itself, such as a wrong method, in the form of all other errors."""
    assert isinstance(error, HTTPException)
    answer = json_answer({"error": error.detail, "hint": ""}, error.status_code)
    answer.headers.update(error.headers or {})
    return answer


def _refuse(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    return json_answer({"error": str(error), "hint": error.hint}, error.status)


class _Handlers:
    """The handlers. Plain functions run on starlette's threads, coroutines on the loop."""

    def __init__(self, queries: HttpQueries) -> None:
        self._queries = queries
        # Both on the loop's thread only.
        self.taps: dict[Tap, str] = {}  # oldest first, with the address of the peer
        self.following = 0  # requests that wait for a tuple

        self.document: dict[str, Any] = {}  # the OpenAPI document

    async def health(self, _: Request) -> Response:
        """Answer that the process lives and its loop runs. Nothing else is checked."""
        return json_answer({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        checks = self._queries.ready()
        failed = [f"{check}: {why}" for check, why in checks.items() if why]
        told = {check: why or "ok" for check, why in checks.items()}
        if user_of(request) is None:  # a probe without a login learns whether, and not why
            return json_answer({"status": "not ready" if failed else "ready"}, 503 if failed else 200)
        if failed:
            return json_answer({"status": "not ready", "why": "; ".join(failed), "checks": told}, 503)
        return json_answer({"status": "ready", "checks": told})

    async def openapi(self, _: Request) -> Response:
        return json_answer(self.document)

    def metrics(self, request: Request) -> Response:
        body, content_type = self._queries.metrics(request.headers.get("accept", ""))
        return Response(body, headers={**HEADERS, "Content-Type": content_type})

    def network(self, _: Request) -> Response:
        return json_answer(network_json(self._queries.network()))

    def stats(self, _: Request) -> Response:
        return json_answer(self._queries.stats())

    def bills(self, _: Request) -> Response:
        return json_answer(self._queries.bills())

    def dead_letters(self, request: Request) -> Response:
        user = user_of(request)
        letters = self._queries.dead_letters(LIMIT.read(request))
        seen = [x for x in letters if user is not None and user.may("tap", str(x.get("stream") or x.get("box", "")))]
        return json_answer({"dead_letters": seen})

    def drops(self, request: Request) -> Response:
        return json_answer(self._queries.drops(LIMIT.read(request)))

    def names(self, _: Request) -> Response:
        return json_answer({"names": list(self._admin().names())})

    def drop_name(self, request: Request) -> Response:
        kind, place, name = NAME_KIND.read(request), NAME_AT.read(request), NAME.read(request)
        _attempt(lambda: self._admin().drop_name(kind, place, name))
        return json_answer({"dropped": {"kind": kind, "at": place, "name": name}})

    def savepoint(self, request: Request) -> Response:
        name = SAVEPOINT_NAME.read(request)
        return json_answer({"savepoint": _attempt(lambda: self._admin().savepoint(name))})

    def _admin(self) -> AdminQueries:
        if self._queries.admin is None:
            raise RequestError(404, "this daemon has no such command")
        return self._queries.admin

    async def explain(self, request: Request) -> Response:
        output, where = EXPLAIN_OUTPUT.read(request), EXPLAIN_WHERE.read(request)
        _check_tap(request, output)
        names = [o.name for o in self._queries.network().outputs]
        if output not in names:
            hint = did_you_mean(output[:200], names) if output else f"?output= one of {', '.join(names[:20])}"
            raise RequestError(404, f"there is no output '{output[:200]}'", hint)
        limit, seconds = EXPLAIN_LIMIT.read(request), FOLLOW.read(request)
        try:
            if seconds:
                return json_answer(await self._follow(output, where, seconds))
            return json_answer(await run_in_threadpool(self._queries.explain, output, where, limit))
        except AuroraError as error:
            raise RequestError(400, str(error), getattr(error, "hint", "")) from error

    async def _follow(self, output: str, where: str, seconds: int) -> Mapping[str, Any]:
        """Wait for the next tuple that meets the condition; without one, answer like a question that found none."""
        if self.following >= MAX_FOLLOWERS:
            raise RequestError(503, f"{MAX_FOLLOWERS} clients already follow tuples", "try again later")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Explanation] = loop.create_future()

        def settle(explanation: Explanation) -> None:
            if not answer.done():
                answer.set_result(explanation)

        def found(explanation: Explanation) -> None:
            loop.call_soon_threadsafe(settle, explanation)

        stop = self._queries.follow(output, where, found)
        self.following += 1
        try:
            return await run_in_threadpool(await asyncio.wait_for(answer, seconds))
        except TimeoutError:
            return {"output": output, "where": where, "window_s": seconds, "sampled": 0, "journeys": [], "blame": []}
        finally:
            self.following -= 1
            stop()

    async def tap(self, request: Request) -> Response:
        place = self._place(request)
        every, limit = TAP_EVERY.read(request), TAP_LIMIT.read(request)
        user = user_of(request)
        peer = user.name if user is not None and user.name else request.client.host if request.client else ""
        keep = self._filter(place, TAP_WHERE.read(request))
        self._make_room_for_tap(peer)
        tap = Tap(place, every, limit, keep)
        unregister = self._queries.tap(place, tap.offer)
        self.taps[tap] = peer
        return _TapResponse(tap, lambda: self._close(tap, unregister))

    def _filter(self, place: TapPlace, where: str) -> KeepRows | None:
        if not where:
            return None
        if (make := self._queries.tap_filter) is None:
            raise RequestError(404, "this daemon filters no taps")
        try:
            return make(place, where)
        except AuroraError as error:
            raise RequestError(400, str(error), getattr(error, "hint", "")) from error

    def _make_room_for_tap(self, peer: str) -> None:
        """End the oldest tap of the peer that has the most, if all are taken and that peer has more than a fair part.

        A peer that asks for one tap too many loses its own oldest one. So nobody can keep the others from looking.
        """
        if len(self.taps) < MAX_TAPS:
            return
        counts = Counter(self.taps.values())
        [(greediest, most)] = counts.most_common(1)
        if greediest != peer and most <= counts[peer] + 1:
            raise RequestError(503, f"{MAX_TAPS} taps are already open", "close one, or try again later")
        oldest = next(tap for tap, owner in self.taps.items() if owner == (peer if counts[peer] == most else greediest))
        oldest.end(f"{MAX_TAPS} taps are open, and a new one took this place")
        del self.taps[oldest]

    def _close(self, tap: Tap, unregister: Unregister) -> None:
        self.taps.pop(tap, None)
        unregister()

    def _place(self, request: Request) -> TapPlace:
        """Find the place of ``?arc=``, ``?stream=``, ``?output=``, or ``?name=`` for any of them."""
        given = {p.name: p.read(request) for p in TAP_PLACES if p.name in request.query_params}
        if len(given) != 1:
            raise RequestError(400, "the request must name one place to tap", "?name= a stream, box, arc or output")
        [(kind, name)] = given.items()
        _check_tap(request, name)
        network = self._queries.network()
        place = find_tap_place(network, name)
        if place is None or kind not in _kinds(name, place):
            fitting = [n for n, p in tap_places(network).items() if kind in _kinds(n, p)]
            what = "stream, box, arc or output" if kind == "name" else kind
            raise RequestError(404, f"there is no {what} '{name[:200]}'", did_you_mean(name[:200], fitting))
        return place


def _kinds(name: str, place: TapPlace) -> tuple[str, str]:
    """Return the query keys that may select this place."""
    return "name", "arc" if "->" in name else place.kind


class _TapResponse(StreamingResponse):
    """Streams a tap's lines. It unregisters the tap at every end: the limit, a disconnect, a stop of the server."""

    def __init__(self, tap: Tap, close: Callable[[], None]) -> None:
        super().__init__(tap.lines(), media_type="application/x-ndjson", headers=HEADERS)
        self._close = close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._close()


def _attempt(work: Callable[[], Any]) -> Any:
    """Do something for an administrator. RequestError with the reason when it cannot be done."""
    try:
        return work()
    except RequestError:
        raise
    except AuroraError as error:
        raise RequestError(409, str(error)) from error


def _check_tap(request: Request, name: str) -> None:
    """Refuse to show tuples of a place, whether it exists or not, to a user without the right. Raises RequestError."""
    user = user_of(request)
    if user is None or not user.may("tap", name):
        raise RequestError(403, "access denied")
