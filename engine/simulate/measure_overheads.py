"""Measure the engine's overhead beside its boxes, on small networks and at the pace of an engine below its knee.

Below the knee the I/O thread has slept for about a millisecond before a read, and so have the workers. Work that is
done once in a while finds cold caches and sleeping cores, and takes two to four times as long as in a loop. So the
reads of this measurement come at the same pace: after pauses of random length, beside threads that work for half of the
time. The parts of a read's cost come from the engine's own counters (scheduler, storage, worker: figure 9 of P0) and
from stamps:

- A read after a pause, on the idle fast path and to a queue, and another right behind each. The second is the cost of
  a read. The first adds the cost of cold caches and, to a queue, that of waking the scheduler's thread.
- When the reading thread is done it releases the GIL, on which the scheduler's thread has slept since it was woken. The
  time from there until that thread takes its step is the time that any thread takes that has slept. It varies by a
  factor of ten with the state of the other cores, so it is kept as a sample and not as one figure.
- A worker that works for two milliseconds, alone and beside such reads. Its delay, relative to the time that the others
  worked, is what threads lose to each other. On two cores that is more than nothing, although only two threads work at
  once.

Only a box call is measured in a loop, one plan after another: with chains of one box and of five.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import get_ident
from time import perf_counter_ns, sleep, time_ns
from typing import NamedTuple

import numpy as np

from catalog.network import Network
from catalog.qos import QoS
from engine.run.core import Engine
from engine.run.network_file import read_network
from engine.simulate.measure_costs import DRAIN_S, PACE_S, SEED, cores, half_busy, typical, wait_until_quiet
from engine.simulate.overheads import Overheads
from engine.simulate.samples import Samples
from engine.simulate.sketch import NetworkSketch
from qos_monitor.histogram import LatencyRecorder
from router.boundary import SOCKET
from scheduler.state import SchedulerSettings
from scheduler.trains import TrainRule

LOTS = 20
TENTHS = 10
READ_TUPLES = 4
LONG_READS = 3  # within ...
LONG_S = 0.003  # ... the time of the long box, and some more
TURN_S = 0.0006  # long enough for a worker to begin and end its plan
FILTER = """
http: {listen: "off"}
streams:
  s: {schema: {ts: timestamp, x: double}, time: ts}
boxes:
  here: {filter: s, where: "x >= 0"}
outputs:
  o: {from: here, qos: {deadline: 50ms, dead: 500ms}}
"""
BESIDE = FILTER.replace("boxes:", "  w: {schema: {x: double}}\nboxes:\n  long: {universal: w, cost: 2ms}").replace(
    "outputs:", "  there: {universal: s, cost: 50us}\noutputs:\n  p: {from: there}\n  q: {from: long}"
)
QUEUED = SchedulerSettings(idle_fast_path=False)


class QueuedRead(NamedTuple):
    """The cost of a read to a queue, in ns."""

    all_ns: float  # to the thread that brought it, after a pause
    again_ns: float  # the same for a read right behind it
    step_ns: float  # to the scheduler's thread
    claim_ns: float
    plan_ns: float  # to the worker, without the box


def measure_overheads(plans: int = 2_000, reads: int = 200, policy: str = "qos") -> Overheads:
    """Measure the engine's overhead on this machine, now, under this policy."""
    with half_busy():
        call_ns = max(0.0, (_per_plan(5, plans, policy) - _per_plan(1, plans, policy)) / 4)
        idle_first_ns, idle_ns = _idle_reads(reads, policy)
        queued, woken_ns = _queued_reads(reads, policy)
    cold_ns = max(0.0, idle_first_ns - idle_ns)
    return Overheads(
        step_ns=queued.step_ns,
        claim_ns=queued.claim_ns,
        plan_ns=max(0.0, queued.plan_ns - call_ns),
        call_ns=call_ns,
        wake_ns=max(0.0, queued.all_ns - queued.again_ns - cold_ns),
        woken_ns=woken_ns,
        admit_ns=max(1.0, queued.again_ns),
        idle_path_ns=max(0.0, idle_ns - call_ns),
        cold_ns=cold_ns,
        cores=float(cores()),
        sharing=_sharing(reads, policy),
    )


