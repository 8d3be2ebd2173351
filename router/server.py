"""The boundary as a whole: every listener and connection, and when to stop reading.

- One listener for each stream with a TCP source and each output with a TCP sink; many connections may feed a stream.
- Back-pressure: when the engine has no room, reading stops on every source connection and TCP pushes back on the
  senders; ``room_again`` (any thread) starts it again.
- Limits: so many connections in all. When they are all taken, a newcomer takes the place of the oldest connection that
  has never sent a whole tuple in ten seconds; else it is refused. Both are counted.
- A read is stamped with its time of arrival once, as it comes out of the socket.

Everything here runs on the I/O thread, which the engine owns; only what says so may be called from another.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from threading import get_ident

from catalog.config.models import TcpSink, TcpSource
from catalog.errors import AuroraError
from catalog.network import Network, Output, Stream
from router.codecs import DECODERS, ENCODERS
from router.codecs.base import Decoder, Intake, Reason, Received
from router.codecs.frames import load_writers
from router.connection import SinkConnection, SourceConnection
from router.dead_letters import DeadLetters
from router.named import History, NamedReader
from router.sessions import Desk, SourceSession, newest
from router.subscribers import Outlet, Wake
from storage.admission import Entry
from storage.train import NO_WATERMARK, Train

log = logging.getLogger("aurorad.router")

READ_BYTES = 1024**2
"""At most so much of one connection in a turn of the loop. Four times uvloop's own size: the daemon spends 520 ns of
CPU a row of ndjson with it, and 700 with 256 KiB."""

DECODE_BESIDE_BYTES = 64 * 1024
"""From here on a read is decoded on the decode thread. Beside one busy sender, a second one that sends a row every 2 ms
then has a p50 of 0.2 ms; with decoding on the I/O thread it waits for whole megabytes, 8 ms and more."""

SPEAK_WITHIN_NS = 10 * 10**9
FLUSH_POLL_SECONDS = 0.002

Admit = Callable[[int, Train], None]
Connection = SourceConnection | SinkConnection


class ListenError(AuroraError):
    """A listener that cannot be opened; says which one and why."""


@dataclass(frozen=True)
class Limits:
    line_bytes: int = 1024**2
    batch_bytes: int = 16 * 1024**2
    connections: int = 1_000
    dead_letters: int = 1_000


@dataclass
class SourcePort:
    """One stream's way in: what its connections share, and their counts. Owner: the I/O thread."""

    stream: Stream
    intake: Intake
    decoder: type[Decoder]
    received: int = 0  # tuples, good and bad
    received_bytes: int = 0
    connections: int = 0
    rejected: dict[Reason, int] = field(default_factory=dict)
    duplicates: int = 0  # tuples that a client sent again

    def make_decoder(self) -> Decoder:
        return self.decoder(self.intake)


