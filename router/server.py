"""The server: all listeners and connections, limits, and back-pressure.

- Each stream with a TCP source and each output with a TCP sink has one listener. Many connections may feed a stream.
- Back-pressure: when the engine has no room for a stream, the server stops reading from its connections, and TCP slows
  the senders down. The server resumes when the engine reports room (``StreamEntrance.when_room``).
- Limit: a total number of connections (``router/places.py``). At the limit, a new connection replaces one whose peer
  may be gone or has sent nothing. Without such a one the new connection is refused. Both are counted.
- Every read gets one time of arrival: when the event loop found it, less the time that its bytes waited in the socket
  (``router/edge/socket_hold``).
- A stream that sheds is read on while decoding is full. Rows are then dropped undecoded (``router/edge``).

Everything here runs on the I/O thread, which the daemon owns, except the methods that say otherwise.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from threading import get_ident
from time import monotonic_ns

from catalog.config.models import FileSource, StdinSource, TcpSink, TcpSource
from catalog.config.units import Address
from catalog.errors import ListenError
from catalog.network import Network, Stream
from router.access.tls import ServerTls
from router.boundary import Origin, OutputHistory, StreamEntrance
from router.codecs import CODECS
from router.codecs.base import Decoder, Intake, Reason, Received, Strings
from router.codecs.encode.frames import load_writers
from router.connection import SourceConnection, peer_name
from router.dead_letters import DeadLetters
from router.edge.gauge import EdgeGauge
from router.limits import Limits
from router.listeners import Listeners, ReservedListener, WantedListener
from router.named_reader import NamedReader
from router.places import ConnectionPlaces
from router.reader_connection import SinkConnection
from router.source_rejections import StreamRejections
from router.source_session import SourceSession, last_of_each_source
from router.subscribers import Outlet, Wake
from router.undecoded import UndecodedBytes
from storage.admission import BatchNumber
from storage.train import NO_WATERMARK, Train

log = logging.getLogger("aurorad.router")

READ_BYTES = 1024**2
"""The most that one connection may read in one turn of the event loop. It is four times uvloop's own size: the daemon
spends 520 ns of CPU a row of ndjson with it, and 700 ns with 256 KiB."""

DECODE_THREAD_BYTES = 64 * 1024
"""A read of this size or more is decoded on the decode thread. Beside one busy sender, a second sender with a row every
2 ms then has a p50 of 0.2 ms. With decoding on the I/O thread it would wait for whole megabytes, 8 ms and more."""

FLUSH_POLL_SECONDS = 0.002

LOOP_LATE_NS = 2_000_000
"""From here on a read counts from the turn of the event loop that found it: the loop's own clock has milliseconds."""

Connection = SourceConnection | SinkConnection


@dataclass
class SourcePort:
    """What the connections of one stream share: the codec's settings, and their counts. Owner: the I/O thread; of a
    stream whose source is a file, the thread that reads it."""

    stream: Stream
    intake: Intake
    decoder: type[Decoder]
    format: str = "ndjson"  # the decoder's name
    is_lines: bool = False  # a row is a line
    edge: EdgeGauge = field(default_factory=EdgeGauge)
    received: int = 0  # tuples, good and bad
    received_bytes: int = 0
    connections: int = 0
    rejected: dict[Reason, int] = field(default_factory=dict)
    duplicates: int = 0  # tuples of batches that a client sent again
    rejections: StreamRejections = field(default_factory=StreamRejections)  # for the clients that sent them
    is_gone: bool = False  # a change of the network has removed the stream: nothing is admitted any more

    def make_decoder(self) -> Decoder:
        return self.decoder(self.intake)


@dataclass(frozen=True)
class ConnectionDoors:
    """What a listener makes of a connection. ``router/access`` has others, for listeners with users."""

    source: Callable[[Server, SourcePort], SourceConnection] = SourceConnection
    sink: Callable[[Server, Outlet], SinkConnection] = SinkConnection
    tls: ServerTls | None = None


