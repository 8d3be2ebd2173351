"""The real engine on given arrivals, measured in processor time.

The clock is the processor time of all threads of the engine together. The time that other processes take does not
count, and while the engine is idle the clock is set forward to the next arrival. So the engine runs as on a machine
with one processor and nothing else to do, like those of the papers, and a light load does not take long to measure.
(The wall clock was refused: on a shared machine a run at a load of 0.5 was saturated as often as not.)

Arrivals that are due are fed by the worker before its next plan, and by this thread while the engine is idle. A tuple's
latency counts from the time at which it was due.

``TimeLedger`` divides the overhead among scheduler, storage and workers. It is used only where that is plotted, because
each reading of the clock costs a microsecond.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from threading import Lock, get_ident, local
from time import (
    clock_gettime_ns,
    monotonic,
    process_time_ns,
    pthread_getcpuclockid,
    sleep,
    thread_time_ns,
    time_ns,
)
from typing import Any, Protocol, cast

import numpy as np

from catalog.network import Network
from catalog.stats import Statistics
from engine.lab.bench.harness import BenchError
from engine.lab.figures.lab import Deliveries, LabRun
from engine.lab.figures.thread_per_box import ThreadPerBox
from engine.run.core import Engine
from engine.run.tuning import tune_process
from engine.simulate.arrivals import Trains, merge
from engine.simulate.samples import make_train
from scheduler.policies import Policy
from scheduler.state import SchedulerSettings
from storage.train import Train, constant_ns

AT_MOST_S = 240.0  # of wall time, for one run
POLL_S = 0.0005  # to see whether the engine is idle
PARTS = ("scheduler_ns", "storage_ns", "worker_ns")


class Runnable(Protocol):
    """What ``Engine`` and ``ThreadPerBox`` have in common; they differ in how a train is put in."""

    network: Network
    runtimes: Any

    def start(self) -> None: ...

    def is_quiet(self) -> bool: ...

    def stop(self) -> None: ...


class ProcessorClock:
    """Nanoseconds of processor time, starting at the time of day. The thread that made the clock sets it forward.

    That thread only waits and polls, so its own processor time does not count.
    """

    def __init__(self) -> None:
        self._keeper = pthread_getcpuclockid(get_ident())
        self._ahead_ns = 0
        self._ahead_ns = time_ns() - self()

    def __call__(self) -> int:
        return process_time_ns() - clock_gettime_ns(self._keeper) + self._ahead_ns

    def skip_to(self, then_ns: int) -> None:
        self._ahead_ns += max(0, then_ns - self())


def run_real(
    network: Network,
    trains: Mapping[int, Trains],
    policy: str | Policy,
    settings: SchedulerSettings,
    statistics: Statistics,
    *,
    apart: bool = False,
) -> LabRun:
    """Run the engine on arrivals. ``apart`` measures the parts of the overhead to the microsecond."""
    clock = ProcessorClock()
    deliveries = Deliveries(network, statistics, clock)
    name = policy if isinstance(policy, str) else "round_robin"
    engine = Engine(
        network,
        deliveries.outlets,
        workers=1,
        policy=name,
        settings=settings,
        statistics=statistics,
        now_ns=clock,
    )
    if not isinstance(policy, str):
        engine.loop.follow(policy)
    ledger = TimeLedger(engine) if apart else None
    elapsed_ns = drive(engine, trains, clock, ledger)
    reading = engine.readings.scheduler()
    parts = {part: getattr(reading, part) for part in PARTS} if ledger is None else ledger.read(engine)
    return outcome(engine, deliveries, elapsed_ns, plans=reading.steps, **parts)


class TimeLedger:
    """Divide processor time among the parts of the engine: a thread's time goes to the innermost part that it runs.

    The parts are those of figure 2 of P0. Storage: putting trains on queues, on any thread, and taking them off.
    Scheduler: its steps, on any thread that brings an event, also inside a plan. Worker: the rest of a plan without its
    boxes. The time of feeding arrivals counts for none of them. (The engine's own reading is coarser: it counts a put
    and a step inside a plan as the worker's time too.)
    """

    def __init__(self, engine: Engine) -> None:
        self.ns = dict.fromkeys((*PARTS, "feeding"), 0)
        self._inside = local()
        storage: Any = engine.storage
        storage.enqueue = self.of("storage_ns", storage.enqueue)
        storage.take = self.of("storage_ns", storage.take)
        engine.loop.step = self.of("scheduler_ns", engine.loop.step)  # type: ignore[method-assign]
        engine.pool.work = self.of("worker_ns", engine.pool.work)  # type: ignore[method-assign]

    def of(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a function so that its time is counted. Only a worker and the feeding thread write the sums, in turn
        under the GIL; a lost microsecond does no harm."""
        ns, inside = self.ns, self._inside

        def timed(*args: Any) -> Any:
            outer_ns, inside.ns = getattr(inside, "ns", 0), 0
            begun_ns = thread_time_ns()
            try:
                return function(*args)
            finally:
                took_ns = thread_time_ns() - begun_ns
                ns[part] += took_ns - inside.ns
                inside.ns = outer_ns + took_ns

        return timed

    def read(self, engine: Engine) -> dict[str, float]:
        boxes_ns = sum(r.cost_ns for r in engine.runtimes)
        return {part: self.ns[part] - (boxes_ns if part == "worker_ns" else 0) for part in PARTS}


class ArrivalFeeder:
    """Feed the arrivals that are due, on the calling thread. Those of one moment all enter before the next decision."""

    def __init__(self, engine: Runnable, trains: Mapping[int, Trains], clock: Callable[[], int]) -> None:
        times, streams, counts = merge(trains)
        schemas = [s.schema for s in engine.network.streams]
        made = {key: make_train(schemas[key[0]], key[1], seed=0) for key in set(zip(streams, counts, strict=True))}
        self._engine = engine
        self._clock = clock
        self._lock = Lock()
        self._at = 0
        self._times = times
        self._streams = streams
        self._trains = [made[key] for key in zip(streams, counts, strict=True)]
        self.begun_ns = clock()

    @property
    def next_ns(self) -> int | None:
        """The time of the next arrival; None if there are no more."""
        return self.begun_ns + self._times[self._at] if self._at < len(self._times) else None

    def feed_due(self) -> None:
        if not self._lock.acquire(blocking=False):
            return  # another thread feeds
        try:
            while (due_ns := self.next_ns) is not None and due_ns <= self._clock():
                self._feed_group(due_ns)
        finally:
            self._lock.release()

    def _feed_group(self, due_ns: int) -> None:
        end = self._at
        while end < len(self._times) and self._times[end] == self._times[self._at]:
            end += 1
        engine, together = self._engine, end - self._at > 1
        admit = engine.ingress.admit if isinstance(engine, Engine) else cast(ThreadPerBox, engine).feed
        with engine.loop.paused() if together and isinstance(engine, Engine) else nullcontext():
            for i in range(self._at, end):
                train = self._trains[i]
                arrivals = constant_ns(due_ns, train.count)
                admit(self._streams[i], Train(train.schema, train.columns, arrivals, pools=train.pools))
        self._at = end


def drive(
    engine: Runnable, trains: Mapping[int, Trains], clock: ProcessorClock, ledger: TimeLedger | None = None
) -> int:
    """Start, feed each train when it is due, drain, stop; return the time from the start to the end."""
    tune_process()
    engine.start()
    feeder = ArrivalFeeder(engine, trains, clock)
    feed_due = feeder.feed_due if ledger is None else ledger.of("feeding", feeder.feed_due)
    if isinstance(engine, Engine):
        engine.pool.before_plan = lambda boxes: feed_due()
    deadline_s = monotonic() + AT_MOST_S
    try:
        while (due_ns := feeder.next_ns) is not None or not engine.is_quiet():
            if isinstance(engine, Engine) and engine.storage.is_empty():
                engine.loop.drain_mailbox()  # else a plan's end is read only when the scheduler's thread looks again
            if due_ns is not None and engine.is_quiet():
                clock.skip_to(due_ns)
            feed_due()
            if monotonic() > deadline_s:
                raise BenchError(f"the engine was not done after {AT_MOST_S:.0f} s")
            sleep(POLL_S)
        return clock() - feeder.begun_ns
    finally:
        engine.stop()


def outcome(engine: Runnable, deliveries: Deliveries, elapsed_ns: int, **overheads: float) -> LabRun:
    """Collect the results of a run. ``overheads`` are the times outside the boxes; none for threads per box."""
    known: dict[str, Any] = dict.fromkeys((*PARTS, "plans"), 0) | overheads
    return LabRun(
        **deliveries.qualities(),  # type: ignore[arg-type]
        elapsed_ns=float(elapsed_ns),
        box_ns=float(np.sum([r.cost_ns for r in engine.runtimes])),
        calls=int(np.sum([r.calls for r in engine.runtimes])),
        mean_bytes=0.0,
        **known,
    )
