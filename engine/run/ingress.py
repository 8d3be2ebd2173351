"""The one door in: every train that enters the network passes here, whether from a socket, Spark, a client or code.

    admit            tap -> room -> count -> log, or without a log _enter
    enter_logged     a train that the log has on disk, or that a replay reads -> _enter
    _enter           event time -> counts -> drops -> queues -> scheduler -> outputs right behind the stream

There is no third way. ``Origin`` (``router/boundary.py``) holds everything in which the callers differ.

Room. A caller that can wait (code in this process) waits here. A socket or a bulk job asks ``may_read`` before it reads
on, and listens for room (``when_room``). A stream may be read while the memory budget has room (or the stream sheds
what does not fit), the log takes more, and no output right behind the stream is blocked by a slow reader.

Order. One lock covers stamping and queueing, because a stream's trains must pass both in the same order, even if
several threads feed the stream. Delivery to outputs right behind a stream happens outside of the lock.

Threads: any, all at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Condition, Lock
from typing import NamedTuple, Protocol

from catalog.network import Arc, Network, Stream
from engine.operators.boxes.filter import Filter
from engine.run.constant_index import ConstantIndex, IndexedFilter, are_many, indexable
from engine.run.idle_path import IdlePath
from engine.run.taps import Taps, offer
from engine.run.worker import WorkerPool
from load_shedder.apply.shedding import Keep
from router.boundary import CODE, TIME, Origin
from router.dead_letters import DeadLetters, skew_reject
from router.event_time import EventTime, StreamClock
from router.routes import Routes
from scheduler.loop import SchedulerLoop
from storage.admission import BatchNumber
from storage.manager import StorageManager
from storage.source_numbers import SourceNumbers
from storage.train import NO_WATERMARK, Train

BULK_BYTES = 2 * 1024**2
"""Bulk rows enter only while less than this waits in the queues, so a live tuple waits behind no more than this."""


class TrainLog(Protocol):
    """The log as the ingress sees it (``engine/daemon/durable``)."""

    numbers: SourceNumbers

    @property
    def has_room(self) -> bool: ...

    @property
    def refusal(self) -> str:
        """The reason why the log takes nothing now; empty when it does."""

    def submit(self, stream: int, train: Train, batch: BatchNumber | None) -> None:
        """Write a train to disk, then hand it to ``Ingress.enter_logged``."""


class ConnectionPoint(Protocol):
    """The history of a place (``storage/history``)."""

    def append(self, train: Train, entry: int) -> None:
        """Keep a train. One thread at a time, in the order of the place. ``entry``: trains that entered before it."""


class NoteUndecoded(Protocol):
    """Notes rows that were dropped undecoded: ``lost`` of them, about as old as the tuples of the train."""

    def __call__(self, arcs: Sequence[int], train: Train, lost: int) -> None: ...


class StreamWays(NamedTuple):
    """The arcs right behind one stream. It never changes; a new shed plan replaces it."""

    queued: tuple[int, ...]  # to boxes
    outputs: tuple[int, ...]  # straight to outputs
    dropping: tuple[tuple[Arc, Keep], ...]  # arcs on which the shed plan drops
    constants: ConstantIndex | None  # of more arcs to boxes
    overflow: tuple[tuple[Arc, Keep], ...]  # used instead of both while memory is full, if the stream sheds


class Ingress:
    """``overflow`` maps a stream that does not wait for room to its arcs to boxes, each with the function that counts
    and drops the tuples that do not fit. Without ``event_time`` no stream is stamped, and without a ``log`` a train
    enters at once."""

    def __init__(
        self,
        network: Network,
        storage: StorageManager,
        routes: Routes,
        loop: SchedulerLoop,
        pool: WorkerPool,
        taps: Taps,
        idle_paths: Sequence[IdlePath | None],
        overflow: Mapping[int, tuple[tuple[Arc, Keep], ...]],
        event_time: EventTime | None,
        log: TrainLog | None,
        now_ns: Callable[[], int],
        dead_letters: DeadLetters | None = None,
        note_undecoded: NoteUndecoded | None = None,
        points: Mapping[int, ConnectionPoint] | None = None,
    ) -> None:
        streams = len(network.streams)
        self._network = network
        self._storage = storage
        self._routes = routes
        self._loop = loop
        self._pool = pool
        self._taps = taps
        self._idle_paths = idle_paths
        self._overflow = overflow
        self._event_time = event_time
        self._clocks = event_time.clocks if event_time is not None else [None] * streams
        self._log = log
        self._now_ns = now_ns
        self._dead_letters = dead_letters
        self._note_undecoded = note_undecoded
        self._points = points or {}  # by stream
        self.entered = 0  # trains
        self._gated: frozenset[int] = frozenset()  # arcs that a replay of history feeds
        self._sheds: Mapping[int, Keep] = {}
        self.numbers = SourceNumbers(streams) if log is None else log.numbers
        self._order = Lock()
        self._indexes: dict[int, tuple[tuple[int, ...], ConstantIndex | None]] = {}  # by stream, for these arcs
        self._ways = [self._make_ways(stream, {}) for stream in network.streams]
        self.received = [0] * streams  # tuples from code or from a replay; ports and bulk jobs count theirs
        self.admitted = [0] * streams  # tuples
        self.rejected_skew = [0] * streams  # tuples stamped too far ahead: received = admitted + these
        self.latest: list[Train | None] = [None] * streams  # each stream's last train: the shedder reads its values
        self.recent: deque[tuple[int, int, int]] | None = None  # arrival, stream and tuples of each train, if wanted
        self.alarm: Callable[[], None] | None = None  # set while the monitor dozes: the next train calls it, once
        self._room = Condition()
        self._listeners: list[Callable[[], None]] = []
        self._direct = [frozenset(self._ways[stream.number].outputs) for stream in network.streams]
        self._all_direct = frozenset().union(*self._direct)
        self._successor: Ingress | None = None  # of the next network, once this one is replaced
        self._next_numbers: Mapping[int, int] = {}  # of streams there
        self._blocked: set[int] = set()  # outputs right behind a stream whose readers are too slow

    # -- a change of the network --------------------------------------------------------------------------------------

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Let nothing enter meanwhile: callers wait."""
        with self._order:
            yield

    def hand_over(self, successor: Ingress, streams: Mapping[int, int]) -> None:
        """Hand the counts and the listeners to the ingress of the next network. Inside ``closed``.

        A caller that waits here, or still knows this ingress, is sent on: ``streams`` leads from the numbers of the
        next network to those of this one. Tuples for a stream that is gone are dropped.
        """
        for there, here in streams.items():
            successor.received[there] = self.received[here]
            successor.admitted[there] = self.admitted[here]
            successor.rejected_skew[there] = self.rejected_skew[here]
        successor.entered = self.entered
        if successor._log is None:
            successor.numbers.take_over(self.numbers, streams)
        successor._listeners = self._listeners
        self._next_numbers = {here: there for there, here in streams.items()}
        self._successor = successor

    # -- the two entrances --------------------------------------------------------------------------------------------

    def admit(self, stream: int, train: Train, origin: Origin = CODE, *, timeout_s: float | None = None) -> bool:
        """Take a train into the network. False when there was no room in time, which only a caller that waits sees."""
        if (successor := self._successor) is not None:
            there = self._next_numbers.get(stream)
            return there is None or successor.admit(there, train, origin, timeout_s=timeout_s)
        if train.count and (watches := self._taps.streams.get(stream)):
            offer(watches, train)
        if origin.waits_for_room and not self.may_read(stream) and not self.wait_for_room(stream, timeout_s):
            return False
        received = 0 if origin.is_counted else train.count
        if origin.lost and self._note_undecoded is not None:
            self._note_undecoded(self._network.streams[stream].arcs, train, origin.lost)
        if self._log is not None:
            with self._order:  # a change of the network gives the streams of the log other numbers
                if self._successor is None:
                    self.received[stream] += received
                    self._log.submit(stream, train, origin.batch)
                    return True
            return self.admit(stream, train, origin._replace(lost=0), timeout_s=timeout_s)
        self._enter(stream, train, received, None, origin.runs_idle_plans, origin.peer)
        if origin.batch is not None:
            self.numbers.commit(stream, (origin.batch,))
        return True

    def enter_logged(self, stream: int, train: Train, logged_ns: int, *, is_replayed: bool = False) -> None:
        """Take in a train that the log has on disk. Its event time is judged by the time at which it was logged."""
        self._enter(stream, train, train.count if is_replayed else 0, logged_ns, False)

    # -- time without tuples ------------------------------------------------------------------------------------------

    def heartbeat(self, stream: int, event_ns: int) -> None:
        """Advance a stream's event time without a tuple."""
        if self._event_time is not None and (train := self._event_time.heartbeat(stream, event_ns)) is not None:
            self.admit(stream, train, TIME)

    def end(self, stream: int) -> None:
        """End a stream for good: everything behind it closes. A batch run does that, and a stop of the daemon."""
        if self._event_time is not None:
            self.admit(stream, self._event_time.end(stream), TIME)

    def source_exhausted(self, stream: int) -> None:
        """Note that a stream's source has nothing more for now. More may be brought to the stream later."""
        if self._event_time is not None:
            self._event_time.source_exhausted(stream)

    def clock(self, stream: int) -> StreamClock | None:
        """Return the clock of a stream's event time. Read without a lock."""
        return self._clocks[stream]

    # -- room ---------------------------------------------------------------------------------------------------------

    def may_read(self, stream: int) -> bool:
        """Tell whether there is room for more of this stream."""
        if (successor := self._successor) is not None:
            there = self._next_numbers.get(stream)
            return there is None or successor.may_read(there)
        if not self._storage.has_room and stream not in self._overflow:
            return False
        if self._blocked and not self._blocked.isdisjoint(self._direct[stream]):
            return False
        return self._log is None or self._log.has_room

    def has_bulk_room(self) -> bool:
        """Tell whether the queues are short enough for bulk rows. Live tuples have precedence over bulk rows."""
        storage = self._storage
        if (
            not storage.has_room
            or storage.waiting_bytes >= BULK_BYTES
            or not self._blocked.isdisjoint(self._all_direct)
        ):
            return False
        return self._log is None or self._log.has_room

    def wait_for_room(self, stream: int, timeout_s: float | None = None) -> bool:
        """Wait until there is room for more of this stream. False when there was none in time."""
        if self.may_read(stream):
            return True
        with self._room:
            return self._room.wait_for(lambda: self.may_read(stream), timeout_s)

    def wait_for_memory(self, timeout_s: float | None = None) -> bool:
        """Wait until the memory budget has room. For a replay, which reads the log and so does not need room in it."""
        with self._room:
            return self._room.wait_for(lambda: self._storage.has_room, timeout_s)

    def when_room(self, listener: Callable[[], None]) -> None:
        """Register a callable that is called whenever there may be room again, on the thread that made the room."""
        self._listeners.append(listener)

    def room_again(self) -> None:
        """Wake the callers that wait for room: memory, the log or an output may have some again. Any thread."""
        with self._room:
            self._room.notify_all()
        for listener in self._listeners:
            listener()

    def block_output(self, output: int, blocked: bool) -> None:
        """Stop reading the streams right before an output whose readers are too slow: no box between could wait."""
        if blocked:
            self._blocked.add(output)
        else:
            self._blocked.discard(output)
            self.room_again()

    @property
    def refusal(self) -> str:
        """The reason why the log takes no numbered batch now; empty when it does."""
        return "" if self._log is None else self._log.refusal

    @property
    def keeps_batches(self) -> bool:
        """Whether a batch is on disk before it is acknowledged."""
        return self._log is not None

    # -- into the network ---------------------------------------------------------------------------------------------

    def _enter(
        self, stream: int, train: Train, received: int, stamp_ns: int | None, runs_idle_plans: bool, peer: str = ""
    ) -> None:
        """Put a train on the arcs behind its stream, let the scheduler act on it, and deliver what needs no box.

        ``received`` tuples are counted here, because no port has counted them. ``stamp_ns`` is the time by which event
        time is judged, None for now.
        """
        if not train.count and train.watermark_ns == NO_WATERMARK:
            return  # a batch of which every tuple was refused
        if self.alarm is not None:
            self._sound_alarm()
        idle_path = self._idle_paths[stream] if runs_idle_plans else None
        try:
            with self._order:
                if (successor := self._successor) is None:
                    self.received[stream] += received
                    to_outputs = self._queue(stream, train, stamp_ns, idle_path, peer)
            if successor is not None:  # the network was replaced while this caller waited
                if (there := self._next_numbers.get(stream)) is not None:
                    successor._enter(there, train, received, stamp_ns, runs_idle_plans, peer)
                return
            self._loop.wake()
            for output, part in to_outputs:
                self._routes.deliver(output, part)
        finally:
            if idle_path is not None:
                idle_path.run()  # in any case: after ``enter`` this thread has the scheduler's turn

    def _sound_alarm(self) -> None:
        alarm, self.alarm = self.alarm, None
        if alarm is not None:
            alarm()

    def _queue(
        self, stream: int, train: Train, stamp_ns: int | None, idle_path: IdlePath | None, peer: str
    ) -> Sequence[tuple[int, Train]]:
        """Stamp, count, drop and queue a train. Returns the trains for outputs right behind the stream.

        The caller has the lock.
        """
        if (clock := self._clocks[stream]) is not None:
            offered, now_ns = train, self._now_ns() if stamp_ns is None else stamp_ns
            train = clock.stamp(offered, now_ns)
            if train.count != offered.count:
                self._refuse(self._network.streams[stream], clock, clock.skewed(offered, now_ns), now_ns, peer)
            if not train.count and train.watermark_ns == NO_WATERMARK:
                return ()  # all tuples were refused, or the watermark is not new
        self.admitted[stream] += train.count
        self.latest[stream] = train
        if self.recent is not None and train.count:
            self.recent.append((int(train.arrival_ns[0]), stream, train.count))
        self.entered += 1
        if (point := self._points.get(stream)) is not None:
            point.append(train, self.entered)
        queued, outputs, dropping, constants, overflow = self._ways[stream]
        if overflow and not self._storage.has_room:
            constants, queued, dropping = None, (), (*overflow, *(way for way in dropping if way[0].box is None))
        to_outputs = [(output, train) for output in outputs] if outputs and train.count else []
        if dropping:
            to_outputs += self._drop(train, dropping)
        if queued and (idle_path is None or not idle_path.enter(queued, train)):
            self._routes.enqueue_without_waking(queued, train)
        if constants is not None:
            for arcs, part in constants.split(train):
                self._routes.enqueue_without_waking(arcs, part)
        return to_outputs

    def _refuse(self, target: Stream, clock: StreamClock, skewed: Train, now_ns: int, peer: str) -> None:
        """Count tuples whose event time is too far ahead, and keep the first of them as a dead letter."""
        self.rejected_skew[target.number] += skewed.count
        if self._dead_letters is not None and target.time_field is not None:
            reject = skew_reject(skewed, target.time_field, now_ns, clock.max_skew_ns)
            self._dead_letters.add(now_ns, target.name, peer, (reject,))

    def _drop(self, train: Train, dropping: Sequence[tuple[Arc, Keep]]) -> list[tuple[int, Train]]:
        """Queue the tuples that the shed plan keeps of a train. Returns those for outputs."""
        to_outputs: list[tuple[int, Train]] = []
        for arc, keep in dropping:
            kept = keep(train)
            if arc.output is not None:
                if kept.count:
                    to_outputs.append((arc.output, kept))
            elif kept.count or (arc.timed and kept.watermark_ns != NO_WATERMARK):
                self._routes.enqueue_without_waking((arc.number,), kept)
        return to_outputs

    # -- drops --------------------------------------------------------------------------------------------------------

    def shed(self, sheds: Mapping[int, Keep]) -> None:
        """Drop tuples on these arcs from the next train on, and on no other arc. Any thread."""
        with self._order:
            self._sheds = sheds
            self._ways = [self._make_ways(stream, sheds) for stream in self._network.streams]

    def gate(self, arcs: frozenset[int]) -> None:
        """Put no train on these arcs: a replay of history feeds them. Before the start, or inside ``closed``."""
        self._gated = arcs
        self._ways = [self._make_ways(stream, self._sheds) for stream in self._network.streams]

    def _make_ways(self, stream: Stream, sheds: Mapping[int, Keep]) -> StreamWays:
        arcs = [self._network.arcs[a] for a in stream.arcs if a not in self._gated]
        queued = [a for a in arcs if a.box is not None and a.number not in sheds]
        index = self._make_index(stream, queued)
        indexed = frozenset(index.arcs if index is not None else ())
        return StreamWays(
            tuple(a.number for a in queued if a.number not in indexed),
            tuple(a.output for a in arcs if a.output is not None and a.number not in sheds),
            tuple((a, sheds[a.number]) for a in arcs if a.number in sheds),
            index,
            tuple(way for way in self._overflow.get(stream.number, ()) if way[0].number not in self._gated),
        )

    def _make_index(self, stream: Stream, arcs: Sequence[Arc]) -> ConstantIndex | None:
        """Make the index of the filters behind these arcs. None where few filters compare the same column, and where
        the idle fast path serves the stream. The counts of the index before it stay with the boxes."""
        now, wanted = self._indexes.get(stream.number, ((), None)), tuple(arc.number for arc in arcs)
        if now[0] == wanted:
            return now[1]
        network, runtimes = self._network, self._pool.runtimes if now[1] is not None else []
        for number in now[1].arcs if now[1] is not None else ():
            if (box := network.arcs[number].box) is not None:
                runtimes[box].spare(None)
        found = [
            IndexedFilter(arc.number, kept.predicate, arc.timed)
            for arc in (arcs if are_many(arcs) else ())
            if arc.box is not None and isinstance(kept := network.boxes[arc.box].box, Filter)
        ]
        chosen = indexable(found)
        index = None
        if chosen and self._idle_paths[stream.number] is None:
            index = ConstantIndex(stream.schema, chosen)
        self._indexes[stream.number] = wanted, index
        for slot, f in enumerate(chosen):
            if index is not None and (box := network.arcs[f.arc].box) is not None:
                self._pool.runtimes[box].spare(index, slot)
        return index

    def skipped(self) -> list[tuple[int, int]]:
        """Return the arcs on which an index of constants left out tuples, and how many. Any thread."""
        runtimes = self._pool.runtimes
        return [
            (arc, skipped)
            for stream in self._network.streams
            for arc in stream.arcs
            if (box := self._network.arcs[arc].box) is not None and (skipped := runtimes[box].skipped)
        ]

    @property
    def overflowing(self) -> Collection[int]:
        """The streams that do not wait for room: the tuples that do not fit are dropped and counted."""
        return self._overflow
