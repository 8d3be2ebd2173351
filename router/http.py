"""HTTP: metrics, health, the network, statistics, taps and a page to look at.

An app made of callables that the engine hands over, so it knows neither engine nor monitor. It lives on the I/O
thread; whatever walks over all boxes (metrics, statistics) is a plain function, which starlette runs beside the loop,
so that a scrape of 1,000 boxes does not hold up a socket. Everything is a GET and changes nothing.

The server runs on a loop that is already there and never touches signals: those are the daemon's.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from catalog.config.words import did_you_mean
from catalog.describe import Place, find_place, network_json, places
from catalog.errors import AuroraError
from catalog.network import Network
from router.tap import Tap, TapSource, Unregister

MAX_TAPS = 16
MAX_CONNECTIONS = 500
TAP_LIMIT = 100
STOP_SECONDS = 1

_PAGE = Path(__file__).with_name("page.html")
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; connect-src 'self'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'; base-uri 'none'",
}


@dataclass(frozen=True)
class Sources:
    """What the app shows, as callables. All may be called from any thread."""

    metrics: Callable[[str], tuple[bytes, str]]  # the Accept header in; body and content type out
    stats: Callable[[], Mapping[str, Any]]
    network: Callable[[], Network]
    ready: Callable[[], str]  # "" when ready, else why not
    dead_letters: Callable[[int], Sequence[Mapping[str, Any]]]  # the newest, at most so many
    tap: TapSource
    explain: Callable[[str, str, int], Mapping[str, Any]]  # output, predicate, how many; AuroraError when refused
    drops: Callable[[int], Mapping[str, Any]]  # the plans that were in force, at most so many, and what was dropped


class ListenError(AuroraError):
    """An address that cannot be listened on."""


class RequestError(AuroraError):
    """A request that makes no sense; answered as JSON."""

    def __init__(self, status: int, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.status, self.hint = status, hint


class HttpApp:
    """The ASGI app. ``close`` ends what would go on for ever, before the server stops."""

    def __init__(self, sources: Sources) -> None:
        handlers = self._handlers = _Handlers(sources)
        routes = [
            Route("/", handlers.page),
            Route("/metrics", handlers.metrics),
            Route("/health", handlers.health),
            Route("/ready", handlers.ready),
            Route("/api/v1/network", handlers.network),
            Route("/api/v1/stats", handlers.stats),
            Route("/api/v1/dead_letters", handlers.dead_letters),
            Route("/api/v1/tap", handlers.tap),
            Route("/api/v1/explain", handlers.explain),
            Route("/api/v1/drops", handlers.drops),
        ]
        self._paths = [route.path for route in routes]
        self._app = Starlette(routes=routes, exception_handlers={RequestError: _refuse, 404: self._not_found})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    def close(self) -> None:
        """On the loop's thread."""
        for tap in self._handlers.taps:
            tap.end()

    def _not_found(self, request: Request, _: Exception) -> Response:
        path = request.url.path[:200]
        return _json({"error": f"there is nothing at {path}", "hint": did_you_mean(path, self._paths)}, 404)


def make_app(sources: Sources) -> HttpApp:
    return HttpApp(sources)


