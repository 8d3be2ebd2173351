"""The two ends of a socket: a source connection (bytes to trains) and a sink connection (a subscriber's transport).

Thin: the protocol state is the decoder's, the rules are the server's and the outlet's. All of it runs on the I/O
thread, except that a large read is decoded on the decode thread, with reading paused meanwhile, so that the order of
the bytes is kept and other connections are served.

One buffer serves every read of every connection: a read is copied out of it before the next one, so a thousand idle
connections hold no memory for reading.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from router.codecs.base import Decoder, Received
from router.subscribers import Outlet, Subscriber

if TYPE_CHECKING:
    from router.server import Server, SourcePort


FIRST_READ_BYTES = 64 * 1024
MANY_REJECTS = 100
"""A connection earns large reads by filling smaller ones, and loses them by sending rubbish: a megabyte of lines that
must be looked at one by one takes a second, 64 KiB of them 50 ms."""


def peer_name(transport: asyncio.BaseTransport) -> str:
    peer = transport.get_extra_info("peername")
    return f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) and len(peer) >= 2 else "unknown"


def no_delay(transport: asyncio.BaseTransport) -> None:
    """Small answers leave at once; a peer that has vanished without a word is noticed in the end."""
    sock = transport.get_extra_info("socket")
    if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


class SourceConnection(asyncio.BufferedProtocol):
    """Someone who sends tuples."""

    def __init__(self, server: Server, port: SourcePort) -> None:
        self._server = server
        self.port = port
        self.peer = "unknown"
        self.has_spoken = False  # has sent a whole tuple, good or bad
        self.transport: asyncio.Transport | None = None
        self._decoder: Decoder = port.make_decoder()
        self._decoding = False  # on the decode thread; reading is paused meanwhile
        self._held = False  # the server wants no more for now
        self._ended = False  # nothing more will come
        self._counted = 0  # tuples of the decoder that are in the port's count
        self._read_bytes = FIRST_READ_BYTES

    # -- asyncio ------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.peer = peer_name(transport)
        no_delay(transport)
        self._server.opened(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._server.read_buffer[: self._read_bytes]

    def buffer_updated(self, nbytes: int) -> None:
        arrival_ns = self._server.now_ns()
        self.port.received_bytes += nbytes
        if nbytes == self._read_bytes < len(self._server.read_buffer):
            self._read_bytes *= 2
        data = bytes(self._server.read_buffer[:nbytes])
        self._decode(lambda: self._decoder.receive(data, arrival_ns), nbytes)

    def eof_received(self) -> bool:
        self._end()
        return self._decoding  # keep the transport until what it brought is decoded

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended = True
        self._server.closed(self)

    # -- decoding -----------------------------------------------------------------------------------------------------

    def _decode(self, work: Callable[[], Received], nbytes: int) -> None:
        if nbytes < self._server.decode_beside_bytes:
            self._take(work())
            return
        self._decoding = True
        self._set_reading()
        self._server.decode_beside(work, self._decoded)

    def _decoded(self, received: Received) -> None:
        self._decoding = False
        self._take(received)
        if self._ended:
            self.finish()
        self._set_reading()

    def _take(self, received: Received) -> None:
        rejected = sum([r.tuples for r in received.rejects])
        if rejected > MANY_REJECTS:
            self._read_bytes = FIRST_READ_BYTES
        counted = self._decoder.received
        self.port.received += counted - self._counted
        self._counted = counted
        if received.trains or received.rejects:
            self.has_spoken = True
            self._server.take(self, received)

    def _end(self) -> None:
        """End of file: what lacks only its newline counts."""
        self._ended = True
        if not self._decoding:
            self.finish()

    def finish(self) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self._take(self._decoder.end(self._server.now_ns()))
            self.transport.close()

    # -- the server's wishes ------------------------------------------------------------------------------------------

    def hold(self, held: bool) -> None:
        self._held = held
        self._set_reading()

    def _set_reading(self) -> None:
        transport = self.transport
        if transport is None or transport.is_closing() or self._ended:
            return
        if self._held or self._decoding:
            transport.pause_reading()
        else:
            transport.resume_reading()

    def refuse(self, message: str) -> None:
        """Tell the sender why, and close: nothing that follows can be understood."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(b"error: " + message.encode() + b"\n")
            self.transport.close()

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()


class SinkConnection(asyncio.Protocol):
    """Someone who receives tuples. What it sends is ignored."""

    def __init__(self, server: Server, outlet: Outlet) -> None:
        self._server = server
        self._outlet = outlet
        self._subscriber: Subscriber | None = None
        self.has_spoken = True  # a reader owes us nothing
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        no_delay(transport)
        if self._server.opened(self):
            self._subscriber = self._outlet.attach(peer_name(transport), self.transport)

    def eof_received(self) -> bool:
        return True  # `nc host port < /dev/null` has nothing to say and still wants to read

    def pause_writing(self) -> None:
        if self._subscriber is not None:
            self._subscriber.paused = True

    def resume_writing(self) -> None:
        if self._subscriber is not None:
            self._outlet.resume(self._subscriber)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._subscriber is not None:
            self._outlet.detach(self._subscriber)
        self._server.closed(self)

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()
