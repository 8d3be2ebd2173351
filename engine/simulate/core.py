"""The simulation: the daemon's own scheduler loop, state and policies under a virtual clock.

Virtual time moves from event to event: a read, a train that a plan puts on a queue, a plan that ends. A plan is run on
counts instead of tuples (``execution``) and takes the time that it costs. Its threads, and when they have the GIL, are
those of ``threads``. The time of the scheduler and of the storage manager is added to the plan's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from heapq import heappop, heappush
from typing import Any

import numpy as np

from catalog.load import LoadModel
from catalog.network import Network
from catalog.stats import Statistics
from engine.run.idle_path import idle_plan
from engine.simulate.arrivals import Reads, Trains
from engine.simulate.execution import Effect, Execution, PlanTimes
from engine.simulate.interruptible import InterruptiblePlan
from engine.simulate.overheads import Overheads, Totals
from engine.simulate.quality import DeliveryRecorder
from engine.simulate.storage import SimulatedStorage, SimulatedTrain
from engine.simulate.threads import SimulatedThreads
from load_shedder.apply.limits import Expiry
from scheduler.claims import Claim, QueuedPlan
from scheduler.events import Enqueued, Finished, MissedShares
from scheduler.loop import AHEAD_NS, SHORT_TUPLES, SchedulerLoop
from scheduler.plan import Plan
from scheduler.policies import Policy
from scheduler.state import SchedulerSettings, SchedulerState

OUTCOME_EVERY_NS = 100_000_000
BRIEF_NS = 20_000  # numpy releases the GIL for work that takes longer than about this
NEVER_NS = 2**62
SAMPLES_AT_MOST = 256  # of memory over time; past this every other one is dropped
TRAIN_PUT, PLAN_ENDED, BEGUN, OPERATOR_ENDED, TUPLES_DONE, STEP_WANTED, LOCK_WANTED = range(7)
"""Kinds of events, in the order in which they are handled at one moment.

