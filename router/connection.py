"""The two ends of a socket: a source connection (bytes to trains) and a sink connection (a subscriber's transport).

Thin: the protocol state is the decoder's, the rules are the server's and the outlet's. All of it runs on the I/O
thread, except that a large read is decoded on the decode thread, with reading paused meanwhile, so that the order of
the bytes is kept and other connections are served.

One buffer serves every read of every connection: a read is copied out of it before the next one, so a thousand idle
connections hold no memory for reading. A decoder that keeps columns where they lie (arrow) gets large reads in buffers
of their own, which are handed on without that copy: a fifth of what the I/O thread had to do for them.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import numpy as np

from router.codecs.base import Decoder, Received
from router.named import NamedReader
from router.session import Ack, Forget, ReaderFramer, ReaderHello, SessionError, line, says_hello
from router.sessions import SourceSession
from router.subscribers import Outlet, Subscriber

if TYPE_CHECKING:
    from router.server import Server, SourcePort


FIRST_READ_BYTES = 64 * 1024
LARGEST_READ_BYTES = 4 * 1024**2
"""Of a decoder that takes views. A message that lies in two reads has to be put together: the larger the reads, the
fewer there are. (Text is decoded best while it is in the cache: see ``server.READ_BYTES``.)"""
_NO_BUFFER = memoryview(b"")
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
        self._most_bytes = LARGEST_READ_BYTES if self._decoder.takes_views else len(server.read_buffer)
        self._buffer = _NO_BUFFER  # between ``get_buffer`` and ``buffer_updated``
        self._first: bytes | None = b""  # until it is clear whether it is a session (see session.py)
        self._session: SourceSession | None = None
        self._waits = False  # the session has enough for now

    # -- asyncio ------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.peer = peer_name(transport)
        no_delay(transport)
        self._server.opened(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._decoder.takes_views and self._first is None:
            self._buffer = np.empty(self._read_bytes, np.uint8).data
        else:
            self._buffer = self._server.read_buffer[: self._read_bytes]
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        arrival_ns = self._server.now_ns()
        self.port.received_bytes += nbytes
        data: bytes = self._taken(nbytes)
        if nbytes == self._read_bytes < self._most_bytes:
            self._read_bytes *= 2
        if self._first is not None:
            data = self._first + data
            self._first = None if self._recognise(data) else data
            if self._first is not None:
                return
        if self._session is not None:
            self._session.receive(data, arrival_ns)
        elif nbytes < self._server.decode_beside_bytes:
            self._take(self._decoder.receive(data, arrival_ns))
        else:
            self._decode_beside(lambda: self._decoder.receive(data, arrival_ns))

    def _taken(self, nbytes: int) -> bytes:
        """What was read: the buffer itself where it is ours and mostly full, so that little of it lies idle."""
        buffer, self._buffer = self._buffer, _NO_BUFFER
        views = self._decoder.takes_views and self._first is None
        if views and self._server.decode_beside_bytes <= nbytes >= len(buffer) // 2:
            return cast(bytes, buffer[:nbytes])
        return bytes(buffer[:nbytes])

    def _recognise(self, first: bytes) -> bool:
        """Whether its first bytes are enough to say what it is."""
        is_session = says_hello(first)
        if is_session and self._server.desk is not None:
            self._session = SourceSession(self._server, self, self._server.desk)
        return is_session is not None

    def eof_received(self) -> bool:
        self._end()
        # Keep the transport until what it brought is decoded.
        return self._decoding or (self._session is not None and self._session.is_busy)

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended = True
        self._server.closed(self)

    @property
    def session(self) -> SourceSession | None:
        return self._session

    @property
    def is_closing(self) -> bool:
        return self.transport is None or self.transport.is_closing()

    def wait(self, waits: bool) -> None:
        if waits != self._waits:
            self._waits = waits
            self._set_reading()

    # -- decoding -----------------------------------------------------------------------------------------------------

    def _decode_beside(self, work: Callable[[], Received]) -> None:
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
        if received.rejects and sum([r.tuples for r in received.rejects]) > MANY_REJECTS:
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

    def finish_if_ended(self) -> None:
        if self._ended:
            self.finish()

    def finish(self) -> None:
        if self.transport is None or self.transport.is_closing():
            return
        if self._session is not None:
            if not self._session.is_busy:
                self.transport.close()
            return
        now_ns = self._server.now_ns()
        if self._first:
            self._take(self._decoder.receive(self._first, now_ns))
        self._take(self._decoder.end(now_ns))
        self.transport.close()

    def close(self) -> None:
        """After what was written."""
        if self.transport is not None:
            self.transport.close()

    # -- the server's wishes ------------------------------------------------------------------------------------------

    def hold(self, held: bool) -> None:
        # A client that numbers its batches is told when there is no room on the disk: it is read from, to be refused.
        self._held = held and not (self._session is not None and self._server.refuses)
        self._set_reading()

    def _set_reading(self) -> None:
        transport = self.transport
        if transport is None or transport.is_closing() or self._ended:
            return
        if self._held or self._decoding or self._waits:
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
    """Someone who receives tuples. What it sends is ignored, unless it says hello: see session.py."""

    def __init__(self, server: Server, outlet: Outlet) -> None:
        self._server = server
        self._outlet = outlet
        self._subscriber: Subscriber | None = None
        self.has_spoken = True  # a reader owes us nothing
        self.transport: asyncio.Transport | None = None
        self._first: bytes | None = b""  # until it is clear whether it says hello
        self._framer: ReaderFramer | None = None
        self._reader: NamedReader | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        no_delay(transport)
        if self._server.opened(self):
            self._subscriber = self._outlet.attach(peer_name(transport), self.transport)

    def eof_received(self) -> bool:
        return True  # `nc host port < /dev/null` has nothing to say and still wants to read

    def data_received(self, data: bytes) -> None:
        if self._first is not None:
            data = self._first + data
            is_hello = says_hello(data)
            self._first = data if is_hello is None else None
            if is_hello:
                self._framer = ReaderFramer()
        if self._framer is not None:
            try:
                for said in self._framer.receive(data):
                    self._hear(said)
            except SessionError as error:
                self._end(str(error))

    def _hear(self, said: ReaderHello | Ack | Forget) -> None:
        if isinstance(said, ReaderHello):
            self._become_named(said)
        elif self._reader is None:
            return
        elif isinstance(said, Ack):
            self._reader.acknowledge(said.number)
        else:
            self._reader.forget()

    def _become_named(self, hello: ReaderHello) -> None:
        assert self.transport is not None
        history = self._outlet.history
        if history is None:
            raise SessionError("named subscribers need engine.data_dir: nothing is kept here")
        if self._subscriber is not None:
            self._outlet.detach(self._subscriber)
            self._subscriber = None
        self._reader = self._server.named_reader(self._outlet, hello.name, self.transport, history)
        self._reader.begin(hello.after, hello.nonce)

    def _end(self, why: str) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(line(_error=why))
            self.transport.close()

    def pause_writing(self) -> None:
        if self._subscriber is not None:
            self._subscriber.paused = True
        if self._reader is not None:
            self._reader.paused = True

    def resume_writing(self) -> None:
        if self._subscriber is not None:
            self._outlet.resume(self._subscriber)
        if self._reader is not None:
            self._reader.paused = False
            self._reader.pump()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._subscriber is not None:
            self._outlet.detach(self._subscriber)
        if self._reader is not None:
            self._outlet.detach_named(self._reader)
        self._server.closed(self)

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()
