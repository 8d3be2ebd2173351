"""The HTTP server on the daemon's event loop: its sockets, its places, and how long a peer may take.

The server leaves signals to the daemon. It has ``places`` for everyone, and ``reserved`` ones that answer ``/health``
and ``/ready`` only, so an orchestrator learns in any crowd that the daemon lives. When all places are taken, a new
connection replaces the oldest one that has no request under way (an unfinished head, an idle connection), else one
whose peer has not read its answer, or not sent its whole request, for ten seconds. Only when every place is busy does a
connection get a reserved place; other requests than the two are answered there with 503.

The head of a request must be complete ten seconds after its first byte, and a new connection must send one within that
time. uvicorn has a timer for idle connections only, and the first byte of a head ends it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from time import monotonic
from typing import Any, Protocol, cast

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from catalog.errors import ListenError
from router.access.tls import ServerTls, peer_names
from router.access.tls_listener import TlsListener
from router.http.answers import plain_answer
from router.ports import why_not

HEAD_SECONDS = 10.0
STALL_SECONDS = 10.0
IDLE_SECONDS = 10
STOP_SECONDS = 1
PROBES = ("/health", "/ready")
CERTIFICATE = "aurorad.certificate"
"""In the state of a request: the names in the certificate of its client."""


class ClosableApp(Protocol):
    """The app that is served. ``close`` ends what has no end of its own."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...

    def close(self) -> None: ...


class HttpPlaces:
    """Who has a place, oldest first. Owner: the I/O thread."""

    def __init__(self, places: int, reserved: int) -> None:
        self.places = places
        self.reserved = reserved
        self.evicted = 0
        self.refused = 0
        self._open: dict[HttpConnection, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def enter(self, connection: HttpConnection) -> bool:
        """Give a connection a place. False when it has none at all, and must be closed."""
        if len(self._open) >= self.places and (useless := self._useless()) is not None:
            self.evicted += 1
            del self._open[useless]
            useless.transport.abort()
        connection.is_reserved = len(self._open) >= self.places
        if len(self._open) >= self.places + self.reserved:
            self.refused += 1
            return False
        self._open[connection] = None
        return True

    def leave(self, connection: HttpConnection) -> None:
        self._open.pop(connection, None)

    def _useless(self) -> HttpConnection | None:
        now = monotonic()
        stalled: HttpConnection | None = None
        for connection in self._open:
            if not connection.is_busy:
                return connection
            if stalled is None and connection.stalled_for(now) >= STALL_SECONDS:
                stalled = connection
        return stalled


class HttpConnection(H11Protocol):
    """One connection, with a place and a limit on the time for a head."""

    def __init__(self, config: uvicorn.Config, *arguments: Any, **named: Any) -> None:
        super().__init__(config, *arguments, **named)
        assert isinstance(config, _HttpConfig)
        self._places = config.places
        self._tls = config.tls
        self._stalled_since: float | None = None  # since when the peer does not read
        self._request_since: float | None = None  # when the last request began
        self._head_timer: asyncio.TimerHandle | None = None
        self.is_reserved = False

    @property
    def is_busy(self) -> bool:
        """Whether a request is under way: its head has come and its answer is not finished."""
        cycle = cast(RequestResponseCycle | None, self.cycle)
        return cycle is not None and not cycle.response_complete

    def stalled_for(self, now: float) -> float:
        """Return for how many seconds the peer has not read its answer, or not sent the whole of its request."""
        since = self._request_since if self.is_busy and self.cycle.more_body else self._stalled_since
        return 0.0 if since is None else now - since

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if not self._places.enter(self):
            transport.abort()
            return
        if (tls := self._tls) is not None:
            self.app_state = {CERTIFICATE: peer_names(transport.get_extra_info("ssl_object"), tls.files)}
        if self.is_reserved:
            self.app = _probes_only(self.app)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._places.leave(self)
        self._head_has_come()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        was_busy = self.is_busy
        super().data_received(data)
        if self.is_busy and not was_busy:
            self._request_since = monotonic()
        if self.is_busy:
            self._head_has_come()
        elif self.timeout_keep_alive_task is None:
            self._await_head()

    def send_400_response(self, msg: str) -> None:
        """Refuse bytes that are no HTTP. In the middle of a request its own answer may be under way: then close."""
        if not self.is_busy:
            super().send_400_response(msg)
            return
        self.cycle.disconnected = True
        self.cycle.message_event.set()
        self.transport.close()

    def _await_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self._head_is_late)

    def _head_has_come(self) -> None:
        timer, self._head_timer = self._head_timer, None
        if timer is not None:
            timer.cancel()

    def _head_is_late(self) -> None:
        self._head_timer = None
        if not self.is_busy:
            self.transport.abort()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled_since = monotonic()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stalled_since = None


