"""The routes of the console."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from catalog.errors import AuroraError, NetworkError
from router.console.files import PageFiles
from router.console.live import LivePages
from router.console.past import Past
from router.http.answers import BODIES, RequestError, json_answer
from router.http.change import problems_json
from router.http.operations import CONSOLE_OPERATIONS, route_of

MAX_BODY_BYTES = 1024**2
AT_ONCE = 2  # forecasts and trials; each is a process


@dataclass(frozen=True)
class ConsoleQueries:
    """The callables that answer the page. Each may be called on any thread, takes some time, and raises AuroraError."""

    stats: Callable[[], Mapping[str, Any]]
    file: Callable[[], str]  # the network file that runs; empty when there is none
    words: Callable[[], Mapping[str, Any]]  # what an editor completes: boxes, keys, functions, policies, the legend
    give_up: Callable[[], Mapping[str, Any]]  # what the shedder would give up next
    superboxes: Callable[[], Mapping[str, Any]]  # which boxes are scheduled together
    what_if: Callable[[Mapping[str, Any]], Mapping[str, Any]]  # load, workers, policy in; a forecast out
    draft: Callable[[Mapping[str, Any]], Mapping[str, Any]]  # rows and a name in; a network file out
    merge: Callable[[str], Mapping[str, Any]]  # a network file in; the one that runs with its parts out
    feed: Callable[[str, str], Mapping[str, Any]]  # a stream and rows for it in
    trial: Callable[[str, Mapping[str, str]], Mapping[str, Any]]  # a network file and rows by stream in; rows out


class ConsoleHandlers:
    """Owner: the I/O thread."""

    def __init__(self, queries: ConsoleQueries) -> None:
        self._queries = queries
        self._files = PageFiles()
        self._live = LivePages(queries.stats)
        self._past = Past(queries.stats)
        self._recording: asyncio.Task[None] | None = None
        self._busy = 0
        # The names of ``CONSOLE_OPERATIONS`` (``router/http/operations.py``), as are the methods below.
        self.page, self.page_file, self.live = self._files.page, self._files.file, self._live.answer

    def routes(self) -> list[Route]:
        return [route_of(operation, self) for operation in CONSOLE_OPERATIONS]

    def open(self) -> None:
        """Begin to record the past. On the loop's thread."""
        self._recording = asyncio.create_task(self._past.record(), name="aurorad-past")

    def close(self) -> None:
        """End the open pages. On the loop's thread."""
        if self._recording is not None:
            self._recording.cancel()
        self._live.end()

    def past(self, request: Request) -> Response:
        """Answer with the times of all records, or with the two records around ``?at=``, in nanoseconds."""
        text = request.query_params.get("at")
        if text is None:
            return json_answer({"times_ns": self._past.times_ns()})
        if not text.isdecimal() or len(text) > 19:
            raise RequestError(400, "at must be a time in nanoseconds")
        return json_answer({"records": self._past.at(int(text))})

    def file(self, _: Request) -> Response:
        return json_answer({"text": self._queries.file()})

    def words(self, _: Request) -> Response:
        return json_answer(self._queries.words())

    def give_up(self, _: Request) -> Response:
        return json_answer(self._queries.give_up())

    def superboxes(self, _: Request) -> Response:
        return json_answer(self._queries.superboxes())

    async def what_if(self, request: Request) -> Response:
        asked = await _json(request)
        return await self._work(lambda: self._queries.what_if(asked))

    async def draft(self, request: Request) -> Response:
        asked = await _json(request)
        return await self._work(lambda: self._queries.draft(asked))

    async def merge(self, request: Request) -> Response:
        file = str((await _json(request)).get("file", ""))
        return await self._work(lambda: self._queries.merge(file))

    async def feed(self, request: Request) -> Response:
        asked = await _json(request)
        stream, rows = str(asked.get("stream", "")), str(asked.get("rows", ""))
        return await self._work(lambda: self._queries.feed(stream, rows))

    async def trial(self, request: Request) -> Response:
        asked = await _json(request)
        rows = asked.get("rows", {})
        if not isinstance(rows, Mapping):
            raise RequestError(400, "rows is an object: by stream, lines of JSON")
        text, by_stream = str(asked.get("file", "")), {str(name): str(lines) for name, lines in rows.items()}
        return await self._work(lambda: self._queries.trial(text, by_stream))

    async def _work(self, work: Callable[[], Mapping[str, Any]]) -> Response:
        if self._busy >= AT_ONCE:
            raise RequestError(503, f"{AT_ONCE} forecasts or trials are under way", "try again in some seconds")
        self._busy += 1
        try:
            return json_answer(await run_in_threadpool(work))
        except NetworkError as error:
            return json_answer({"error": "the network file has errors", "hint": "", **problems_json(error)}, 422)
        except AuroraError as error:
            raise RequestError(400, str(error), getattr(error, "hint", "")) from error
        finally:
            self._busy -= 1


async def _json(request: Request) -> dict[str, Any]:
    """Return the object in the body of a request."""
    body = await BODIES.read(request, MAX_BODY_BYTES, "a request")
    try:
        asked = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise RequestError(400, f"not JSON: {error}") from error
    if not isinstance(asked, dict):
        raise RequestError(400, "the body must be a JSON object")
    return asked
