"""The connection of a sender: it turns bytes into trains. (``reader_connection.py`` has the other kind.)

Connections are thin. The decoder keeps the protocol state; the server and the outlet hold the rules. Connections run on
the I/O thread. Only a large read is decoded on the decode thread. Reading pauses meanwhile, which keeps the bytes in
order and lets the I/O thread serve other connections. Where the stream may be shed at the edge, the connection reads on
and keeps the bytes in an inbox (``router/edge``).

All reads of all connections share one buffer. A read is copied out of it before the next one, so a thousand idle
connections hold no memory for reading. A decoder that uses columns in place (arrow) gets large reads in buffers of
their own, without that copy. The copy was a fifth of the I/O thread's work for such reads.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from time import perf_counter_ns
from typing import TYPE_CHECKING, cast

import numpy as np

from router.boundary import SOCKET
from router.client_protocol import (
    begins_with_hello,
)
from router.codecs.base import Decoder, Received
from router.edge.inbox import EdgeInbox
from router.edge.sample import EdgeSample
from router.edge.socket_hold import SocketHold
from router.source_session import SourceSession

if TYPE_CHECKING:
    from router.server import Server, SourcePort


FIRST_READ_BYTES = 64 * 1024
LARGEST_READ_BYTES = 4 * 1024**2
"""The limit for a decoder that takes views. A message that spans two reads must be joined by a copy; larger reads make
that rarer. (Text is decoded best while it is in the CPU's cache: see ``server.READ_BYTES``.)"""
_NO_BUFFER = memoryview(b"")
REST_S, REST_BELOW_BYTES, REST_ROOM_BYTES = 0.003, 512 * 1024, 1024**2
"""While rows are dropped undecoded, a connection rests after a read of less than this, if its socket has this much room
meanwhile."""
MANY_REJECTS = 100
"""A connection gets larger reads when it fills smaller ones. After this many rejects in one read it gets small reads
again: bad lines are decoded one by one, which takes a second for a megabyte and 50 ms for 64 KiB."""


def peer_name(transport: asyncio.BaseTransport) -> str:
    peer = transport.get_extra_info("peername")
    return f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) and len(peer) >= 2 else "unknown"


def set_tcp_options(transport: asyncio.BaseTransport) -> None:
    """Send small answers at once (TCP_NODELAY), and detect a peer that has vanished (SO_KEEPALIVE)."""
    sock = transport.get_extra_info("socket")
    if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