class Server:
    """``admit`` takes a stream's number and a train, ``has_room`` says whether more may come, ``on_blocked`` hears
    that an output's reader holds its boxes up (see subscribers.py)."""

    def __init__(
        self,
        network: Network,
        loop: asyncio.AbstractEventLoop,
        admit: Admit,
        has_room: Callable[[], bool],
        *,
        limits: Limits | None = None,
        on_blocked: Callable[[int, bool], None] | None = None,
        now_ns: Callable[[], int] = time.time_ns,
        decode_beside_bytes: int = DECODE_BESIDE_BYTES,
    ) -> None:
        self.limits = limits or Limits()
        self.now_ns = now_ns
        self.decode_beside_bytes = decode_beside_bytes
        self.read_buffer = memoryview(bytearray(READ_BYTES))
        self.heartbeat: Callable[[int, int], None] = lambda stream, event_ns: None  # a sender has come this far
        self.dead_letters = DeadLetters(self.limits.dead_letters)
        self.refused_connections = 0
        self.evicted_connections = 0
        self.is_held = False  # no room: nothing is read, but for streams that overflow
        self.overflows: frozenset[int] = frozenset()  # streams that are read also while memory is full
        self.takes_overflow: Callable[[], bool] = lambda: True
        self.is_stopped = False
        self._network = network
        self._loop = loop
        self._admit = admit
        self._has_room = has_room
        self._wake = Wake(loop)
        self._decode_thread = ThreadPoolExecutor(1, "aurorad-decode")
        self._decoding = 0
        self._is_warm = False
        self._listeners: dict[str, asyncio.Server] = {}
        self.addresses: dict[str, tuple[str, int]] = {}  # by listener, once started
        self._connections: dict[Connection, int] = {}  # when it came, oldest first
        self._history_thread = ThreadPoolExecutor(1, "aurorad-history")
        self.desk: Desk | None = None  # who keeps account of numbered batches
        self._sessions: dict[tuple[int, str], SourceSession] = {}  # by stream and source: who speaks for it
        self.ports = [_make_port(s, self.limits) for s in network.streams]
        self.outlets = [self._make_outlet(o, on_blocked) for o in network.outputs]

    def _make_outlet(self, output: Output, on_blocked: Callable[[int, bool], None] | None) -> Outlet:
        sink = output.sink
        if not isinstance(sink, TcpSink):
            return Outlet(output.number, output.name)
        return Outlet(
            output.number,
            output.name,
            encoder=ENCODERS[sink.format](output.schema, sink.timestamps),
            wake=self._wake,
            buffer_bytes=sink.buffer_bytes,
            when_slow=sink.when_slow,
            on_blocked=on_blocked,
        )

    # -- life ---------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open every listener, or none: ListenError names the one that cannot be."""
        self._wake.thread_id = get_ident()
        try:
            # Readers first: a tuple that comes in at once finds whoever waits for it.
            for output in self._network.outputs:
                if isinstance(output.sink, TcpSink):
                    outlet = self.outlets[output.number]
                    await self._listen(f"output {output.name}", output.sink.tcp, partial(SinkConnection, self, outlet))
            for port in self.ports:
                source = port.stream.source
                if isinstance(source, TcpSource):
                    name = f"stream {port.stream.name}"
                    await self._listen(name, source.tcp, partial(SourceConnection, self, port), source.receive_bytes)
        except ListenError:
            await self.close()
            raise

    async def _listen(
        self, name: str, at: object, make: Callable[[], Connection], receive_bytes: int | None = None
    ) -> None:
        host, port = at.host, at.port  # type: ignore[attr-defined]
        try:
            listener = await self._loop.create_server(make, host, port, backlog=1024)
        except OSError as error:
            why = "the port is in use" if error.errno == errno.EADDRINUSE else error.strerror or str(error)
            raise ListenError(f"{name}: cannot listen on {at}: {why}") from error
        if receive_bytes is not None:  # connections inherit it from their listener
            for open_socket in listener.sockets:
                open_socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self._listeners[name] = listener
        self.addresses[name] = listener.sockets[0].getsockname()[:2]

    def address(self, listener: str) -> tuple[str, int]:
        """Where ``"stream trades"`` or ``"output alerts"`` really listens, once started (port 0 in the file: any)."""
        return self.addresses[listener]

    def stop_reading(self) -> None:
        """No new connections, no further read; what has been read is still decoded and admitted."""
        self.is_stopped = True
        for name, listener in self._listeners.items():
            if name.startswith("stream "):
                listener.close()
        self._hold_sources()

    @property
    def is_decoding(self) -> bool:
        """Something that was read is not admitted yet. Any thread."""
        return self._decoding > 0

    async def flush(self, timeout_s: float) -> bool:
        """Wait until what was read is admitted and what was delivered is in the kernel; False when time ran out."""
        deadline = self._loop.time() + timeout_s
        while self._decoding or not all(outlet.is_drained for outlet in self.outlets):
            if self._loop.time() >= deadline:
                return False
            await asyncio.sleep(FLUSH_POLL_SECONDS)
        return True

    async def close(self) -> None:
        self.is_stopped = True
        self._wake.closed = True
        for listener in self._listeners.values():
            listener.close()
        for outlet in self.outlets:
            outlet.close()
        for connection in list(self._connections):
            if isinstance(connection, SourceConnection):
                connection.abort()
        await asyncio.sleep(0)  # transports close in the loop's next turn
        for connection in list(self._connections):
            connection.abort()
        await asyncio.sleep(0)
        self._decode_thread.shutdown(wait=True)
        self._history_thread.shutdown(wait=True)

    # -- connections --------------------------------------------------------------------------------------------------

    def opened(self, connection: Connection) -> bool:
        """Whether it may stay."""
        if self.is_stopped or (len(self._connections) >= self.limits.connections and not self._evict()):
            self.refused_connections += 1
            connection.abort()
            return False
        self._connections[connection] = self.now_ns()
        if isinstance(connection, SourceConnection):
            connection.port.connections += 1
            if self.is_held:
                # Not at once: uvloop starts to read after connection_made, whatever was asked for in it.
                self._loop.call_soon(lambda: connection.hold(self.holds(connection.port.stream.number)))
        elif not self._is_warm:
            # Someone will read: load the writers of long trains now, and not on a worker in the middle of the first.
            self._is_warm = True
            self._decode_thread.submit(load_writers)
        return True

    def _evict(self) -> bool:
        """Make room by closing the oldest connection that has had its time and never said anything whole."""
        now_ns = self.now_ns()
        for connection, came_ns in self._connections.items():
            if now_ns - came_ns < SPEAK_WITHIN_NS:
                return False
            if not connection.has_spoken:
                self.evicted_connections += 1
                self._forget(connection)
                connection.abort()
                return True
        return False

    def closed(self, connection: Connection) -> None:
        self._forget(connection)

    def _forget(self, connection: Connection) -> None:
        if self._connections.pop(connection, None) is not None and isinstance(connection, SourceConnection):
            connection.port.connections -= 1
            session = connection.session
            if session is not None and session.hello is not None and self._sessions.get(session.key) is session:
                del self._sessions[session.key]

    # -- tuples in ----------------------------------------------------------------------------------------------------

    def take(self, connection: SourceConnection, received: Received) -> None:
        port = connection.port
        for train in received.trains:
            if train.count:
                self._admit(port.stream.number, train)
            elif train.watermark_ns != NO_WATERMARK:
                self.heartbeat(port.stream.number, train.watermark_ns)
        if received.rejects:
            self.take_rejects(connection, received)
            if received.fatal:
                connection.refuse(received.rejects[-1].message)
        self._look_for_room()

    def take_rejects(self, connection: SourceConnection, received: Received) -> None:
        port = connection.port
        for reject in received.rejects:
            port.rejected[reject.reason] = port.rejected.get(reject.reason, 0) + reject.tuples
        self.dead_letters.add(self.now_ns(), port.stream.name, connection.peer, received.rejects)

    def _look_for_room(self) -> None:
        if self.is_held:
            if self.overflows and not self.takes_overflow():
                self._hold_sources()
        elif not self._has_room():
            self._hold_sources()

    # -- numbered batches, named readers ------------------------------------------------------------------------------

    def speaks_for(self, session: SourceSession) -> None:
        """This session's connection is the one that its source speaks by."""
        before = self._sessions.get(session.key)
        self._sessions[session.key] = session
        if before is not None and before is not session:
            before.replaced()

    def submit(self, stream: int, train: Train, entry: Entry) -> None:
        assert self.desk is not None
        self.desk.submit(stream, train, entry)
        self._look_for_room()

    @property
    def refuses(self) -> bool:
        return self.desk is not None and bool(self.desk.refusal)

    def told(self, committed: Sequence[tuple[int, Entry]], refused: Sequence[tuple[int, Entry, int, str]]) -> None:
        """Any thread: what became of numbered batches."""
        if not self._wake.closed:
            self._loop.call_soon_threadsafe(self._tell, newest(committed), list(refused))

    def _tell(self, committed: dict[tuple[int, str], Entry], refused: list[tuple[int, Entry, int, str]]) -> None:
        for key, entry in committed.items():
            if (session := self._sessions.get(key)) is not None:
                session.committed(entry.epoch, entry.sequence)
        for stream, entry, tuples, why in refused:
            port = self.ports[stream]
            port.rejected[Reason.REFUSED] = port.rejected.get(Reason.REFUSED, 0) + tuples
            if (session := self._sessions.get((stream, entry.source))) is not None:
                session.refused(entry.sequence, why)

    def named_reader(
        self, outlet: Outlet, name: str, transport: asyncio.WriteTransport, history: History
    ) -> NamedReader:
        reader = NamedReader(name, transport, history, outlet.encoder, self._loop, self._history_thread)
        outlet.attach_named(reader)
        return reader

    def decode_beside(self, work: Callable[[], Received], done: Callable[[Received], None]) -> None:
        """Run ``work`` on the decode thread and ``done`` with its result back here."""
        self._decoding += 1
        future = self._decode_thread.submit(work)
        future.add_done_callback(partial(self._decoded, done))

    def _decoded(self, done: Callable[[Received], None], future: Future[Received]) -> None:
        """On the decode thread."""
        if not self._wake.closed:  # a server that is closed has no one left to give it to
            self._loop.call_soon_threadsafe(self._admit_decoded, done, future)

    def _admit_decoded(self, done: Callable[[Received], None], future: Future[Received]) -> None:
        self._decoding -= 1
        done(future.result())

    # -- back-pressure ------------------------------------------------------------------------------------------------

    def room_again(self) -> None:
        """Any thread. There is room: read on."""
        if not self._wake.closed:
            self._loop.call_soon_threadsafe(self._release_sources)

    def holds(self, stream: int) -> bool:
        """Whether this stream is not read now. Any thread."""
        if not self.is_held or self.is_stopped:
            return self.is_held
        return stream not in self.overflows or not self.takes_overflow()

    def _hold_sources(self) -> None:
        self.is_held = True
        for connection in self._connections:
            if isinstance(connection, SourceConnection) and self.holds(connection.port.stream.number):
                connection.hold(True)

    def _release_sources(self) -> None:
        if self.is_stopped:
            return
        self.is_held = not self._has_room()
        for connection in list(self._connections):
            if isinstance(connection, SourceConnection) and not self.holds(connection.port.stream.number):
                connection.hold(False)


def _make_port(stream: Stream, limits: Limits) -> SourcePort:
    source = stream.source
    tcp = source if isinstance(source, TcpSource) else None
    intake = Intake(
        stream.schema,
        unit=tcp.timestamps if tcp else "ns",
        line_bytes=limits.line_bytes,
        batch_bytes=limits.batch_bytes,
    )
    return SourcePort(stream, intake, DECODERS[tcp.format if tcp else "ndjson"])
