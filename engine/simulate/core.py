"""The simulation: the daemon's scheduler loop, state and policies; everything around them is arithmetic.

Virtual time moves from event to event: an arrival, a train that a plan puts on a queue, a plan that ends. What a worker
would do with a plan is done on counts (``execution``) and takes as long as that.

Threads are modelled as far as a tuple feels them:

- Python's lock. What holds it (all overheads, and the part of a box's cost that does not grow with the train) is done
  one after the other; the work on the tuples runs side by side, and whoever comes back from it needs the lock again.
  Who finds it taken sleeps, is woken when it is let go, and may find it taken once more: a thread that is awake (the
  I/O thread with its next read, a worker with its next plan) is there first. After ``SWITCH_INTERVAL_S`` Python gives
  it to who asks.
- The I/O thread, where there is one (``Overheads.admit_ns``). It takes in one read after the other, has the scheduler's
  turn with each, and runs a short plan of prompt boxes by itself, or goes the short way where nothing waits and nothing
  runs, as ``engine/core.admit_here`` does. With nothing to read it sleeps; what comes then wakes it, and is read with
  cold caches. A read is stamped when the thread has it, and the lock: what it waited before that nobody sees.
- Workers. To wake one that sleeps takes time, for whoever does and until it has begun; one that has ended a plan takes
  the next at once. Where there are more threads than cores they share them evenly, and they get into each other's
  way where there are not: the system runs who was woken near who woke it (``Overheads.sharing``).

The scheduler's and the storage manager's time is added to the plan's.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Mapping
from heapq import heappop, heappush
from statistics import median
from typing import Any

import numpy as np

from catalog.load import LoadModel
from catalog.network import Network
from catalog.stats import Statistics
from engine.shed.limits import dead_points
from engine.short_way import short_plan
from engine.simulate.arrivals import Trains
from engine.simulate.execution import Effect, Execution, Ran
from engine.simulate.measure import Recorder
from engine.simulate.overheads import Overheads, Totals
from engine.simulate.storage import SimulatedStorage, SimulatedTrain
from engine.tuning import SWITCH_INTERVAL_S
from scheduler.events import Enqueued, Finished, Outcome
from scheduler.loop import SHORT_TUPLES, Claim, SchedulerLoop, Work
from scheduler.plan import Plan
from scheduler.policies import Policy
from scheduler.state import SchedulerSettings, SchedulerState

OUTCOME_EVERY_NS = 100_000_000
BRIEF_NS = 20_000  # numpy lets go of Python's lock for work that is longer, about
SWITCH_NS = int(SWITCH_INTERVAL_S * 1e9)
NEVER_NS = 2**62
GOLDEN = 0.6180339887498949  # multiples of it, without their whole part, lie evenly between 0 and 1
SAMPLES_AT_MOST = 256  # of memory over time; past it every other one goes
TRAIN, END, HERE, START, BACK, ASK = range(6)
"""Kinds of events; at one moment in this order. HERE: the I/O thread ends a plan. BACK: a worker has done the work on
its tuples and needs Python's lock again. ASK: one that was woken needs it to begin its plan."""


class ExecutionQueue:
    """What the loop puts its plans on."""

    def __init__(self) -> None:
        self.works: deque[Work] = deque()
        self.put = self.works.append