def _probes_only(app: ASGIApp) -> ASGIApp:
    """Return an app for a reserved place: it answers probes, and 503 to everything else."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in PROBES:
            await app(scope, receive, send)
        else:
            await plain_answer(503, "all connections are taken; try again later", close=True)(scope, receive, send)

    return answer


class _HttpConfig(uvicorn.Config):
    """``places`` are shared by all connections."""

    def __init__(self, app: ClosableApp, tls: ServerTls | None, places: HttpPlaces, backlog: int) -> None:
        super().__init__(
            app, http=HttpConnection, ws="none", log_config=None, access_log=False, lifespan="off",
            server_header=False, proxy_headers=False, backlog=backlog, timeout_keep_alive=IDLE_SECONDS,
            timeout_graceful_shutdown=STOP_SECONDS,
        )  # fmt: skip
        self.places = places
        self.tls = tls


class _DatedState(ServerState):
    """The state of a server. It makes the Date header when a response needs it."""

    @property
    def default_headers(self) -> list[tuple[bytes, bytes]]:
        return [(b"date", formatdate(usegmt=True).encode())]

    @default_headers.setter
    def default_headers(self, headers: list[tuple[bytes, bytes]]) -> None:
        """Take no other headers."""


class _Uvicorn(uvicorn.Server):
    """A uvicorn server that reports when it listens (``up``), and sleeps while there is no request.

    The loop of uvicorn itself wakes ten times a second, for the Date header and to see whether it shall end.
    """

    def __init__(self, config: _HttpConfig) -> None:
        super().__init__(config)
        self.server_state = _DatedState()
        self._tls = config.tls
        self.up = asyncio.Event()
        self._ending = asyncio.Event()

    async def main_loop(self) -> None:
        await self._ending.wait()

    def end(self) -> None:
        """Have ``serve`` end the open requests and return. On the loop's thread."""
        self.should_exit = True
        self._ending.set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self._tls is None:
            await super().startup(sockets)
        else:
            loop = asyncio.get_running_loop()
            listeners = [TlsListener(loop, sock, self._make, self._tls) for sock in sockets or ()]
            self.servers = cast(list[asyncio.base_events.Server], listeners)
            self.started = True
        self.up.set()

    def _make(self) -> HttpConnection:
        return HttpConnection(self.config, self.server_state, self.lifespan.state)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture no signal: the daemon handles them."""
        yield


class HttpServer:
    """Serves an app on the running loop from ``start`` to ``stop``."""

    def __init__(
        self, app: ClosableApp, server: _Uvicorn, sock: socket.socket, task: asyncio.Task[None], config: _HttpConfig
    ) -> None:
        self._app, self._server, self._sock, self._task = app, server, sock, task
        host, port = sock.getsockname()[:2]
        self.host: str = host
        self.port: int = port
        self.places = config.places
        self._scheme = "http" if config.tls is None else "https"

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self._scheme}://{host}:{self.port}"

    @classmethod
    async def start(
        cls,
        app: ClosableApp,
        host: str,
        port: int,
        place: str = "http.listen",
        *,
        tls: ServerTls | None = None,
        places: HttpPlaces | None = None,
        backlog: int = 128,
    ) -> HttpServer:
        """Listen and serve. A ListenError names ``place``, the key of the network file with the address."""
        sock = bind(host, port, place, backlog)
        config = _HttpConfig(app, tls, HttpPlaces(500, 50) if places is None else places, backlog)
        server = _Uvicorn(config)
        task = asyncio.create_task(server.serve(sockets=[sock]), name="aurorad-http")
        up = asyncio.create_task(server.up.wait())
        await asyncio.wait((task, up), return_when=asyncio.FIRST_COMPLETED)
        up.cancel()
        if task.done():
            await task
        return cls(app, server, sock, task, config)

    async def stop(self) -> None:
        """Accept no more requests, and end the open ones within ``STOP_SECONDS``."""
        self._app.close()
        self._server.end()
        await self._task
        self._sock.close()


def bind(host: str, port: int, place: str, backlog: int) -> socket.socket:
    """Return a listening socket. A ListenError names ``place``, the key of the network file with the address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with contextlib.ExitStack() as on_error:
        try:
            sock = socket.socket(family, socket.SOCK_STREAM)
            on_error.callback(sock.close)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((host, port))
            sock.listen(backlog)
            sock.setblocking(False)
        except OSError as error:
            raise ListenError(f"{place}: cannot listen on {host}:{port}: {why_not(error, port)}") from error
        on_error.pop_all()
        return sock
