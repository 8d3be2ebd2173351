"""The simulation: the daemon's scheduler loop, state and policies; everything around them is arithmetic.

Virtual time moves from event to event: an arrival, a train that a plan puts on a queue, a plan that ends. What a worker
would do with a plan (``engine/executable.py``: box after box, trains handed on without a queue where the next box is in
the plan) is done here on counts, with cost a + b*n for each box call, and takes as long as that. Selectivities are
exact and without chance, as the universal box has them: of the first k tuples floor(k * selectivity) pass.

The scheduler's and the storage manager's time is added to the plan's: under Python's lock they take it from the worker.
So do the other workers: what holds the lock (all overheads, and the part of a box's cost that does not grow with the
train) takes as many times as long as there are busy workers, while the work on the tuples runs side by side.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import pairwise
from math import floor
from typing import Any, NamedTuple

import numpy as np

from catalog.load import LoadModel
from catalog.network import Network
from catalog.stats import Statistics
from engine.simulate.arrivals import Trains
from engine.simulate.measure import Recorder
from engine.simulate.storage import SimulatedStorage, SimulatedTrain, join
from scheduler.events import Enqueued, Finished, Outcome
from scheduler.loop import Claim, SchedulerLoop, Work
from scheduler.plan import Plan
from scheduler.policies import Policy
from scheduler.state import SchedulerSettings, SchedulerState
from storage.queue import COALESCE_BELOW

JOINED_TUPLES = 4 * COALESCE_BELOW  # storage joins short trains up to about this many tuples: one box call each
OUTCOME_EVERY_NS = 100_000_000
SAMPLES_AT_MOST = 256  # of memory over time; past it every other one goes
TRAIN, END, START = range(3)  # kinds of events; at one moment in this order


@dataclass(frozen=True, slots=True)
class Overheads:
    """What the engine spends beside the boxes, in ns. The defaults were measured (``calibrate.py``)."""

    step_ns: float = 8_000.0  # a scheduling step: events, decision, dispatch
    claim_ns: float = 8_000.0  # taking from or putting on a queue, each
    plan_ns: float = 8_000.0  # a worker that takes up a plan and reports its end
    call_ns: float = 1_500.0  # a box call, beside what the box measures of itself


class Totals:
    """Where the time went, as in figure 9 of P0."""

    __slots__ = ("box_ns", "calls", "plans", "scheduler_ns", "storage_ns", "worker_ns")

    def __init__(self) -> None:
        self.box_ns = 0.0
        self.scheduler_ns = 0.0
        self.storage_ns = 0.0
        self.worker_ns = 0.0
        self.calls = 0
        self.plans = 0


class ExecutionQueue:
    """What the loop puts its plans on."""

    def __init__(self) -> None:
        self.works: deque[Work] = deque()
        self.put = self.works.append


Port = tuple[float, tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""Selectivity, and the arcs: handed on within the plan, put on a queue, delivered (as outputs)."""

CompiledStep = tuple[int, tuple[int, ...], tuple[Port, ...]]
"""Box, the arcs it takes from, its ports."""


