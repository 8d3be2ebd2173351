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

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from threading import Lock, get_ident, local
from time import (
    clock_gettime_ns,
    process_time_ns,
    pthread_getcpuclockid,
    sleep,
    thread_time,
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
from router.event_time import EventTime
from scheduler.policies import Policy
from scheduler.state import SchedulerSettings
from storage.train import Train, constant_ns

AT_MOST_S = 240.0  # of the engine's processor time, for one run
POLLING_AT_MOST_S = 60.0
"""Of the processor time of the thread that waits for the engine: some ten minutes. Neither limit counts the time of
other processes, so a busy machine ends no run."""
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
        return self.busy_ns() + self._ahead_ns

    def busy_ns(self) -> int:
        """Return the processor time alone, without the time that was skipped."""
        return process_time_ns() - clock_gettime_ns(self._keeper)

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
    engine = make_engine(network, deliveries.outlets, policy, settings, statistics, clock)
    ledger = TimeLedger(engine) if apart else None
    begun_ns = clock.busy_ns()
    elapsed_ns = drive(engine, trains, clock, ledger)
    reading = engine.readings.scheduler()
    parts = {part: getattr(reading, part) for part in PARTS}
    if ledger is not None:
        parts = ledger.read(clock.busy_ns() - begun_ns)
    return outcome(engine, deliveries, elapsed_ns, plans=reading.steps, **parts)


def make_engine(
    network: Network,
    outlets: Sequence[Callable[..., None]],
    policy: str | Policy,
    settings: SchedulerSettings,
    statistics: Statistics,
    clock: ProcessorClock,
    *,
    event_time: EventTime | None = None,
    one_by_one: bool = False,
) -> Engine:
    """Make an engine with one worker. ``one_by_one``: a decision is made when the worker is free, and not ahead."""
    name = policy if isinstance(policy, str) else "round_robin"
    engine = Engine(
        network, outlets, workers=1, policy=name, settings=settings, statistics=statistics, now_ns=clock,
        event_time=event_time,
    )  # fmt: skip
    if not isinstance(policy, str):
        engine.loop.follow(policy)
    if one_by_one:
        engine.loop.plans_at_least, engine.loop.ahead_ns = 1, 0
    return engine


class TimeLedger:
    """Divide processor time among the parts of the engine: a thread's time goes to the innermost part that it runs.

    The parts are those of figure 2 of P0. Storage: putting trains on queues, on any thread, and taking them off.
    Scheduler: its steps. Boxes: their calls, without what these put on queues. Worker: all other processor time of the
    engine, that is the rest of its plans and of the hand-over between threads. The time of feeding arrivals counts for
    none of them. The thread that made the ledger, and that waits for the engine, is no part of it either; but what it
    puts on queues is the storage manager's work. All of it is read from the processor time of threads, so the parts add
    up. (The engine's own reading is in wall time, and it counts a put and a step inside a plan as the worker's time
    too.)

    ``boxes_only``: read the clock only around box calls. All of the overhead is then the worker's.
    """

    def __init__(self, engine: Engine, *, boxes_only: bool = False) -> None:
        self.ns = dict.fromkeys((*PARTS, "box_ns", "feeding"), 0)
        self._inside = local()
        self._keeper = get_ident()
        self._kept_ns = 0  # of the time that is divided, that of this thread
        if not boxes_only:
            storage: Any = engine.storage
            storage.enqueue = self.of("storage_ns", storage.enqueue)
            storage.take = self.of("storage_ns", storage.take)
            engine.loop.step = self.of("scheduler_ns", engine.loop.step)  # type: ignore[method-assign]
        for runtime in engine.runtimes:
            box: Any = runtime.box
            box.run = self.of("box_ns", type(box).run.__get__(box))

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
                if get_ident() == self._keeper:
                    self._kept_ns += took_ns - inside.ns
                inside.ns = outer_ns + took_ns

        return timed

    def read(self, busy_ns: float) -> dict[str, float]:
        """Return the parts of the processor time that the engine took: ``busy_ns``, which is without that of the thread
        that made the ledger, and what this thread has put on queues."""
        rest_ns = busy_ns + self._kept_ns - sum(self.ns.values())
        return {**{part: self.ns[part] for part in (*PARTS, "box_ns")}, "worker_ns": rest_ns}


class ArrivalFeeder:
    """Feed the arrivals that are due, on the calling thread. Those of one moment all enter before the next decision."""

    def __init__(
        self, engine: Runnable, trains: Mapping[int, Trains], clock: Callable[[], int], beats_ns: int = 0
    ) -> None:
        times, streams, counts = merge(with_beats(trains, beats_ns) if beats_ns else trains)
        schemas = [s.schema for s in engine.network.streams]
        made = {
            key: make_train(schemas[key[0]], key[1], seed=0) for key in set(zip(streams, counts, strict=True)) if key[1]
        }
        self._engine = engine
        self._clock = clock
        self._lock = Lock()
        self._at = 0
        self._times = times
        self._streams = streams
        self._trains = [made.get(key) for key in zip(streams, counts, strict=True)]  # None: a heartbeat
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
                if train is None:
                    cast(Engine, engine).ingress.heartbeat(self._streams[i], due_ns)
                    continue
                arrivals = constant_ns(due_ns, train.count)
                admit(self._streams[i], Train(train.schema, train.columns, arrivals, pools=train.pools))
        self._at = end


def with_beats(trains: Mapping[int, Trains], every_ns: int) -> dict[int, Trains]:
    """Add heartbeats to all streams: trains of no tuples, a little after the last tuple, too."""
    last_ns = max(int(times[-1]) for times, _ in trains.values() if len(times))
    beats = np.arange(every_ns, last_ns + 3 * every_ns, every_ns)
    out: dict[int, Trains] = {}
    for stream, (times, counts) in trains.items():
        moments = np.concatenate([times, beats])
        order = np.argsort(moments, kind="stable")
        out[stream] = moments[order], np.concatenate([counts, np.zeros(len(beats), np.int64)])[order]
    return out


def drive(
    engine: Runnable,
    trains: Mapping[int, Trains],
    clock: ProcessorClock,
    ledger: TimeLedger | None = None,
    until_ns: int | None = None,
    beats_ns: int = 0,
) -> int:
    """Start, feed each train when it is due, drain, stop; return the time from the start to the end.

    ``until_ns``: stop at this time, whatever still waits. ``beats_ns``: send heartbeats on all streams in this
    interval.
    """
    tune_process()
    engine.start()
    feeder = ArrivalFeeder(engine, trains, clock, beats_ns)
    feed_due = feeder.feed_due if ledger is None else ledger.of("feeding", feeder.feed_due)
    if isinstance(engine, Engine):
        engine.pool.before_plan = lambda boxes: feed_due()
    begun_ns, limit_ns = feeder.begun_ns, clock.busy_ns() + AT_MOST_S * 1e9
    polling_until_s = thread_time() + POLLING_AT_MOST_S
    try:
        while (due_ns := feeder.next_ns) is not None or not engine.is_quiet():
            if isinstance(engine, Engine) and engine.storage.is_empty():
                engine.loop.drain_mailbox()  # else a plan's end is read only when the scheduler's thread looks again
            if until_ns is not None and clock() - feeder.begun_ns >= until_ns:
                break
            if engine.is_quiet() or is_waiting_for_time(engine):
                if due_ns is None and until_ns is None:
                    break  # the policy keeps what is left for arrivals that do not come
                clock.skip_to(due_ns if due_ns is not None else begun_ns + (until_ns or 0))
            feed_due()
            if clock.busy_ns() > limit_ns or thread_time() > polling_until_s:
                raise BenchError(f"the engine was not done after {AT_MOST_S:.0f} s of processor time, or stood still")
            sleep(POLL_S)
        return clock() - feeder.begun_ns
    finally:
        engine.stop()


def is_waiting_for_time(engine: Runnable) -> bool:
    """Tell whether tuples wait, nothing runs, and the policy wants none of them yet: batches that are not full."""
    if not isinstance(engine, Engine) or engine.state.outstanding:
        return False
    engine.loop.drain_mailbox()
    is_idle = not engine.state.outstanding
    return is_idle and engine.loop.is_resting


def outcome(engine: Runnable, deliveries: Deliveries, elapsed_ns: int, **overheads: float) -> LabRun:
    """Collect the results of a run. ``overheads`` are the times outside the boxes; none for threads per box."""
    boxes_ns = float(np.sum([r.cost_ns for r in engine.runtimes]))
    known: dict[str, Any] = dict.fromkeys((*PARTS, "plans"), 0) | {"box_ns": boxes_ns} | overheads
    return LabRun(
        **deliveries.qualities(),  # type: ignore[arg-type]
        elapsed_ns=float(elapsed_ns),
        calls=int(np.sum([r.calls for r in engine.runtimes])),
        mean_bytes=0.0,
        **known,
    )