class Server:
    """``entrance`` takes trains into the network. ``outlets`` hold the readers, by output number."""

    def __init__(
        self,
        network: Network,
        wake: Wake,
        entrance: StreamEntrance,
        outlets: Sequence[Outlet],
        *,
        limits: Limits | None = None,
        now_ns: Callable[[], int] = time.time_ns,
        decode_thread_bytes: int = DECODE_THREAD_BYTES,
        dead_letters: DeadLetters | None = None,
        edge_wait_ns: Mapping[int, int] | None = None,
        doors: ConnectionDoors | None = None,
    ) -> None:
        """``edge_wait_ns`` holds the streams of which rows may be dropped undecoded, and how long their rows may wait
        for the decoder."""
        self.limits = limits or Limits()
        self.now_ns = now_ns
        self.decode_thread_bytes = decode_thread_bytes
        self.read_buffer = memoryview(bytearray(READ_BYTES))
        self.dead_letters = DeadLetters(self.limits.dead_letters) if dead_letters is None else dead_letters
        self.is_stopped = False
        self.entrance = entrance
        self._network = network
        self._loop = wake.loop
        self._wake = wake
        self._decode_thread = ThreadPoolExecutor(1, "aurorad-decode")
        self._decoding = 0
        self._has_loaded_writers = False
        self._doors = doors or ConnectionDoors()
        self._listeners = Listeners(wake.loop, self.limits.backlog, self._doors.tls)
        self.places: ConnectionPlaces[Connection] = ConnectionPlaces(self.limits.connections, now_ns, wake.loop)
        self.undecoded = UndecodedBytes(self.limits.undecoded_bytes, self.later)
        self._history_thread = ThreadPoolExecutor(1, "aurorad-history")
        self._sessions: dict[tuple[int, str], SourceSession] = {}  # by stream and source: the one that serves it
        self.ports = [_make_port(s, self.limits) for s in network.streams]
        for number, wait_ns in (edge_wait_ns or {}).items():
            self.ports[number].edge = EdgeGauge(sheds=True, wait_ns=wait_ns)
        self.outlets = outlets
        entrance.when_room(self.room_again)

    # -- life ---------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open all listeners. When one cannot be opened, close all and raise a ListenError that names it."""
        self._wake.thread_id = get_ident()
        try:
            for wanted in self._wanted_listeners():
                await self._listeners.open(wanted)
        except ListenError:
            await self.close()
            raise

    def _wanted_listeners(self) -> list[WantedListener]:
        """Return the listeners of the network. Outputs come first: a reader that connects in time gets the very first
        tuple."""
        outputs, ports = self._network.outputs, self.ports
        sinks = [(o, o.sink) for o in outputs if isinstance(o.sink, TcpSink)]
        sources = [(p, p.stream.source) for p in ports if isinstance(p.stream.source, TcpSource)]
        return [
            *(
                WantedListener(f"output {o.name}", sink.tcp, partial(self._doors.sink, self, self.outlets[o.number]))
                for o, sink in sinks
            ),
            *(
                WantedListener(
                    f"stream {p.stream.name}", source.tcp, partial(self._doors.source, self, p), source.receive_bytes
                )
                for p, source in sources
            ),
        ]

    @property
    def addresses(self) -> dict[str, tuple[str, int]]:
        """By listener, once started."""
        return self._listeners.addresses

    def address(self, listener: str) -> tuple[str, int]:
        """Return the address of ``"stream trades"`` or ``"output alerts"``, once started. (Port 0 in the file means
        any free port.)"""
        return self.addresses[listener]

    def stop_reading(self) -> None:
        """Accept no sender and read nothing more. What has been read is still decoded and admitted."""
        self.is_stopped = True
        self._listeners.close("stream ")
        self._pause_sources()

    @property
    def is_decoding(self) -> bool:
        """Whether some bytes are read, but their tuples are not admitted yet. Any thread."""
        return self._decoding > 0

    async def flush(self, timeout_s: float) -> bool:
        """Wait until all that was read is admitted and all that was delivered is in the kernel. False on timeout."""
        deadline = self._loop.time() + timeout_s
        while self._decoding or not all(outlet.is_drained for outlet in self.outlets):
            if self._loop.time() >= deadline:
                return False
            await asyncio.sleep(FLUSH_POLL_SECONDS)
        return True

    async def close(self) -> None:
        self.is_stopped = True
        self._wake.closed = True
        self._listeners.close()
        for outlet in self.outlets:
            outlet.close()
        for connection in self.places:
            if isinstance(connection, SourceConnection):
                connection.abort()
        await asyncio.sleep(0)  # transports close in the loop's next turn
        for connection in self.places:
            connection.abort()
        await asyncio.sleep(0)
        self._decode_thread.shutdown(wait=True)
        self._history_thread.shutdown(wait=True)

    # -- a change of the network --------------------------------------------------------------------------------------

    def reserve(self, network: Network) -> list[ReservedListener]:
        """Bind the addresses that another network needs and this one has not. Raises ListenError, and has none then.

        Any thread. Clients may connect from now on; they are accepted after the change.
        """
        return self._listeners.reserve(tcp_ends(network))

    def adopt(
        self,
        network: Network,
        entrance: StreamEntrance,
        outlets: Sequence[Outlet],
        streams: Mapping[int, int],
        edge_wait_ns: Mapping[int, int],
    ) -> None:
        """Serve another network. Connections to ports and outlets that it keeps stay open; the others are closed.

        ``streams`` leads from its numbers to the present ones. Nothing is admitted meanwhile.
        """
        ports = [
            self.ports[streams[s.number]] if s.number in streams else _make_port(s, self.limits)
            for s in network.streams
        ]
        for stream, port in zip(network.streams, ports, strict=True):
            port.stream = stream
            sheds = stream.number in edge_wait_ns
            if port.edge.sheds != sheds:  # its connections have an inbox for it, or have none: clients come again
                port.edge.sheds, port.edge.share = sheds, 1.0
                self._close_sources(port)
            port.edge.wait_ns = edge_wait_ns.get(stream.number, port.edge.wait_ns)
        kept = {id(part) for part in (*ports, *outlets)}
        gone = [port for port in self.ports if id(port) not in kept]
        closed = [outlet for outlet in self.outlets if id(outlet) not in kept]
        for number, outlet in enumerate(outlets):
            outlet.number = number
        self._network, self.ports, self.outlets, self.entrance = network, ports, outlets, entrance
        for port in gone:
            port.is_gone = True
            self._close_sources(port)
        for outlet in closed:
            outlet.close()
        self._sessions = {s.key: s for s in self._sessions.values() if not s.is_gone}
        self._listeners.adopt(self._wanted_listeners())

    def _close_sources(self, port: SourcePort) -> None:
        for connection in list(self.places):
            if isinstance(connection, SourceConnection) and connection.port is port:
                connection.close()

    async def accept(self, reserved: Sequence[ReservedListener]) -> None:
        """Accept connections at the addresses that were reserved for this network. After ``adopt``."""
        for wanted in self._wanted_listeners():
            for found in reserved:
                if found.name == wanted.name:
                    await self._listeners.open(wanted, found)
        self._resume_sources()

    # -- connections --------------------------------------------------------------------------------------------------

    def register(self, connection: Connection) -> bool:
        """Add a new connection. False when it is refused: the server stops, or all places are taken."""
        if self.is_stopped or not self.places.take(connection, self._evict):
            self.places.refused += not self.is_stopped
            connection.abort()
            return False
        if isinstance(connection, SourceConnection):
            connection.port.connections += 1
            if self.is_paused(connection.port.stream.number):
                # Not at once: uvloop starts to read after connection_made, even when the protocol pauses reading in it.
                self._loop.call_soon(
                    lambda: connection.set_paused_by_server(self.is_paused(connection.port.stream.number))
                )
        elif not self._has_loaded_writers:
            # The first reader: import the writers of long trains now, and not on a worker in the middle of a train.
            self._has_loaded_writers = True
            self._decode_thread.submit(load_writers)
        return True

    def _evict(self, connection: Connection) -> None:
        """Close a connection at once, to make room."""
        self.unregister(connection)
        connection.abort()

    def reader_ended_input(self, connection: Connection) -> None:
        """Note that a reader has closed its sending side: it reads on, or it is gone."""
        self.places.input_ended(connection)

    def unregister(self, connection: Connection) -> None:
        """Remove a connection. A second call has no effect."""
        if self.places.leave(connection) and isinstance(connection, SourceConnection):
            connection.port.connections -= 1
            session = connection.session
            if session is not None and session.hello is not None and self._sessions.get(session.key) is session:
                del self._sessions[session.key]

    # -- tuples in ----------------------------------------------------------------------------------------------------

    def take(self, connection: SourceConnection, received: Received, lost: int = 0) -> None:
        """Admit the trains of a plain connection, and record its rejects. ``lost`` rows were dropped around them."""
        if connection.port.is_gone:
            return
        stream, edge = connection.port.stream.number, connection.port.edge
        for train in received.trains:
            if edge.share < 1.0 and not connection.port.is_lines:
                train, gone = edge.thin(train)
                connection.port.received -= gone  # the gauge counts them
                lost += gone
            if train.count:
                origin = connection.origin if not lost else connection.origin._replace(lost=lost)
                self.entrance.admit(stream, train, origin)
                lost = 0
            elif train.watermark_ns != NO_WATERMARK:
                self.entrance.heartbeat(stream, train.watermark_ns)
        if received.rejects:
            self.record_rejects(connection, received)
            if received.fatal:
                connection.refuse(received.rejects[-1].message)
        self._pause_if_full(stream)

    def record_rejects(self, connection: SourceConnection, received: Received) -> None:
        """Count the rejects by reason, and keep them as dead letters."""
        port = connection.port
        for reject in received.rejects:
            port.rejected[reject.reason] = port.rejected.get(reject.reason, 0) + reject.tuples
        self.dead_letters.add(self.now_ns(), port.stream.name, connection.peer, received.rejects)

    def admit(self, stream: int, train: Train, origin: Origin) -> None:
        """Admit a batch of a session."""
        self.entrance.admit(stream, train, origin)
        self._pause_if_full(stream)

    def _pause_if_full(self, stream: int) -> None:
        if not self.entrance.may_read(stream):
            self._pause_sources()

    # -- numbered batches, named readers ------------------------------------------------------------------------------

    def claim_source(self, session: SourceSession) -> None:
        """Let this session serve its source, and close the session that did so before."""
        before = self._sessions.get(session.key)
        self._sessions[session.key] = session
        if before is not None and before is not session:
            before.close_as_replaced()

    def is_connected(self, kind: str, place: str, name: str) -> bool:
        """Tell whether a reader or a source is connected under a name. Any thread; a snapshot."""
        if kind == "reader":
            readers = [reader for outlet in self.outlets if outlet.name == place for reader in outlet.named(name)]
            return any(not reader.may_be_gone for reader in readers)
        return any(port.stream.name == place and (port.stream.number, name) in self._sessions for port in self.ports)

    @property
    def refuses_batches(self) -> bool:
        """Whether the log refuses numbered batches now."""
        return bool(self.entrance.refusal)

    def batches_settled(
        self, committed: Sequence[tuple[int, BatchNumber]], refused: Sequence[tuple[int, BatchNumber, int, str]]
    ) -> None:
        """Answer the clients whose numbered batches are on disk or were refused. Any thread."""
        if not self._wake.closed:
            self._loop.call_soon_threadsafe(self._answer_sessions, last_of_each_source(committed), list(refused))

    def _answer_sessions(
        self, committed: dict[tuple[int, str], BatchNumber], refused: list[tuple[int, BatchNumber, int, str]]
    ) -> None:
        for key, batch in committed.items():
            if (session := self._sessions.get(key)) is not None:
                session.send_ack(batch.epoch, batch.sequence)
        for stream, batch, tuples, why in refused:
            port = self.ports[stream]
            port.rejected[Reason.REFUSED] = port.rejected.get(Reason.REFUSED, 0) + tuples
            if (session := self._sessions.get((stream, batch.source))) is not None:
                session.send_refusal(batch.sequence, why)

    def history_grew(self, output: int) -> None:
        """Let an output's named readers read more. Any thread."""
        self.outlets[output].history_grew()

    def sink_format(self, output: int) -> str:
        """Return the format of an output that has a listener."""
        sink = self._network.outputs[output].sink
        assert isinstance(sink, TcpSink)
        return sink.format

    def named_reader(
        self, outlet: Outlet, name: str, transport: asyncio.WriteTransport, history: OutputHistory
    ) -> NamedReader:
        """Let this connection read under a name. The one that did so before learns that it is replaced."""
        for before in outlet.named(name):
            log.warning("output %s: %s took over the reader %s", outlet.name, peer_name(transport), name)
            before.close_as_replaced()
            outlet.detach_named(before)
        reader = NamedReader(
            name, transport, history, outlet.encoder, self._loop, self._history_thread,
            lambda: outlet.history_read_bytes,
        )  # fmt: skip
        outlet.attach_named(reader)
        return reader

    def decode_on_thread(self, work: Callable[[], Received], done: Callable[[Received], None]) -> None:
        """Run ``work`` on the decode thread, then ``done`` with its result on the I/O thread."""
        self._decoding += 1
        future = self._decode_thread.submit(work)
        future.add_done_callback(partial(self._decoded, done))

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        """Call on the I/O thread after this time."""
        self._loop.call_later(seconds, call)

    def read_begun_ns(self) -> int:
        """Return when the event loop found the bytes that are read now: its turn may have begun earlier."""
        turn_ns = monotonic_ns() - int(self._loop.time() * 1e9)
        return self.now_ns() - (turn_ns if turn_ns > LOOP_LATE_NS else 0)

    def _decoded(self, done: Callable[[Received], None], future: Future[Received]) -> None:
        """Bring the result to the I/O thread. On the decode thread."""
        if not self._wake.closed:  # after that nothing is admitted any more
            self._loop.call_soon_threadsafe(self._admit_decoded, done, future)

    def _admit_decoded(self, done: Callable[[Received], None], future: Future[Received]) -> None:
        self._decoding -= 1
        done(future.result())

    # -- back-pressure ------------------------------------------------------------------------------------------------

    def room_again(self) -> None:
        """Resume reading where there is room. Any thread."""
        if not self._wake.closed:
            self._loop.call_soon_threadsafe(self._resume_sources)

    def is_paused(self, stream: int) -> bool:
        """Tell whether the server does not read this stream now. Any thread."""
        return self.is_stopped or not self.entrance.may_read(stream)

    def _pause_sources(self) -> None:
        for connection in self.places:
            if isinstance(connection, SourceConnection) and self.is_paused(connection.port.stream.number):
                connection.set_paused_by_server(True)

    def _resume_sources(self) -> None:
        if self.is_stopped:
            return
        for connection in self.places:
            if isinstance(connection, SourceConnection) and not self.is_paused(connection.port.stream.number):
                connection.set_paused_by_server(False)


def tcp_ends(network: Network) -> dict[str, Address]:
    """Return the addresses of a network, by listener."""
    found = {f"output {o.name}": o.sink.tcp for o in network.outputs if isinstance(o.sink, TcpSink)}
    return found | {f"stream {s.name}": s.source.tcp for s in network.streams if isinstance(s.source, TcpSource)}


def _make_port(stream: Stream, limits: Limits) -> SourcePort:
    source, codec, unit = stream.source, "ndjson", "ns"
    if isinstance(source, TcpSource | FileSource | StdinSource):
        codec = source.format if isinstance(source, TcpSource) else source.codec
        unit = source.timestamps
    strings = Strings(limits.pool_bytes)
    intake = Intake(
        stream.schema, unit=unit, line_bytes=limits.line_bytes, batch_bytes=limits.batch_bytes, strings=strings
    )
    return SourcePort(stream, intake, CODECS[codec].decoder, codec, CODECS[codec].is_lines)