TRAIN_PUT: a plan puts a train on queues. PLAN_ENDED: a worker has ended its plan. BEGUN: tuples wait already when the
run begins. OPERATOR_ENDED: a worker has ended an operator of a plan that may end there. TUPLES_DONE: a worker has done
the work on its tuples and needs the GIL again. STEP_WANTED: the scheduler's thread was woken and needs the GIL to take
a step. LOCK_WANTED: a worker that was woken needs it to begin a plan."""


class ExecutionQueue:
    """The queue on which the loop puts its plans."""

    def __init__(self) -> None:
        self.works: deque[QueuedPlan] = deque()
        self.put = self.works.append


class Simulation:
    """One run. ``trains``, by stream: when they arrive and how many tuples they hold."""

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
        count_until_ns: int = NEVER_NS,
    ) -> None:
        self.network = network
        self.statistics = statistics if statistics is not None else Statistics(network)
        self.overheads = overheads or Overheads()
        self.now_ns = start_ns
        arc_bytes = [0.0 if a.box is None else float(self.statistics.tuple_bytes[a.box]) for a in network.arcs]
        self.storage = SimulatedStorage(arc_bytes, start_ns)
        self.storage.counted_ns = warm_up_ns, count_until_ns
        self.state = SchedulerState(network, settings, self.statistics)
        self.expiry = Expiry(network)
        self.threads = SimulatedThreads(self.overheads, workers, start_ns)
        self._queue = ExecutionQueue()
        simulated: tuple[Any, Any] = (self.storage, self._queue)  # the loop never looks inside a train
        self.loop = SchedulerLoop(
            self.state,
            policy,
            *simulated,
            workers,
            lambda: self.now_ns,
            lambda: 0,
            dead_points=self.expiry.points(),
            measured_every_ns=NEVER_NS,  # the statistics stand still
            ahead_ns=AHEAD_NS
            if self.threads.has_io
            else 0,  # where waking costs nothing, decisions are as fresh as can be
        )
        ideal_ns = LoadModel(network).ideal_ns(self.statistics.cost_per_call_ns, self.statistics.cost_per_tuple_ns)
        self.recorders = [
            DeliveryRecorder(o.qos, ideal, warm_up_ns, count_until_ns)
            for o, ideal in zip(network.outputs, ideal_ns.tolist(), strict=True)
        ]
        self.execution = Execution(
            network, self.statistics, self.overheads, self.recorders, self._put_at, self.state.settings.unit != "vpipe"
        )
        self.tickers: list[Callable[[], None]] = []  # called ten times a second, each before the next decision
        self.arrived = 0
        self.came_tuples = [0] * len(network.streams)
        self.came_trains = [0] * len(network.streams)
        self.busy_ns = 0  # of all workers
        self.unit_busy_ns = [0] * len(self.state.unit_boxes)  # of workers with this unit
        self.caller_ns = 0  # of the I/O thread, on the idle fast path
        self._is_step_due = False  # the scheduler's thread was woken and has not taken its step yet
        self.samples: list[tuple[float, float]] = []  # seconds, and bytes that waited then
        self._sample_ns = OUTCOME_EVERY_NS
        self._tick_ns = start_ns + OUTCOME_EVERY_NS
        self._events: list[tuple[int, int, int, Any]] = []  # when, kind, number, what
        self._number = 0
        self._reads = Reads(trains)
        self._stream_arcs = [tuple(a for a in s.arcs if network.arcs[a].box is not None) for s in network.streams]
        self._stream_ends = [tuple(a for a in s.arcs if network.arcs[a].output is not None) for s in network.streams]
        self._idle_plans = [idle_plan(self.state, s) if self.threads.has_io else None for s in network.streams]

    @property
    def totals(self) -> Totals:
        return self.execution.totals

    @property
    def is_done(self) -> bool:
        """Nothing arrives any more, nothing runs and nothing waits."""
        return self._reads.is_over and not self._events and self.state.is_quiet()

    def came_since(self, since_ns: int) -> dict[int, Trains]:
        """Return the trains that have arrived from then until now, by stream."""
        return self._reads.between(since_ns, self.now_ns)

    def put(self, arc: int, train: SimulatedTrain) -> None:
        """Put a train on an arc where it waits already when the run begins."""
        self._enqueue((arc,), train)
        self._push(self.now_ns, BEGUN, None)

    # -- time ---------------------------------------------------------------------------------------------------------

    def run(self, until_ns: int | None = None, progress: Callable[[int], None] | None = None) -> None:
        """Run until everything that arrives is done, or until this time. Call again to go on."""
        events, storage, threads = self._events, self.storage, self.threads
        last_ns = NEVER_NS - 1 if until_ns is None else until_ns
        read_ns = self._next_read_ns()
        while True:
            now_ns = events[0][0] if events and events[0][0] < read_ns else read_ns
            if now_ns > last_ns:
                break
            storage.pass_time(now_ns)
            self.now_ns = now_ns
            if now_ns >= self._tick_ns:
                self._tick()
                self._tick_ns = now_ns + OUTCOME_EVERY_NS
            is_read = False
            while read_ns <= now_ns:
                if threads.io_must_wait(now_ns, self._reads.due_ns):
                    read_ns = threads.retry_ns
                    break
                is_read = True
                self._admit(progress)
                read_ns = self._next_read_ns()
            if self._handle_events(is_read):
                read_ns = self._next_read_ns()
        self.now_ns = until_ns if until_ns is not None else self.now_ns
        self.storage.pass_time(self.now_ns)

    def _next_read_ns(self) -> int:
        """Return when the next read is taken in."""
        reads = self._reads
        return NEVER_NS if reads.is_over else self.threads.read_ns(reads.due_ns, reads.taken)

    def _handle_events(self, is_read: bool) -> bool:
        """Handle all events of this moment, then schedule. Return whether the I/O thread was at work.

        ``is_read``: something has just been read, which is reason enough to schedule.
        """
        events, now_ns, threads = self._events, self.now_ns, self.threads
        by_io, is_news, awake = is_read and threads.has_io, is_read, 0
        wanting: list[int] = []
        while events and events[0][0] <= now_ns:
            _, kind, _, what = heappop(events)
            if kind == LOCK_WANTED:
                wanting.append(what)
                continue
            if kind == STEP_WANTED:
                self._step_when_locked(what)
                continue
            if kind == TRAIN_PUT:
                self._enqueue(*what)
            elif kind == TUPLES_DONE and not self._end_with_lock(*what):
                continue
            elif kind in (PLAN_ENDED, OPERATOR_ENDED, TUPLES_DONE):
                end = self._end_of(what[0] if kind == TUPLES_DONE else what)
                if end is None:
                    continue
                threads.idle += 1
                awake += 1
                self.state.apply(end)
            is_news = True
        if is_news:
            self._act_on_news(by_io, awake)
        for since_ns in wanting:  # after the threads that are awake
            self._begin_when_locked(since_ns)
        if by_io:
            threads.io_busy_ns += max(0, threads.io_ns - now_ns)
        return by_io

    def _push(self, when_ns: int, kind: int, what: object) -> None:
        self._number += 1
        heappush(self._events, (when_ns, kind, self._number, what))

    def _tick(self) -> None:
        """Do what the daemon's monitor does ten times a second."""
        if len(self.samples) >= SAMPLES_AT_MOST:
            del self.samples[1::2]
            self._sample_ns *= 2
        if not self.samples or self.now_ns >= self.samples[-1][0] * 1e9 + self._sample_ns:
            self.samples.append((self.now_ns / 1e9, self.storage.nbytes))
        missed: list[float] = []
        for recorder in self.recorders:
            missed.append(recorder.late / recorder.delivered if recorder.delivered else -1.0)
            recorder.late = recorder.delivered = 0
        self.state.apply(MissedShares(tuple(missed)))
        for tick in self.tickers:
            tick()

    # -- plans --------------------------------------------------------------------------------------------------------

    def _act_on_news(self, by_io: bool, awake: int) -> None:
        """Have the workers that have just ended a plan (``awake``) take the next one, and wake the scheduler's thread
        if it could decide anything. Without the daemon's threads it decides at once."""
        works, threads = self._queue.works, self.threads
        while works and awake > 0:
            awake -= 1
            self._begin(works.popleft(), threads.lock_free_ns(self.now_ns))
        if not threads.has_io:
            self._schedule()
        elif not self._is_step_due and self.state.ready and self._has_room:
            self._is_step_due = True
            wanted_ns = threads.wake_scheduler(self.now_ns, by_io) + threads.woken_ns(self._number)
            self._push(wanted_ns, STEP_WANTED, wanted_ns)

    @property
    def _has_room(self) -> bool:
        """Return whether the execution queue has room, or so few plans that the scheduler's thread is woken."""
        loop = self.loop
        if loop.mailbox.has_plan_room:
            return not loop.is_queue_full
        return self.state.outstanding <= loop.refill_at

    def _step_when_locked(self, since_ns: int) -> None:
        """Take a step on the scheduler's thread, which has wanted the GIL since then; or let it sleep again."""
        if self.threads.must_wait(self.now_ns, since_ns):
            self._push(self.threads.retry_ns, STEP_WANTED, since_ns)
            return
        self._is_step_due = False
        self._schedule()

    def _schedule(self) -> None:
        """Decide, and begin the plans that are decided or wake workers for them."""
        loop, works, threads = self.loop, self._queue.works, self.threads
        while True:
            while works and threads.idle and not threads.has_io:
                self._begin(works.popleft(), threads.lock_free_ns(self.now_ns))
            if loop.is_queue_full:
                break
            plan = loop.decide(self.now_ns)
            if plan is None:
                break
            loop.dispatch(plan)
        loop.note_room()
        if works and (wanted := min(len(works), threads.idle) - threads.waking) > 0:
            self._wake(wanted)

    def _wake(self, workers: int) -> None:
        """Wake workers that sleep. Their plans stay on the queue until one of them has the GIL: another worker that
        ends its plan before that takes them."""
        awake_ns = self.threads.wake(self.now_ns, workers)
        for _ in range(workers):
            wanted_ns = awake_ns + self.threads.woken_ns(self._number)
            self._push(wanted_ns, LOCK_WANTED, wanted_ns)

    def _begin_when_locked(self, since_ns: int) -> None:
        """Begin a plan on a worker that was woken and has wanted the GIL since then; or let it sleep again."""
        threads = self.threads
        if threads.must_wait(self.now_ns, since_ns):
            self._push(threads.retry_ns, LOCK_WANTED, since_ns)
            return
        threads.waking -= 1
        if self._queue.works:
            self._begin(self._queue.works.popleft(), self.now_ns)

    def _begin(self, work: QueuedPlan, begun_ns: int) -> None:
        """Begin a plan on a worker, which then holds the GIL."""
        plan, claims = work
        assert plan is not None
        self.threads.idle -= 1
        plan.is_begun = True
        if plan.priorities is not None and len(plan.boxes) > 1:
            self._run_operator(self.execution.open(plan, claims, begun_ns), begun_ns)
            return
        effects = self._collect_effects()
        times = self._execute(plan.boxes, claims, begun_ns)
        self._occupy(plan, begun_ns, times, effects, PLAN_ENDED, Finished(plan, times.end_ns - int(begun_ns)))

    def _run_operator(self, run: InterruptiblePlan, begun_ns: int) -> None:
        """Run the next operator of a plan, on a worker that holds the GIL."""
        effects = self._collect_effects()
        times = self.execution.run_operator(run, begun_ns, self.threads.stretch(self.now_ns))
        self._occupy(run.plan, begun_ns, times, effects, OPERATOR_ENDED, run)

    def _end_of(self, ended: Finished | InterruptiblePlan) -> Finished | None:
        """Return the end of a plan of which a worker has ended all, or one operator; None if it goes on."""
        if isinstance(ended, Finished):
            return ended
        if not ended.is_over:
            self._run_operator(ended, self.threads.lock_free_ns(self.now_ns))
            return None
        for arc, train in ended.left():
            self._enqueue((arc,), train)
        return Finished(ended.plan, self.now_ns - ended.begun_ns)

    def _collect_effects(self) -> list[Effect] | None:
        """Have the results of what runs next collected where its end is not known yet, because it needs the GIL."""
        effects: list[Effect] | None = [] if self.threads.has_io else None
        self.execution.effects = effects
        return effects

    def _occupy(
        self,
        plan: Plan,
        begun_ns: int,
        times: PlanTimes,
        effects: list[Effect] | None,
        kind: int,
        what: Finished | InterruptiblePlan,
    ) -> None:
        """Keep a worker busy for this time, with the GIL as long as it needs it."""
        threads, execution = self.threads, self.execution
        execution.effects = None
        end_ns, lock_ns = times
        threads.hold_as_worker(lock_ns)
        self.busy_ns += end_ns - begun_ns
        for unit in plan.units or ():
            self.unit_busy_ns[unit] += end_ns - begun_ns
        if effects is not None and end_ns - lock_ns > BRIEF_NS:
            self._push(end_ns, TUPLES_DONE, (what, effects, end_ns))
            return
        if effects is not None:
            execution.apply(effects, self.now_ns, 0)
        self._push(end_ns, kind, what)

    def _end_with_lock(self, ended: Finished | InterruptiblePlan, effects: list[Effect], since_ns: int) -> bool:
        """Return whether a worker has the GIL again, and with it has ended its work. Otherwise it sleeps until the GIL
        is released, and its results are late by that."""
        late_ns = self.now_ns - since_ns
        if self.threads.must_wait(self.now_ns, since_ns):
            self._push(self.threads.retry_ns, TUPLES_DONE, (ended, effects, since_ns))
            return False
        self.execution.apply(effects, self.now_ns, late_ns)
        self.busy_ns += late_ns
        return True

    def _execute(self, boxes: tuple[int, ...], claims: Mapping[int, Claim], begun_ns: float) -> PlanTimes:
        return self.execution.run(boxes, claims, begun_ns, self.threads.stretch(self.now_ns))

    # -- tuples -------------------------------------------------------------------------------------------------------

    def _admit(self, progress: Callable[[int], None] | None) -> None:
        """Take in the next read."""
        now_ns = self.now_ns
        stream, count = self._reads.take()
        if progress is not None and self._reads.taken % 4096 == 0:
            progress(now_ns)
        train = SimulatedTrain(count, now_ns, now_ns, now_ns)
        self.arrived += count
        self.came_tuples[stream] += count
        self.came_trains[stream] += 1
        idle_plan = self._idle_plans[stream]
        if idle_plan is None or not self._run_idle(*idle_plan, train):
            self._admit_to_queues(stream, train)
        for arc in self._stream_ends[stream]:
            self.execution.deliver_stream(arc, train, now_ns)

    def _admit_to_queues(self, stream: int, train: SimulatedTrain) -> None:
        threads = self.threads
        if threads.has_io:
            threads.hold_as_io(int(threads.lock_free_ns(self.now_ns) + self.overheads.admit_ns + threads.cold_ns))
        arcs, kept = self._stream_arcs[stream], self.execution.drops.kept
        if not kept or kept.keys().isdisjoint(arcs):
            if arcs:
                self._enqueue(arcs, train)
            return
        for arc in arcs:
            if (left := self.execution.drops.thin(arc, train)) is not None:
                self._enqueue((arc,), left)

    def _run_idle(self, arcs: tuple[int, ...], plan: Plan, unit: int, train: SimulatedTrain) -> bool:
        """Run a train on the idle fast path where ``engine/run/idle_path`` would. Return whether it was run."""
        state, drops, threads = self.state, self.execution.drops, self.threads
        if train.count > SHORT_TUPLES or state.outstanding or state.held[unit] or not state.leaves_no_choice():
            return False
        limit = min(state.auto_tuples[self.network.arcs[a].box or 0] for a in arcs)
        if train.count > limit or not drops.kept.keys().isdisjoint(arcs):
            return False
        begun_ns = int(threads.lock_free_ns(self.now_ns) + threads.cold_ns)
        self.storage.pass_by(arcs, train.count)
        end_ns = self.execution.run_idle(plan.boxes, arcs, train, begun_ns).end_ns
        threads.hold_as_io(end_ns)
        self.caller_ns += end_ns - begun_ns
        return True

    def _put_at(self, when_ns: int, arcs: tuple[int, ...], train: SimulatedTrain) -> None:
        self._push(when_ns, TRAIN_PUT, (arcs, train))

    def _enqueue(self, arcs: tuple[int, ...], train: SimulatedTrain) -> None:
        self.storage.enqueue(arcs, train)
        nbytes = int(train.count * self.storage.tuple_bytes[arcs[0]])
        self.state.apply(Enqueued(arcs, train.count, train.first_ns, train.mean_ns, nbytes))

    # -- at the end ---------------------------------------------------------------------------------------------------

    def count_expired(self) -> None:
        """Count the tuples that were dropped on arcs as missed at the outputs: as many as would have come out there."""
        expired = np.array(self.storage.expired_counted, np.float64)
        missing = LoadModel(self.network).yields(expired, self.statistics.port_selectivity)
        for recorder, count in zip(self.recorders, missing.tolist(), strict=True):
            recorder.expired += round(count)
