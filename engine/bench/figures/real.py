"""The real engine on given arrivals, on a processor of its own.

Time here is the processor time of the engine's threads, all together: what the neighbours on a shared machine take
does not count, and while nothing is to be done the clock is set forward to the next arrival. So the engine runs as on a
machine with one processor and nothing else to do, as the papers' did, and a light load does not take long to measure.
(What is refused: the wall clock. On a machine with neighbours a run at a load of 0.5 was saturated as often as not.)

Arrivals that are due are fed before a worker takes up its next plan, on its own thread, and by this thread when the
engine rests. A tuple's latency counts from the moment at which it was due.

Whose time it was (``Ledger``) is asked only where it is plotted: each look costs a microsecond.
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
from typing import Any, Protocol

import numpy as np

from catalog.network import Network
from catalog.stats import Statistics
from engine.bench.figures.lab import Deliveries, Outcome
from engine.bench.harness import BenchError
from engine.core import Engine
from engine.simulate.arrivals import Trains
from engine.simulate.core import merge
from engine.simulate.samples import make_train
from engine.tuning import tune_process
from scheduler.policies import Policy
from scheduler.state import SchedulerSettings
from storage.train import Train, constant_ns

AT_MOST_S = 240.0  # of wall time, for one run
LOOK_EVERY_S = 0.0005  # whether the engine rests
PARTS = ("scheduler_ns", "storage_ns", "worker_ns")


class Runnable(Protocol):
    """``Engine`` or ``ThreadPerBox``."""

    network: Network
    runtimes: Any

    def start(self) -> None: ...

    def feed(self, stream: int, train: Train, timeout_s: float | None = None) -> bool: ...

    def is_quiet(self) -> bool: ...

    def stop(self) -> None: ...


class ProcessorClock:
    """Nanoseconds of processor time, starting at the time of day; set forward by the thread that made it.

    That thread only waits and looks, by the wall clock, so what it spends is left out.
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
) -> Outcome:
    """``apart``: keep the parts of the overhead apart to the microsecond."""
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
    ledger = Ledger(engine) if apart else None
    elapsed_ns = drive(engine, trains, clock, ledger)
    reading = engine.scheduler_reading()
    parts = {part: getattr(reading, part) for part in PARTS} if ledger is None else ledger.read(engine)
    return outcome(engine, deliveries, elapsed_ns, plans=reading.steps, **parts)


class Ledger:
    """Whose time it was: that of a thread goes to the innermost part that it is in.

    The parts are those of P0's figure 2. The storage manager puts trains on queues, also for a worker and for who
    brings arrivals, and takes them off, for the scheduler. The scheduler takes its turn on any thread that brings news,
    also inside a plan. What is left of a plan, without its boxes, is the worker's. What it takes to bring the arrivals
    is nobody's. (The engine's own reading is coarser: it counts a put and a turn inside a plan as the worker's, too.)
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
        """The function, its time written down. One worker and one who feeds: they take turns under Python's lock, and
        a sum that loses a microsecond to the other is no harm."""
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


class Feeder:
    """Feeds what is due, on whichever thread asks; what is due at one moment is there before anything is decided."""

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
        """When the next arrival is due; None when there are no more."""
        return self.begun_ns + self._times[self._at] if self._at < len(self._times) else None

    def feed_due(self) -> None:
        if not self._lock.acquire(blocking=False):
            return  # another thread is at it
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
        with engine.loop.held() if together and isinstance(engine, Engine) else nullcontext():
            for i in range(self._at, end):
                train = self._trains[i]
                arrivals = constant_ns(due_ns, train.count)
                engine.feed(self._streams[i], Train(train.schema, train.columns, arrivals, pools=train.pools))
        self._at = end


def drive(engine: Runnable, trains: Mapping[int, Trains], clock: ProcessorClock, ledger: Ledger | None = None) -> int:
    """Start, feed each train when it is due, drain, stop; how long it took from the start."""
    tune_process()
    engine.start()
    feeder = Feeder(engine, trains, clock)
    feed_due = feeder.feed_due if ledger is None else ledger.of("feeding", feeder.feed_due)
    if isinstance(engine, Engine):
        engine.pool.before_plan = lambda boxes: feed_due()
    deadline_s = monotonic() + AT_MOST_S
    try:
        while (due_ns := feeder.next_ns) is not None or not engine.is_quiet():
            if isinstance(engine, Engine) and engine.storage.is_empty():
                engine.loop.settle()  # else a plan's end is read only when the scheduler's thread looks again
            if due_ns is not None and engine.is_quiet():
                clock.skip_to(due_ns)
            feed_due()
            if monotonic() > deadline_s:
                raise BenchError(f"the engine was not done after {AT_MOST_S:.0f} s")
            sleep(LOOK_EVERY_S)
        return clock() - feeder.begun_ns
    finally:
        engine.stop()


def outcome(engine: Runnable, deliveries: Deliveries, elapsed_ns: int, **overheads: float) -> Outcome:
    """``overheads``: what is known beside the boxes; nothing for an engine without a scheduler."""
    known: dict[str, Any] = dict.fromkeys((*PARTS, "plans"), 0) | overheads
    return Outcome(
        **deliveries.qualities(),  # type: ignore[arg-type]
        elapsed_ns=float(elapsed_ns),
        box_ns=float(np.sum([r.cost_ns for r in engine.runtimes])),
        calls=int(np.sum([r.calls for r in engine.runtimes])),
        mean_bytes=0.0,
        **known,
    )