class Line(NamedTuple):
    """A plan whose boxes hand everything on to the next one: the usual plan, and it needs no inbox."""

    arc: int  # that the first box takes from
    boxes: tuple[tuple[int, float, float, float], ...]  # box, ns a call with its overhead, ns a tuple, selectivity
    queued: tuple[int, ...]  # where the last box puts tuples
    outputs: tuple[int, ...]


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
        self.totals = Totals()
        self.now_ns = start_ns
        arc_bytes = [0.0 if a.box is None else float(self.statistics.tuple_bytes[a.box]) for a in network.arcs]
        self.storage = SimulatedStorage(arc_bytes, start_ns)
        self.state = SchedulerState(network, settings, self.statistics)
        self._queue = ExecutionQueue()
        around: tuple[Any, Any] = (self.storage, self._queue)  # trains are not trains here, but the loop never looks
        self.loop = SchedulerLoop(self.state, policy, *around, workers, lambda: self.now_ns, lambda: 0)
        self.loop.measured_every_ns = 2**62  # the statistics stand still
        ideal_ns = LoadModel(network).ideal_ns(self.statistics.cost_per_call_ns, self.statistics.cost_per_tuple_ns)
        self.recorders = [
            Recorder(o.qos, ideal, warm_up_ns, count_until_ns)
            for o, ideal in zip(network.outputs, ideal_ns.tolist(), strict=True)
        ]
        self.arrived = 0
        self.came_tuples = [0] * len(network.streams)
        self.came_trains = [0] * len(network.streams)
        self.samples: list[tuple[float, float]] = []  # seconds, and bytes that waited then
        self._admitted = 0  # trains so far
        self.on_tick: Callable[[], None] = lambda: None  # ten times a second, before the next decision
        self._tell_ns = start_ns + OUTCOME_EVERY_NS
        self._sample_ns = OUTCOME_EVERY_NS
        self._workers = workers
        self._idle = workers
        self._events: list[tuple[int, int, int, Any]] = []  # when, kind, number, what
        self._number = 0
        self._put = 0  # trains that the running plan has put on queues
        self._call_ns: list[float] = self.statistics.cost_per_call_ns.tolist()
        self._tuple_ns: list[float] = self.statistics.cost_per_tuple_ns.tolist()
        self._flat_selectivity: list[float] = self.statistics.port_selectivity.tolist()
        self._port_start: list[int] = self.statistics.port_start.tolist()
        self._seen = [0] * len(network.boxes)  # tuples that each box has taken
        self._compiled: dict[tuple[int, ...], tuple[CompiledStep, ...]] = {}
        self._lines: dict[tuple[int, ...], Line | None] = {}
        self._arrivals = merge(trains)
        self._stream_arcs = [tuple(a for a in s.arcs if network.arcs[a].box is not None) for s in network.streams]
        self._stream_outputs = [
            tuple(o for a in s.arcs if (o := network.arcs[a].output) is not None) for s in network.streams
        ]

    # -- time ---------------------------------------------------------------------------------------------------------

    def run(self, until_ns: int | None = None, progress: Callable[[int], None] | None = None) -> None:
        """Until everything that arrives is done, or until this time; it can be called again to go on."""
        times, streams, counts = self._arrivals
        at, arrivals = self._admitted, len(times)
        events, storage = self._events, self.storage
        next_ns = times[at] if at < arrivals else None
        while events or next_ns is not None:
            if next_ns is not None and (not events or next_ns <= events[0][0]):
                now_ns = next_ns
            else:
                now_ns = events[0][0]
            if until_ns is not None and now_ns > until_ns:
                break
            storage.pass_time(now_ns)
            self.now_ns = now_ns
            if now_ns >= self._tell_ns:
                self._tell_outcomes()
                self._tell_ns = now_ns + OUTCOME_EVERY_NS
            while next_ns is not None and next_ns <= now_ns:
                self._admit(streams[at], counts[at])
                at += 1
                next_ns = times[at] if at < arrivals else None
                if progress is not None and at % 4096 == 0:
                    progress(now_ns)
            while events and events[0][0] <= now_ns:
                _, kind, _, what = heappop(events)
                if kind == TRAIN:
                    self._enqueue(*what)
                elif kind == END:
                    self._finish(what)
            self._schedule()
        self._admitted = at
        self.now_ns = until_ns if until_ns is not None else self.now_ns
        self.storage.pass_time(self.now_ns)

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
        self._idle += 1
        self.state.apply(Finished(plan))

    def _schedule(self) -> None:
        state, loop = self.state, self.loop
        while True:
            while self._idle and self._queue.works:
                self._idle -= 1
                plan, claims = self._queue.works.popleft()
                assert plan is not None
                end_ns = self._execute(plan.boxes, claims)
                self._push(end_ns, END, plan)
            if state.outstanding >= loop.plans_at_most:
                return
            plan = loop.decide(self.now_ns)
            if plan is None:
                return
            loop.dispatch(plan)

    def _push(self, when_ns: int, kind: int, what: object) -> None:
        self._number += 1
        heappush(self._events, (when_ns, kind, self._number, what))

    # -- tuples -------------------------------------------------------------------------------------------------------

    def _admit(self, stream: int, count: int) -> None:
        now_ns = self.now_ns
        train = SimulatedTrain(count, now_ns, now_ns, now_ns)
        self.arrived += count
        self.came_tuples[stream] += count
        self.came_trains[stream] += 1
        if self._stream_arcs[stream]:
            self._enqueue(self._stream_arcs[stream], train)
        for output in self._stream_outputs[stream]:
            self.recorders[output].deliver(train, now_ns)

    def _enqueue(self, arcs: tuple[int, ...], train: SimulatedTrain) -> None:
        self.storage.enqueue(arcs, train)
        nbytes = int(train.count * self.storage.tuple_bytes[arcs[0]])
        self.state.apply(Enqueued(arcs, train.count, train.first_ns, train.mean_ns, nbytes))

    def _execute(self, boxes: tuple[int, ...], claims: Mapping[int, Claim]) -> int:
        """Do what a worker would; when it is done."""
        try:
            line = self._lines[boxes]
        except KeyError:
            line = self._lines[boxes] = self._as_line(boxes)
        if line is not None and len(claims) == 1 and line.arc in claims:
            return self._run_line(line, claims[line.arc].trains)  # type: ignore[arg-type]
        return self._run_steps(boxes, claims)

    def _run_line(self, line: Line, taken: list[SimulatedTrain]) -> int:
        costs, totals, seen = self.overheads, self.totals, self._seen
        if not taken:
            train, calls = SimulatedTrain(0, 0, 0, 0), 0
        else:
            train, calls = (taken[0], 1) if len(taken) == 1 else join_for_call(taken)
        busy = self._workers - self._idle
        now_ns = self.now_ns + busy * (costs.step_ns + costs.plan_ns + costs.claim_ns)
        count = train.count
        own_ns = tuples_ns = 0.0
        all_calls = 0
        for box, call_ns, tuple_ns, selectivity in line.boxes:
            if not calls:
                break
            own_ns += calls * call_ns
            tuples_ns += count * tuple_ns
            all_calls += calls
            calls = 1
            if selectivity != 1.0:
                before = seen[box]
                seen[box] = after = before + count
                count = int(after * selectivity) - int(before * selectivity)
                if not count:
                    break
        now_ns += busy * own_ns + tuples_ns
        storage_ns = costs.claim_ns
        if count:
            out = train if count == train.count else train.with_count(count)
            if line.queued:
                now_ns += costs.claim_ns
                storage_ns += costs.claim_ns
                self._push(int(now_ns), TRAIN, (line.queued, out))
            for output in line.outputs:
                self.recorders[output].deliver(out, int(now_ns))
        calls_ns = costs.call_ns * all_calls
        totals.plans += 1
        totals.calls += all_calls
        totals.scheduler_ns += costs.step_ns
        totals.storage_ns += storage_ns
        totals.worker_ns += costs.plan_ns + calls_ns
        totals.box_ns += own_ns - calls_ns + tuples_ns
        return int(now_ns)

    def _as_line(self, boxes: tuple[int, ...]) -> Line | None:
        steps = self._compile(boxes)
        if any(len(in_arcs) != 1 or len(ports) != 1 for _, in_arcs, ports in steps):
            return None
        for (_, _, ((_, bypass, queued, outputs),)), (_, in_arcs, _) in pairwise(steps):
            if bypass != in_arcs or queued or outputs:
                return None
        call_ns = self.overheads.call_ns
        _, _, ((_, bypass, queued, outputs),) = steps[-1]
        assert not bypass
        each = tuple((b, self._call_ns[b] + call_ns, self._tuple_ns[b], ports[0][0]) for b, _, ports in steps)
        return Line(steps[0][1][0], each, queued, outputs)

    def _run_steps(self, boxes: tuple[int, ...], claims: Mapping[int, Claim]) -> int:
        costs = self.overheads
        steps = self._compiled.get(boxes)
        if steps is None:
            steps = self._compiled[boxes] = self._compile(boxes)
        inbox: dict[int, list[SimulatedTrain]] = {a: c.trains for a, c in claims.items()}  # type: ignore[misc]
        cut = {a for a, c in claims.items() if not c.emptied}
        busy = self._workers - self._idle
        claim_ns, call_ns = costs.claim_ns * len(claims), costs.call_ns
        now_ns = self.now_ns + busy * (costs.step_ns + costs.plan_ns + claim_ns)
        box_ns = 0.0
        all_calls = self._put = 0
        for box, in_arcs, ports in steps:
            if len(in_arcs) == 1:
                taken = inbox.pop(in_arcs[0], None)
            else:
                taken = [t for a in in_arcs if a in inbox for t in inbox.pop(a)]
            if not taken:
                continue
            train, calls = (taken[0], 1) if len(taken) == 1 else join_for_call(taken)
            all_calls += calls
            own_ns, tuples_ns = calls * self._call_ns[box], train.count * self._tuple_ns[box]
            box_ns += own_ns + tuples_ns
            now_ns += busy * (own_ns + calls * call_ns) + tuples_ns
            now_ns = self._emit(box, ports, train, now_ns, inbox, cut)
        for arc, left in inbox.items():  # reached a box after its last turn in this plan
            for train in left:
                self._push(int(now_ns), TRAIN, ((arc,), train))
        totals = self.totals
        totals.plans += 1
        totals.calls += all_calls
        totals.scheduler_ns += costs.step_ns
        totals.storage_ns += claim_ns + costs.claim_ns * self._put
        totals.worker_ns += costs.plan_ns + call_ns * all_calls
        totals.box_ns += box_ns
        return int(now_ns)

    def _emit(
        self,
        box: int,
        ports: tuple[Port, ...],
        train: SimulatedTrain,
        now_ns: float,
        inbox: dict[int, list[SimulatedTrain]],
        cut: set[int],
    ) -> float:
        """Send on what the box lets through; the time after that."""
        count = train.count
        seen = self._seen[box]
        self._seen[box] = seen + count
        for selectivity, bypass, queued, outputs in ports:
            out = train
            if selectivity != 1.0:
                passed = floor((seen + count) * selectivity) - floor(seen * selectivity)
                if not passed:
                    continue
                out = train.with_count(passed)
            for arc in bypass:
                if arc in cut:
                    queued = (*queued, arc)
                elif arc in inbox:
                    inbox[arc] = [*inbox[arc], out]
                else:
                    inbox[arc] = [out]
            if queued:
                self._put += 1
                now_ns += self.overheads.claim_ns
                self._push(int(now_ns), TRAIN, (queued, out))
            for output in outputs:
                self.recorders[output].deliver(out, int(now_ns))
        return now_ns

    def _compile(self, boxes: tuple[int, ...]) -> tuple[CompiledStep, ...]:
        network = self.network
        later: set[int] = set()
        steps: list[CompiledStep] = []
        for box in reversed(boxes):
            node = network.boxes[box]
            ports: list[Port] = []
            for number, arcs in enumerate(node.out_arcs):
                known = [network.arcs[a] for a in arcs]
                selectivity = self._flat_selectivity[self._port_start[box] + number]
                bypass = tuple(a.number for a in known if a.box in later)
                queued = tuple(a.number for a in known if a.box is not None and a.box not in later)
                ports.append((selectivity, bypass, queued, tuple(a.output for a in known if a.output is not None)))
            steps.append((box, node.in_arcs, tuple(ports)))
            later.add(box)
        return tuple(reversed(steps))

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
        """Tuples that were dropped on an arc are missed at every output that they would have reached."""
        for arc, expired in zip(self.network.arcs, self.storage.expired, strict=True):
            if expired and arc.box is not None:
                for output in self.network.box_outputs[arc.box]:
                    self.recorders[output].expired += expired


def join_for_call(trains: Sequence[SimulatedTrain]) -> tuple[SimulatedTrain, int]:
    """Trains taken together as one, and how many box calls they are: short ones are joined, long ones stay."""
    train = join(trains)
    if train.count <= JOINED_TUPLES:
        return train, 1
    short = sum([t.count for t in trains if t.count < COALESCE_BELOW])
    return train, sum([t.count >= COALESCE_BELOW for t in trains]) + -(-short // JOINED_TUPLES)


def merge(trains: Mapping[int, Trains]) -> tuple[list[int], list[int], list[int]]:
    """The trains of all streams in the order of time; at one moment by the number of the stream."""
    if not trains:
        return [], [], []
    times = np.concatenate([t for t, _ in trains.values()])
    counts = np.concatenate([c for _, c in trains.values()])
    streams = np.concatenate([np.full(len(t), s, np.int64) for s, (t, _) in trains.items()])
    order = np.lexsort((streams, times))
    return times[order].tolist(), streams[order].tolist(), counts[order].tolist()