def _refuse(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    return _json({"error": str(error), "hint": error.hint}, error.status)


class _Handlers:
    """Plain functions run beside the loop; coroutines, on it."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._page = _PAGE.read_text(encoding="utf-8")
        self.taps: set[Tap] = set()  # on the loop's thread only

    async def page(self, _: Request) -> Response:
        return HTMLResponse(self._page, headers=_HEADERS)

    async def health(self, _: Request) -> Response:
        """The process lives and its loop turns; nothing else is asked."""
        return _json({"status": "ok"})

    async def ready(self, _: Request) -> Response:
        why_not = self._sources.ready()
        return _json({"status": "not ready", "why": why_not}, 503) if why_not else _json({"status": "ready"})

    def metrics(self, request: Request) -> Response:
        body, content_type = self._sources.metrics(request.headers.get("accept", ""))
        return Response(body, headers={"Content-Type": content_type, "Cache-Control": "no-store"})

    def network(self, _: Request) -> Response:
        return _json(network_json(self._sources.network()))

    def stats(self, _: Request) -> Response:
        return _json(self._sources.stats())

    def dead_letters(self, request: Request) -> Response:
        return _json({"dead_letters": list(self._sources.dead_letters(_number(request, "limit", 100, 1, 10_000)))})

    def drops(self, request: Request) -> Response:
        return _json(self._sources.drops(_number(request, "limit", 100, 1, 10_000)))

    def explain(self, request: Request) -> Response:
        output, where = request.query_params.get("output", ""), request.query_params.get("where", "")
        names = [o.name for o in self._sources.network().outputs]
        if output not in names:
            hint = did_you_mean(output[:200], names) if output else f"?output= one of {', '.join(names[:20])}"
            raise RequestError(404, f"there is no output '{output[:200]}'", hint)
        try:
            return _json(self._sources.explain(output, where, _number(request, "limit", 3, 1, 100)))
        except AuroraError as error:
            raise RequestError(400, str(error), getattr(error, "hint", "")) from error

    async def tap(self, request: Request) -> Response:
        place = self._place(request)
        every = _number(request, "every", 1, 1, 10**9)
        limit = _number(request, "limit", TAP_LIMIT, 0, 10**9)
        if len(self.taps) >= MAX_TAPS:
            raise RequestError(503, f"{MAX_TAPS} taps are open already", "close one, or try again later")
        tap = Tap(place, every, limit)
        unregister = self._sources.tap(place, tap.offer)
        self.taps.add(tap)
        return _TapResponse(tap, lambda: self._close(tap, unregister))

    def _close(self, tap: Tap, unregister: Unregister) -> None:
        self.taps.discard(tap)
        unregister()

    def _place(self, request: Request) -> Place:
        """``?arc=``, ``?stream=``, ``?output=`` or ``?name=`` for any of them."""
        given = {key: request.query_params[key] for key in _PLACE_KEYS if key in request.query_params}
        if len(given) != 1:
            raise RequestError(400, "say which place to tap", "?name= a stream, box, arc or output")
        [(kind, name)] = given.items()
        network = self._sources.network()
        place = find_place(network, name)
        if place is None or kind not in _kinds(name, place):
            fitting = [n for n, p in places(network).items() if kind in _kinds(n, p)]
            what = "stream, box, arc or output" if kind == "name" else kind
            raise RequestError(404, f"there is no {what} '{name[:200]}'", did_you_mean(name[:200], fitting))
        return place


_PLACE_KEYS = ("name", "arc", "stream", "output")


def _kinds(name: str, place: Place) -> tuple[str, str]:
    """The keys under which a name may be asked for."""
    return "name", "arc" if "->" in name else place.kind


class _TapResponse(StreamingResponse):
    """Unregisters however it ends: at the limit, because the reader went away, because the server stops."""

    def __init__(self, tap: Tap, close: Callable[[], None]) -> None:
        super().__init__(tap.lines(), media_type="application/x-ndjson", headers={"Cache-Control": "no-store"})
        self._close = close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._close()


def _json(data: Any, status: int = 200) -> Response:
    body = orjson.dumps(data, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE, default=str)
    return Response(body, status, media_type="application/json", headers={"Cache-Control": "no-store"})


def _number(request: Request, key: str, default: int, least: int, most: int) -> int:
    text = request.query_params.get(key)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 12 and least <= int(text) <= most):
        raise RequestError(400, f"{key} is a whole number from {least} to {most}, not '{text[:40]}'")
    return int(text)


# -- the server -------------------------------------------------------------------------------------------------------


class _Uvicorn(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals stay with the daemon."""
        yield


class HttpServer:
    """Serves an app on the running loop from ``start`` to ``stop``."""

    def __init__(self, app: HttpApp, server: _Uvicorn, sock: socket.socket, task: asyncio.Task[None]) -> None:
        self._app, self._server, self._sock, self._task = app, server, sock, task
        host, port = sock.getsockname()[:2]
        self.host: str = host
        self.port: int = port

    @property
    def url(self) -> str:
        return f"http://[{self.host}]:{self.port}" if ":" in self.host else f"http://{self.host}:{self.port}"

    @classmethod
    async def start(cls, app: HttpApp, host: str, port: int, place: str = "http.listen") -> HttpServer:
        """Raises ListenError, which names ``place``, when the address cannot be had."""
        sock = bind(host, port, place)
        config = uvicorn.Config(
            app, log_config=None, access_log=False, lifespan="off", server_header=False,
            limit_concurrency=MAX_CONNECTIONS, timeout_keep_alive=10, timeout_graceful_shutdown=STOP_SECONDS,
        )  # fmt: skip
        server = _Uvicorn(config)
        task = asyncio.create_task(server.serve(sockets=[sock]), name="aurorad-http")
        up = asyncio.create_task(server.up.wait())
        await asyncio.wait((task, up), return_when=asyncio.FIRST_COMPLETED)
        up.cancel()
        if task.done():
            await task
        return cls(app, server, sock, task)

    async def stop(self) -> None:
        """Takes no more, ends what is open within ``STOP_SECONDS``."""
        self._app.close()
        self._server.should_exit = True
        await self._task
        self._sock.close()


def bind(host: str, port: int, place: str) -> socket.socket:
    """A bound socket, or a ListenError that says which key of the network file to look at."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(128)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        raise ListenError(f"{place}: cannot listen on {host}:{port}: {_why(error)}") from error
    return sock


def _why(error: OSError) -> str:
    text = (error.strerror or str(error)).lower()
    return "the port is in use" if "in use" in text else text
