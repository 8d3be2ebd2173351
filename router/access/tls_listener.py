"""A listener with TLS on the event loop: it accepts, shakes hands, and hands the connection to a protocol.

The loop's own server would let any number of peers begin a handshake: they count as connections only behind it. Here at
most ``HANDSHAKES`` are under way. One more ends the oldest, so that a silent crowd cannot keep others out.

Nor does it use the loop's own TLS: that loses what it has received and not yet handed on when the peer closes while the
connection does not read. ``DrainingTls`` hands everything on first.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable
from typing import Any

from router.access.tls import ServerTls

log = logging.getLogger("aurorad.access")

HANDSHAKES = 64
HANDSHAKE_SECONDS = 10.0
GOODBYE_SECONDS = 2.0
ACCEPTS_A_TURN = 32
RETRY_SECONDS = 0.1


_SslProtocol: Any = SSLProtocol  # the types of the standard library do not know what it is made of


class DrainingTls(_SslProtocol):  # type: ignore[misc]
    """TLS on the server's side. At the end of the peer's bytes the connection gets all of them before it ends."""

    def _do_flush(self) -> None:
        before = -1
        while (left := self._incoming.pending + self._sslobj.pending()) not in (0, before):
            before = left  # the same again: half a record, which will never be whole
            self._do_read()
            if self._app_reading_paused:
                return  # when the connection reads again, it comes back here
        super()._do_flush()


class TlsListener:
    """``close`` and ``wait_closed`` as those of an asyncio.Server. Owner: the I/O thread."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        make: Callable[[], asyncio.BaseProtocol],
        tls: ServerTls,
    ) -> None:
        sock.setblocking(False)
        self.sockets = [sock]
        self.failed = 0  # handshakes
        self._loop = loop
        self._sock = sock
        self._make = make
        self._tls = tls
        self._handshakes: dict[asyncio.Task[None], None] = {}  # oldest first
        self._is_closed = False
        loop.add_reader(sock.fileno(), self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTS_A_TURN):
            try:
                accepted, _ = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._wait_for_descriptors(error)
                return
            if len(self._handshakes) >= HANDSHAKES:
                next(iter(self._handshakes)).cancel()
            task = self._loop.create_task(self._open(accepted))
            self._handshakes[task] = None
            task.add_done_callback(lambda done: self._handshakes.pop(done, None))

    def _wait_for_descriptors(self, error: OSError) -> None:
        if self._is_closed or error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
            return
        log.warning("cannot accept a connection: %s", error.strerror)
        self._loop.remove_reader(self._sock.fileno())
        self._loop.call_later(RETRY_SECONDS, self._accept_again)

    def _accept_again(self) -> None:
        if not self._is_closed:
            self._loop.add_reader(self._sock.fileno(), self._accept)

    async def _open(self, accepted: socket.socket) -> None:
        accepted.setblocking(False)
        peer = _address(accepted)
        shaken: asyncio.Future[None] = self._loop.create_future()
        protocol = DrainingTls(
            self._loop,
            self._make(),
            self._tls.current(),
            shaken,
            server_side=True,
            ssl_handshake_timeout=HANDSHAKE_SECONDS,
            ssl_shutdown_timeout=GOODBYE_SECONDS,
        )
        transport: asyncio.BaseTransport | None = None
        try:
            transport, _ = await self._loop.connect_accepted_socket(lambda: protocol, accepted)
            await shaken
        except (OSError, ssl.SSLError, asyncio.CancelledError) as error:
            self.failed += 1  # a peer without TLS, without the right certificate, or too slow
            self._tls.handshake_failed(peer, error)
            if isinstance(transport, asyncio.Transport):
                transport.abort()
            else:
                accepted.close()

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._loop.remove_reader(self._sock.fileno())
            self._sock.close()
            for task in list(self._handshakes):
                task.cancel()

    async def wait_closed(self) -> None:
        if self._handshakes:
            await asyncio.wait(list(self._handshakes), timeout=GOODBYE_SECONDS)


def _address(sock: socket.socket) -> str:
    try:
        return str(sock.getpeername()[0])
    except OSError:
        return ""  # it has gone already