def _per_plan(boxes: int, plans: int, policy: str) -> float:
    """Return the ns that a plan takes in the worker outside its boxes, for a chain of boxes that cost nothing."""
    sketch = NetworkSketch()
    sketch.output(sketch.chain(sketch.stream(), boxes, cost_ns=0.0), QoS(deadline_ns=50_000_000))
    engine, samples = _engine(sketch.network(), policy, SchedulerSettings(train=TrainRule("tuples", 1)))
    engine.start()
    lots: list[float] = []
    try:
        for _ in range(LOTS):
            before = engine.readings.scheduler()
            assert engine.ingress.admit(0, samples.train(0, plans // LOTS))
            assert engine.drain(DRAIN_S)
            after = engine.readings.scheduler()
            lots.append((after.worker_ns - before.worker_ns) / max(1, after.steps - before.steps))
    finally:
        engine.stop()
    return float(typical(np.array(lots)))


def _idle_reads(reads: int, policy: str) -> tuple[float, float]:
    """Return the ns of a read on the idle fast path: after a pause, and right behind another."""
    engine, samples = _engine(read_network(FILTER), policy, None)
    engine.start()
    found: list[tuple[float, float]] = []
    try:
        for pause_s in _pauses_s(reads):
            sleep(pause_s)
            found.append((_read_ns(engine, samples), _read_ns(engine, samples)))
            wait_until_quiet(engine)
    finally:
        engine.stop()
    first_ns, again_ns = typical(np.array(found, np.float64)).tolist()
    return first_ns, again_ns


def _queued_reads(reads: int, policy: str) -> tuple[QueuedRead, tuple[float, ...]]:
    """Measure reads to a queue. Return their cost, and the ns from the release of the GIL until the scheduler's thread
    took its step: the middle of each tenth of them, because a thread that finds no free core waits ten times as
    long."""
    stepped_ns, me = [0], get_ident()

    def now_ns() -> int:
        """The scheduler's thread reads the clock first when it takes a step."""
        if not stepped_ns[0] and get_ident() != me:
            stepped_ns[0] = perf_counter_ns()
        return time_ns()

    engine, samples = _engine(read_network(FILTER), policy, QUEUED, now_ns)
    loop, here, pool = engine.loop, engine.runtimes[0], engine.pool
    engine.start()
    found: list[QueuedRead] = []
    woken_ns: list[float] = []
    try:
        for pause_s in _pauses_s(reads):
            sleep(pause_s)
            before = loop.decision_ns, loop.storage_ns, sum(pool.busy_ns) - here.cost_ns
            stepped_ns[0] = 0
            all_ns, again_ns = _read_ns(engine, samples), _read_ns(engine, samples)
            let_go_ns = perf_counter_ns()
            sleep(TURN_S)
            after = loop.decision_ns, loop.storage_ns, sum(pool.busy_ns) - here.cost_ns
            if stepped_ns[0] > let_go_ns:  # else it had the GIL before: some calls of numpy release it
                woken_ns.append(stepped_ns[0] - let_go_ns)
                found.append(QueuedRead(all_ns, again_ns, *(b - a for a, b in zip(before, after, strict=True))))
            wait_until_quiet(engine)
    finally:
        engine.stop()
    read = QueuedRead(*typical(np.array(found or [QueuedRead(0.0, 0.0, 0.0, 0.0, 0.0)], np.float64)).tolist())
    return read, tuple(np.quantile(woken_ns or [0.0], (np.arange(TENTHS) + 0.5) / TENTHS).tolist())


def _sharing(rounds: int, policy: str) -> float:
    """Measure the share of the time that other threads work which a worker loses to them."""
    engine, samples = _engine(read_network(BESIDE), policy, None)
    runtimes = {runtime.node.name: runtime for runtime in engine.runtimes}
    long, short = runtimes["long"], (runtimes["here"], runtimes["there"])
    engine.start()
    found: list[tuple[float, float, float]] = []
    try:
        for _ in range(rounds):
            alone_ns = long.cost_ns
            _work(engine, samples, [])
            beside_ns, others_ns = long.cost_ns, sum(box.cost_ns for box in short)
            others_ns -= _work(engine, samples, _pauses_s(LONG_READS))
            done_ns = sum(box.cost_ns for box in short)
            found.append((beside_ns - alone_ns, long.cost_ns - beside_ns, done_ns - others_ns))
    finally:
        engine.stop()
    alone_ns, beside_ns, others_ns = typical(np.array(found, np.float64)).tolist()
    lost: float = (beside_ns - alone_ns) / max(others_ns, 1.0)
    return min(1.0, max(0.0, lost))


def _work(engine: Engine, samples: Samples, pauses_s: Sequence[float]) -> int:
    """Give a worker two milliseconds of work, and bring reads after these pauses. Return the ns that the reads took."""
    sleep(PACE_S)
    engine.ingress.admit(1, samples.train(1, 1), SOCKET)
    kept_ns = 0
    for pause_s in pauses_s:
        sleep(pause_s / LONG_READS)
        begun_ns = perf_counter_ns()
        engine.ingress.admit(0, samples.train(0, READ_TUPLES), SOCKET)
        kept_ns += perf_counter_ns() - begun_ns
    sleep(LONG_S)
    wait_until_quiet(engine)
    return kept_ns


def _engine(
    network: Network, policy: str, settings: SchedulerSettings | None, now_ns: Callable[[], int] = time_ns
) -> tuple[Engine, Samples]:
    """Build an engine whose outlets record latencies, as every delivery does, and samples to feed it."""
    recorder, samples = LatencyRecorder(QoS()), Samples(network)
    outlets = [lambda train: recorder.record(train.arrival_ns, time_ns())] * len(network.outputs)
    engine = Engine(
        network,
        outlets,
        workers=2,
        policy=policy,
        settings=settings,
        event_time=samples.event_time(),
        now_ns=now_ns,
    )
    for stream in network.streams:
        samples.train(stream.number, 1)  # the first train takes long
    return engine, samples


def _read_ns(engine: Engine, samples: Samples) -> float:
    """Bring one read. Return the ns that it took this thread, without the box."""
    here = engine.runtimes[0]  # the filter
    box_ns = here.cost_ns
    train = samples.train(0, READ_TUPLES)
    engine.ingress.admit(0, train, SOCKET)
    return time_ns() - int(train.arrival_ns[0]) - (here.cost_ns - box_ns)


def _pauses_s(reads: int) -> list[float]:
    pauses_s: list[float] = np.random.default_rng(SEED).exponential(PACE_S, reads).tolist()
    return pauses_s