class SourceConnection(asyncio.BufferedProtocol):
    """The connection of a sender."""

    def __init__(self, server: Server, port: SourcePort) -> None:
        self._server = server
        self.port = port
        self.peer = "unknown"
        self.origin = SOCKET  # with the peer, once it is known
        self.is_silent = True  # until it has sent a whole tuple, good or bad: see ``router/places.py``
        self.transport: asyncio.Transport | None = None
        self._decoder: Decoder = port.make_decoder()
        self._decoding = False  # on the decode thread; reading is paused meanwhile
        self._paused_by_server = False  # there is no room for this stream
        self._ended = False  # the sender has closed its side
        self._counted = 0  # tuples of the decoder that are in the port's count
        self._read_bytes = FIRST_READ_BYTES
        self._max_read_bytes = LARGEST_READ_BYTES if self._decoder.takes_views else len(server.read_buffer)
        self._buffer = _NO_BUFFER  # between ``get_buffer`` and ``buffer_updated``
        self._first_bytes: bytes | None = b""  # None once they show whether the sender uses the client protocol
        self._session: SourceSession | None = None  # of a sender that uses the client protocol
        self._paused_by_session = False  # too many batches wait for the decode thread
        self._hold = SocketHold(port.edge.undrained)
        self._resting = False
        self._lost = 0  # rows dropped undecoded since the last train
        self._inbox: EdgeInbox | None = None  # where rows may be dropped undecoded
        if port.edge.sheds and port.is_lines:
            self._inbox = EdgeInbox(
                port.edge,
                self._decoder,
                EdgeSample(port.intake.line_bytes, seed=id(self)),
                server.decode_on_thread,
                self._take_from_inbox,
                server.now_ns,
                server.later,
            )
        self._is_held = False  # a login is being checked, or the user is above its rate
        self._is_tls = False
        self._has_eof = False  # the sender has closed its side in order
        self._is_finished = False
        self._is_noted = False  # in the account of undecoded bytes
        self._in_flight_bytes = 0  # of the read that the decode thread has
        self._waits_for_room = False  # unfinished messages have filled their memory: see ``undecoded.py``
        self._paused_by_answers = False  # the peer does not read its answers

    # -- asyncio ------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.peer = peer_name(transport)
        self.origin = SOCKET._replace(peer=self.peer)
        self._is_tls = transport.get_extra_info("ssl_object") is not None
        set_tcp_options(transport)
        self._hold.open(transport.get_extra_info("socket"))
        self._server.register(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._server.undecoded.is_full:
            self._read_bytes = FIRST_READ_BYTES
        if self._decoder.takes_views and self._first_bytes is None:
            self._buffer = np.empty(self._read_bytes, np.uint8).data
        else:
            self._buffer = self._server.read_buffer[: self._read_bytes]
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        now_ns = self._server.read_begun_ns()
        arrival_ns = now_ns - self._hold.held_ns(nbytes, now_ns)
        self.port.received_bytes += nbytes
        data: bytes = self._take_read(nbytes)
        if nbytes == self._read_bytes < self._max_read_bytes:
            self._read_bytes *= 2
        self.receive(data, arrival_ns)

    def receive(self, data: bytes, arrival_ns: int) -> None:
        """Take the bytes of a read."""
        nbytes = len(data)
        if self._first_bytes is not None:
            data = self._first_bytes + data
            self._first_bytes = None if self._detect_session(data) else data
            if self._first_bytes is not None:
                return
        if self._session is not None:
            self._session.receive(data, arrival_ns)
        elif self._inbox is not None:
            self._inbox.receive(data, arrival_ns)
            if self.port.edge.share < 1.0 and nbytes < REST_BELOW_BYTES:
                self._rest()
        elif nbytes < self._server.decode_thread_bytes:
            self._take(self._decode(data, arrival_ns))
        else:
            self._decode_on_thread(nbytes, lambda: self._decode(data, arrival_ns))
        self.note_undecoded()

    def _take_read(self, nbytes: int) -> bytes:
        """Return the bytes of a read: the buffer itself if it belongs to this read alone and is at least half full."""
        buffer, self._buffer = self._buffer, _NO_BUFFER
        views = self._decoder.takes_views and self._first_bytes is None
        if views and self._server.decode_thread_bytes <= nbytes >= len(buffer) // 2:
            return cast(bytes, buffer[:nbytes])
        return bytes(buffer[:nbytes])

    def _detect_session(self, first: bytes) -> bool:
        """Begin a session if the sender uses the client protocol. False while the first bytes are too few to tell."""
        is_session = begins_with_hello(first)
        if is_session:
            self._session = SourceSession(self._server, self)
        return is_session is not None

    def check_name(self, name: str) -> None:
        """Refuse a client that may not use this name of a source. Raises SessionError. Here everybody may."""

    def eof_received(self) -> bool:
        self._has_eof = True
        self._end_of_input()
        if self._is_tls:
            return False  # TLS has no half-closed connections; ``finish`` decodes the rest all the same
        # Keep the transport until everything that was read is decoded.
        return self._is_decoding or (self._session is not None and self._session.is_busy)

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended = True
        self._hold.close()
        self._server.undecoded.forget(self)
        self._server.unregister(self)

    def pause_writing(self) -> None:
        """Read nothing more from a peer that does not read its answers: it could make the daemon keep any number."""
        self._paused_by_answers = True
        self._set_reading()

    def resume_writing(self) -> None:
        self._paused_by_answers = False
        self._set_reading()

    # -- what is not decoded yet --------------------------------------------------------------------------------------

    def note_undecoded(self) -> None:
        """Tell the common account what this connection holds (``undecoded.py``)."""
        unfinished, kept = self._in_flight_bytes, self._decoder.kept_bytes
        if self._session is not None:
            unfinished += self._session.undecoded_bytes
        elif self._inbox is not None:
            unfinished += self._inbox.undecoded_bytes
        if not self._decoding:
            unfinished += self._decoder.unfinished_bytes
        if unfinished or kept or self._is_noted:
            self._is_noted = bool(unfinished or kept)
            self._server.undecoded.note(self, unfinished, kept)

    @property
    def stream_key(self) -> int:
        return self.port.stream.number

    @property
    def is_stalled(self) -> bool:
        waits_for_us = self._is_decoding or self._paused_by_server or self._paused_by_session or self._is_held
        return not waits_for_us and not self._hold.has_bytes

    def set_waits_for_room(self, waits: bool) -> None:
        if waits != self._waits_for_room:
            self._waits_for_room = waits
            self._set_reading()

    def give_up(self, why: str) -> None:
        if self._session is not None:
            self._session.close_with_error(why)
        else:
            self.refuse(why)

    # -- reading ------------------------------------------------------------------------------------------------------

    @property
    def _is_decoding(self) -> bool:
        return self._decoding or (self._inbox is not None and self._inbox.is_busy)

    @property
    def session(self) -> SourceSession | None:
        return self._session

    @property
    def is_closing(self) -> bool:
        return self.transport is None or self.transport.is_closing()

    def set_paused_by_session(self, paused: bool) -> None:
        """Stop reading while too many batches of the session wait."""
        if paused != self._paused_by_session:
            self._paused_by_session = paused
            self._set_reading()

    def set_held(self, held: bool) -> None:
        """Stop reading while something is to be waited for."""
        if held != self._is_held:
            self._is_held = held
            self._set_reading()

    # -- decoding -----------------------------------------------------------------------------------------------------

    def _decode(self, data: bytes, arrival_ns: int) -> Received:
        """Decode a read. On the I/O thread or the decode thread."""
        begun_ns = perf_counter_ns()
        received = self._decoder.receive(data, arrival_ns)
        self.port.edge.decode_ns += perf_counter_ns() - begun_ns
        return received

    def _take_from_inbox(self, received: Received, dropped: int) -> None:
        self._count_and_take(received, dropped)
        self.note_undecoded()
        if self._ended:
            self.finish()

    def _count_and_take(self, received: Received, dropped: int) -> None:
        self._lost += dropped
        self._take(received)

    def _rest(self) -> None:
        """Read nothing for a moment: fewer and larger reads leave more of the GIL to the decoder."""
        if not self._resting and self._hold.room_bytes >= REST_ROOM_BYTES:
            self._resting = True
            self._set_reading()
            self._server.later(REST_S, self._rested)

    def _rested(self) -> None:
        self._resting = False
        self._set_reading()

    def _decode_on_thread(self, nbytes: int, work: Callable[[], Received]) -> None:
        self._decoding = True
        self._in_flight_bytes = nbytes
        self._set_reading()
        self._server.decode_on_thread(work, self._decoded)

    def _decoded(self, received: Received) -> None:
        self._decoding = False
        self._in_flight_bytes = 0
        self._take(received)
        self.note_undecoded()
        if self._ended:
            self.finish()
        self._set_reading()

    def _take(self, received: Received) -> None:
        """Count what the decoder returned, and hand it to the server."""
        if received.rejects and sum([r.tuples for r in received.rejects]) > MANY_REJECTS:
            self._read_bytes = FIRST_READ_BYTES
        counted = self._decoder.received
        self.port.received += counted - self._counted
        self._counted = counted
        if received.trains or received.rejects:
            self.is_silent = False
            lost = self._lost if received.trains else 0
            self._lost -= lost
            self._server.take(self, received, lost)

    def _end_of_input(self) -> None:
        self._ended = True
        if not self._is_decoding:
            self.finish()

    def finish_if_ended(self) -> None:
        if self._ended:
            self.finish()

    def finish(self) -> None:
        """Decode the rest after the end of input, a last line without a newline included, and close."""
        is_over = self._is_finished or (
            self.transport is not None and self.transport.is_closing() and not self._has_eof
        )
        if self.transport is None or is_over or self._is_decoding:
            return
        if self._session is not None:
            if not self._session.is_busy:
                self.transport.close()
            return
        self._is_finished = True
        now_ns = self._server.now_ns()
        if self._first_bytes:
            self._take(self._decoder.receive(self._first_bytes, now_ns))
        if self._inbox is None:
            self._take(self._decoder.end(now_ns))
        else:
            rest = self._inbox.end(now_ns)
            self._count_and_take(rest, self._inbox.take_dropped())
        self.transport.close()

    def close(self) -> None:
        """Close after everything that was written has been sent."""
        if self.transport is not None:
            self.transport.close()

    # -- called by the server -----------------------------------------------------------------------------------------

    def set_paused_by_server(self, paused: bool) -> None:
        """Stop reading while there is no room for this stream.

        While the disk is full the server still reads from clients that number their batches, to refuse them. It reads
        the first bytes of a new connection too: they show whether it is such a client.
        """
        may_number = self._session is not None or self._first_bytes is not None
        self._paused_by_server = paused and not (may_number and self._server.refuses_batches)
        self._set_reading()

    def _set_reading(self) -> None:
        transport = self.transport
        if transport is None or transport.is_closing() or self._ended:
            return
        is_busy = self._decoding or self._resting or self._is_held
        is_full = self._paused_by_server or self._waits_for_room
        if is_full or self._paused_by_session or self._paused_by_answers or is_busy:
            transport.pause_reading()
        else:
            transport.resume_reading()

    def refuse(self, message: str) -> None:
        """Send the sender the reason, and close: the bytes that follow have no meaning."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(b"error: " + message.encode() + b"\n")
            self.transport.close()

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()