class Simulation:
    """One run. ``trains`` by stream: when they arrive and how many tuples they hold."""

    def __init__(
        self,
        network: Network,
        policy: Policy,
        trains: Mapping[int, Trains],
        *,
        statistics: Statistics | None = None,
        settings: SchedulerSettings | None = None,
        workers: int = 1,
        overheads: Overheads | None = None,
        warm_up_ns: int = 0,
        start_ns: int = 0,
        count_until_ns: int = 2**62,
    ) -> None:
        self.network = network
        self.statistics = statistics if statistics is not None else Statistics(network)
        self.overheads = overheads or Overheads()
        self.now_ns = start_ns
        arc_bytes = [0.0 if a.box is None else float(self.statistics.tuple_bytes[a.box]) for a in network.arcs]
        self.storage = SimulatedStorage(arc_bytes, start_ns)
        self.state = SchedulerState(network, settings, self.statistics)
        self._queue = ExecutionQueue()
        around: tuple[Any, Any] = (self.storage, self._queue)  # trains are not trains here, but the loop never looks
        self.loop = SchedulerLoop(self.state, policy, *around, workers, lambda: self.now_ns, lambda: 0)
        self.loop.measured_every_ns = 2**62  # the statistics stand still
        self.loop.dead_points = dead_points(network)
        ideal_ns = LoadModel(network).ideal_ns(self.statistics.cost_per_call_ns, self.statistics.cost_per_tuple_ns)
        self.recorders = [
            Recorder(o.qos, ideal, warm_up_ns, count_until_ns)
            for o, ideal in zip(network.outputs, ideal_ns.tolist(), strict=True)
        ]
        self.execution = Execution(network, self.statistics, self.overheads, self.recorders, self._put)
        self.arrived = 0
        self.came_tuples = [0] * len(network.streams)
        self.came_trains = [0] * len(network.streams)
        self.busy_ns = 0  # of all workers
        self.unit_busy_ns = [0] * len(self.state.unit_boxes)  # of workers with it
        self.lent_ns = 0  # of the I/O thread, on plans
        self.samples: list[tuple[float, float]] = []  # seconds, and bytes that waited then
        self._admitted = 0  # trains so far
        self.on_tick: Callable[[], None] = lambda: None  # ten times a second, before the next decision
        self._tell_ns = start_ns + OUTCOME_EVERY_NS
        self._sample_ns = OUTCOME_EVERY_NS
        self._idle = workers  # that run no plan ...
        self._waking = 0  # ... and of these, those that have been woken
        self._lock_ns = start_ns  # until when Python's lock is taken ...
        self._lock_is_io = False  # ... and whether by the I/O thread
        self._io_ns = start_ns  # until when the I/O thread is
        self._io_slept = False  # before the read that comes next
        self._woken = [int(ns) for ns in self.overheads.woken_ns]
        self._again_ns = int(median(self.overheads.woken_ns))  # until one runs that slept on the lock: its core is free
        self._has_io = self.overheads.admit_ns > 0
        self.io_busy_ns = 0  # of the I/O thread, on anything
        self._begun_ns = start_ns
        self._workers = workers
        self._is_crowded = workers + self._has_io > self.overheads.cores or self.overheads.sharing > 0
        self._events: list[tuple[int, int, int, Any]] = []  # when, kind, number, what
        self._number = 0
        self._arrivals = merge(trains)
        self._stream_arcs = [tuple(a for a in s.arcs if network.arcs[a].box is not None) for s in network.streams]
        self._stream_ends = [tuple(a for a in s.arcs if network.arcs[a].output is not None) for s in network.streams]
        self._short = [short_plan(self.state, s) if self._has_io else None for s in network.streams]

    @property
    def totals(self) -> Totals:
        return self.execution.totals

    # -- time ---------------------------------------------------------------------------------------------------------

    def run(self, until_ns: int | None = None, progress: Callable[[int], None] | None = None) -> None:
        """Until everything that arrives is done, or until this time; it can be called again to go on."""
        events, storage = self._events, self.storage
        last_ns = NEVER_NS - 1 if until_ns is None else until_ns
        next_ns = self._read_ns()
        while True:
            now_ns = events[0][0] if events and events[0][0] < next_ns else next_ns
            if now_ns > last_ns:
                break
            storage.pass_time(now_ns)
            self.now_ns = now_ns
            if now_ns >= self._tell_ns:
                self._tell_outcomes()
                self._tell_ns = now_ns + OUTCOME_EVERY_NS
            is_read = False
            while next_ns <= now_ns:
                if self._is_kept_out():
                    next_ns = self._lock_ns + self._again_ns
                    break
                is_read = True
                self._admit(progress)
                next_ns = self._read_ns()
            if self._happen(is_read):
                next_ns = self._read_ns()
        self.now_ns = until_ns if until_ns is not None else self.now_ns
        self.storage.pass_time(self.now_ns)

    def _happen(self, is_read: bool) -> bool:
        """All that happens now, beside what has just been read. Whether the I/O thread was at work."""
        events, now_ns = self._events, self.now_ns
        by_io, is_news, awake = is_read and self._has_io, is_read, 0
        asking: list[int] = []
        while events and events[0][0] <= now_ns:
            _, kind, _, what = heappop(events)
            if kind == ASK:
                asking.append(what)
                continue
            if kind == TRAIN:
                self._enqueue(*what)
            elif kind == BACK and not self._come_back(*what):
                continue
            elif kind in (END, BACK):
                self._idle += 1
                awake += 1
                self._finish(what if kind == END else what[0])
            elif kind == HERE:
                by_io = True
                self._finish(what)
            is_news = True
        if is_news:
            self._schedule(by_io, awake)
        for since_ns in asking:  # who is awake has been served
            self._ask(since_ns)
        if by_io:
            self.io_busy_ns += max(0, self._io_ns - now_ns)
        return by_io

    def _read_ns(self) -> int:
        """When the next read is taken in: at once if the I/O thread is awake, and else it has to be woken."""
        if self._admitted >= len(self._arrivals[0]):
            return NEVER_NS
        due_ns = self._arrivals[0][self._admitted]
        if not self._has_io:
            return due_ns
        self._io_slept = due_ns > self._io_ns
        return due_ns + self._woken_ns(self._admitted) if self._io_slept else self._io_ns

    def _is_kept_out(self) -> bool:
        """Whether the I/O thread has to sleep on Python's lock before it reads."""
        if self._lock_ns <= self.now_ns or self._lock_is_io or not self._has_io:
            return False
        return self.now_ns - max(self._arrivals[0][self._admitted], self._io_ns) < SWITCH_NS

    def came_since(self, since_ns: int) -> dict[int, Trains]:
        """What has arrived from then until now, by stream."""
        times, streams, counts = self._arrivals
        last = bisect_right(times, self.now_ns)
        first = bisect_left(times, since_ns, 0, last)
        by_stream = np.array(streams[first:last], np.int64)
        moments, tuples = np.array(times[first:last], np.int64), np.array(counts[first:last], np.int64)
        return {int(s): (moments[by_stream == s], tuples[by_stream == s]) for s in np.unique(by_stream)}

    @property
    def is_done(self) -> bool:
        """Nothing arrives any more, nothing runs and nothing waits."""
        return self._admitted >= len(self._arrivals[0]) and not self._events and self.state.is_quiet()

    def put(self, arc: int, train: SimulatedTrain) -> None:
        """What waits already when the run begins."""
        self._enqueue((arc,), train)
        self._push(self.now_ns, START, None)

    def _finish(self, plan: Plan) -> None:
        self.state.apply(Finished(plan))

    def _schedule(self, by_io: bool, awake: int) -> None:
        """Decide, and begin what is decided. ``by_io``: the I/O thread has the turn and runs a short plan itself;
        ``awake``: workers that have just ended a plan, and take the next at once."""
        state, loop, works = self.state, self.loop, self._queue.works
        here: list[Work] | None = [] if by_io else None
        while True:
            while works and (awake > 0 or (self._idle and not self._has_io)):
                awake -= 1
                self._begin(works.popleft(), max(self.now_ns, self._lock_ns))
            if state.outstanding >= loop.plans_at_most:
                break
            plan = loop.decide(self.now_ns)
            if plan is None:
                break
            loop.dispatch(plan, here)
        if works and (wanted := min(len(works), self._idle) - self._waking) > 0:
            self._wake(wanted, by_io)
        if here:  # those who are woken do not have the lock yet
            self._run_here(here[0])

    def _wake(self, workers: int, by_io: bool) -> None:
        """Rouse workers that sleep. What they are woken for stays on the queue until one has Python's lock: another
        that ends its plan before that takes it."""
        wake_ns = int(self.overheads.wake_ns * workers)
        if by_io:
            self._io_ns = self._lock_ns = awake_ns = max(self.now_ns, self._lock_ns) + wake_ns
            self._lock_is_io = True
        else:
            awake_ns = self.now_ns + wake_ns
            self._lock_ns = max(self._lock_ns, awake_ns)
        self._waking += workers
        for _ in range(workers):
            asks_ns = awake_ns + self._woken_ns(self._number)
            self._push(asks_ns, ASK, asks_ns)

    def _woken_ns(self, number: int) -> int:
        """How long it takes this time until a thread runs that has slept. The system is quick when it finds a free core
        near, and ten times as slow when it finds none: what was measured comes up as often as it was seen, spread
        evenly over any number of times, and without chance."""
        woken = self._woken
        return woken[int(number * GOLDEN % 1.0 * len(woken))]

    def _ask(self, since_ns: int) -> None:
        """A worker that has been woken needs Python's lock, from ``since_ns`` on."""
        if self._lock_ns > self.now_ns and self.now_ns - since_ns < SWITCH_NS:
            self._push(self._lock_ns + self._again_ns, ASK, since_ns)
            return
        self._waking -= 1
        if self._queue.works:
            self._begin(self._queue.works.popleft(), self.now_ns)

    def _begin(self, work: Work, begun_ns: float) -> None:
        """A worker takes up a plan, and the lock."""
        plan, claims = work
        assert plan is not None
        self._idle -= 1
        effects: list[Effect] | None = [] if self._has_io else None
        self.execution.effects = effects
        end_ns, self._lock_ns = self._execute(plan.boxes, claims, begun_ns)
        self._lock_is_io = False
        self.execution.effects = None
        self.busy_ns += end_ns - int(begun_ns)
        for unit in plan.units or ():
            self.unit_busy_ns[unit] += end_ns - int(begun_ns)
        if effects is None:
            self._push(end_ns, END, plan)
        elif end_ns - self._lock_ns > BRIEF_NS:
            self._push(end_ns, BACK, (plan, effects, end_ns))
        else:
            self.execution.apply(effects, self.now_ns, 0)
            self._push(end_ns, END, plan)

    def _come_back(self, plan: Plan, effects: list[Effect], since_ns: int) -> bool:
        """Whether a worker has the lock again, and with it ended its plan. Else it sleeps until the lock is let go, and
        its results are late by that."""
        late_ns = self.now_ns - since_ns
        if self._lock_ns > self.now_ns and late_ns < SWITCH_NS:
            self._push(self._lock_ns + self._again_ns, BACK, (plan, effects, since_ns))
            return False
        self.execution.apply(effects, self.now_ns, late_ns)
        self.busy_ns += late_ns
        return True

    def _execute(self, boxes: tuple[int, ...], claims: Mapping[int, Claim], begun_ns: float) -> Ran:
        return self.execution.run(boxes, claims, begun_ns, self._stretch() if self._is_crowded else 1.0)

    def _stretch(self) -> float:
        """How many times as long work takes now: the I/O thread has its share of the cores, workers share the rest."""
        io_share = min(1.0, self.io_busy_ns / max(self.now_ns - self._begun_ns, 1))
        at_work = self._workers - self._idle  # with who asks
        shared = 1.0 + self.overheads.sharing * (io_share + at_work - 1)
        return max(1.0, at_work / max(self.overheads.cores - io_share, 0.5), shared)

    def _run_here(self, work: Work) -> None:
        plan, claims = work
        assert plan is not None
        begun_ns = max(self.now_ns, self._lock_ns)
        self._io_ns = self._lock_ns = end_ns = self._execute(plan.boxes, claims, begun_ns).end_ns
        self._lock_is_io = True
        self.lent_ns += end_ns - begun_ns
        self._push(end_ns, HERE, plan)

    def _push(self, when_ns: int, kind: int, what: object) -> None:
        self._number += 1
        heappush(self._events, (when_ns, kind, self._number, what))

    # -- tuples -------------------------------------------------------------------------------------------------------

    def _put(self, when_ns: int, arcs: tuple[int, ...], train: SimulatedTrain) -> None:
        self._push(when_ns, TRAIN, (arcs, train))

    def _admit(self, progress: Callable[[int], None] | None) -> None:
        now_ns, at = self.now_ns, self._admitted
        stream, count = self._arrivals[1][at], self._arrivals[2][at]
        self._admitted = at + 1
        if progress is not None and self._admitted % 4096 == 0:
            progress(now_ns)
        train = SimulatedTrain(count, now_ns, now_ns, now_ns)
        self.arrived += count
        self.came_tuples[stream] += count
        self.came_trains[stream] += 1
        way = self._short[stream]
        if way is None or not self._go_short(way, train):
            self._admit_to_queues(stream, train)
        for arc in self._stream_ends[stream]:
            self.execution.deliver_stream(arc, train, now_ns)

    def _admit_to_queues(self, stream: int, train: SimulatedTrain) -> None:
        if self._has_io:
            begun_ns = max(self.now_ns, self._lock_ns)
            self._io_ns = self._lock_ns = int(begun_ns + self.overheads.admit_ns + self._cold_ns())
            self._lock_is_io = True
        arcs, kept = self._stream_arcs[stream], self.execution.drops.kept
        if not kept or kept.keys().isdisjoint(arcs):
            if arcs:
                self._enqueue(arcs, train)
            return
        for arc in arcs:
            if (left := self.execution.drops.thin(arc, train)) is not None:
                self._enqueue((arc,), left)

    def _cold_ns(self) -> float:
        return self.overheads.cold_ns if self._io_slept else 0.0

    def _go_short(self, way: tuple[tuple[int, ...], Plan, int], train: SimulatedTrain) -> bool:
        """``engine/short_way``: nothing waits, nothing runs, and the train is short."""
        arcs, plan, unit = way
        state, drops = self.state, self.execution.drops
        if train.count > SHORT_TUPLES or state.waiting_trains or state.outstanding or state.held[unit]:
            return False
        if state.memory_short or (state.index is not None and state.index.learns):
            return False
        limit = min(state.auto_tuples[self.network.arcs[a].box or 0] for a in arcs)
        if train.count > limit or not drops.kept.keys().isdisjoint(arcs):
            return False
        begun_ns = int(max(self.now_ns, self._lock_ns) + self._cold_ns())
        self._lock_is_io = True
        self.storage.pass_by(arcs, train.count)
        self._io_ns = self._lock_ns = end_ns = self.execution.run_short(plan.boxes, arcs, train, begun_ns).end_ns
        self.lent_ns += end_ns - begun_ns
        return True

    def _enqueue(self, arcs: tuple[int, ...], train: SimulatedTrain) -> None:
        self.storage.enqueue(arcs, train)
        nbytes = int(train.count * self.storage.tuple_bytes[arcs[0]])
        self.state.apply(Enqueued(arcs, train.count, train.first_ns, train.mean_ns, nbytes))

    def _tell_outcomes(self) -> None:
        """What the daemon's monitor does ten times a second."""
        if len(self.samples) >= SAMPLES_AT_MOST:
            del self.samples[1::2]
            self._sample_ns *= 2
        if not self.samples or self.now_ns >= self.samples[-1][0] * 1e9 + self._sample_ns:
            self.samples.append((self.now_ns / 1e9, self.storage.nbytes))
        missed: list[float] = []
        for recorder in self.recorders:
            missed.append(recorder.late / recorder.delivered if recorder.delivered else -1.0)
            recorder.late = recorder.delivered = 0
        self.state.apply(Outcome(tuple(missed)))
        self.on_tick()

    # -- at the end ---------------------------------------------------------------------------------------------------

    def count_expired(self) -> None:
        """Tuples that were dropped on an arc are missed at every output, as many as would have come out there."""
        expired = np.array(self.storage.expired, np.float64)
        missing = LoadModel(self.network).yields(expired, self.statistics.port_selectivity)
        for recorder, count in zip(self.recorders, missing.tolist(), strict=True):
            recorder.expired += round(count)


def merge(trains: Mapping[int, Trains]) -> tuple[list[int], list[int], list[int]]:
    """The trains of all streams in the order of time; at one moment by the number of the stream."""
    if not trains:
        return [], [], []
    times = np.concatenate([t for t, _ in trains.values()])
    counts = np.concatenate([c for _, c in trains.values()])
    streams = np.concatenate([np.full(len(t), s, np.int64) for s, (t, _) in trains.items()])
    order = np.lexsort((streams, times))
    return times[order].tolist(), streams[order].tolist(), counts[order].tolist()
