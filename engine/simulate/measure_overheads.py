"""Measure the engine's overhead beside its boxes, on small networks and at the pace of an engine below its knee.

Below the knee the I/O thread has slept for about a millisecond before a read, and so have the workers. Work that is
done once in a while finds cold caches and sleeping cores, and takes two to four times as long as in a loop. So the
reads of this measurement come at the same pace: after pauses of random length, beside threads that work for half of the
time. The parts of a read's cost come from the engine's own counters (scheduler, storage, worker: figure 9 of P0) and
from stamps:

- A read after a pause, and another right behind it. The second is the cost of a read; the first adds the cost of cold
  caches.
- A read that leads to a plan for the I/O thread and one for a worker. Its cost above the first kind, beyond a step and
  a claim, is the cost of waking a worker. When the I/O thread is done it releases the GIL, on which the worker has
  slept since it was woken. The time from there until the worker runs is the time that any thread takes that has slept.
  It varies by a factor of ten with the state of the other cores, so it is kept as a sample and not as one figure.
- A worker that works for two milliseconds, alone and beside such reads. Its delay, relative to the time that the others
  worked, is what threads lose to each other. On two cores that is more than nothing, although only two threads work at
  once.

Only a box call is measured in a loop, one plan after another: with chains of one box and of five.
"""

from __future__ import annotations

from collections.abc import Sequence
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
HANDED = FILTER.replace("outputs:", "  there: {universal: s, cost: 50us}\noutputs:\n  p: {from: there}")
"""The I/O thread runs the filter itself and hands the other box to a worker."""

BESIDE = HANDED.replace("boxes:", "  w: {schema: {x: double}}\nboxes:\n  long: {universal: w, cost: 2ms}").replace(
    "outputs:", "outputs:\n  q: {from: long}"
)


class Read(NamedTuple):
    """The cost of a read to the thread that brought it, in ns."""

    all_ns: float  # from its stamp on, without the boxes
    step_ns: float
    claim_ns: float
    plan_ns: float  # without the boxes


def measure_overheads(plans: int = 2_000, reads: int = 200, policy: str = "qos") -> Overheads:
    """Measure the engine's overhead on this machine, now, under this policy."""
    with half_busy():
        call_ns = max(0.0, (_per_plan(5, plans, policy) - _per_plan(1, plans, policy)) / 4)
        first, again = _reads(reads, policy, SchedulerSettings(unit="box"))
        idle_first, idle = _reads(reads, policy)
        handing, woken_ns = _handed(reads, policy)
    sharing = _sharing(reads, policy)
    return Overheads(
        step_ns=again.step_ns,
        claim_ns=again.claim_ns,
        plan_ns=max(0.0, again.plan_ns - call_ns),
        call_ns=call_ns,
        wake_ns=max(0.0, handing.all_ns - first.all_ns - again.step_ns - again.claim_ns),
        woken_ns=woken_ns,
        admit_ns=max(1.0, again.all_ns - again.step_ns - again.claim_ns - again.plan_ns),
        idle_path_ns=max(0.0, idle.all_ns - call_ns),
        cold_ns=max(0.0, (first.all_ns - again.all_ns + idle_first.all_ns - idle.all_ns) / 2),
        cores=float(cores()),
        sharing=sharing,
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


def _reads(reads: int, policy: str, settings: SchedulerSettings | None = None) -> tuple[Read, Read]:
    """Measure a read whose plan the reading thread runs itself: after a pause, and right behind another."""
    engine, samples = _engine(read_network(FILTER), policy, settings)
    engine.start()
    found: list[tuple[Read, Read]] = []
    try:
        for pause_s in _pauses_s(reads):
            sleep(pause_s)
            found.append((_read(engine, samples), _read(engine, samples)))
            wait_until_quiet(engine)
    finally:
        engine.stop()
    first, again = zip(*found, strict=True)
    return _typical(first), _typical(again)


def _handed(reads: int, policy: str) -> tuple[Read, tuple[float, ...]]:
    """Measure a read that hands a plan to a worker. Return its cost, and the ns from the release of the GIL until the
    worker ran: the middle of each tenth of them, because a thread that finds no free core waits ten times as long."""
    engine, samples = _engine(read_network(HANDED), policy, None)
    begun_ns, me = [0], get_ident()

    def begin(boxes: tuple[int, ...]) -> None:
        if get_ident() != me:
            begun_ns[0] = perf_counter_ns()

    engine.pool.before_plan = begin
    engine.start()
    found: list[Read] = []
    woken_ns: list[float] = []
    try:
        for pause_s in _pauses_s(reads):
            sleep(pause_s)
            found.append(_read(engine, samples))
            let_go_ns = perf_counter_ns()
            sleep(TURN_S)
            if begun_ns[0] > let_go_ns:  # else it had the GIL before: some calls of numpy release it
                woken_ns.append(begun_ns[0] - let_go_ns)
            wait_until_quiet(engine)
    finally:
        engine.stop()
    return _typical(found), tuple(np.quantile(woken_ns or [0.0], (np.arange(TENTHS) + 0.5) / TENTHS).tolist())


def _sharing(rounds: int, policy: str) -> float:
    """Measure the share of the time that other threads work which a worker loses to them."""
    engine, samples = _engine(read_network(BESIDE), policy, None)
    runtimes = {runtime.node.name: runtime for runtime in engine.runtimes}
    long, there = runtimes["long"], runtimes["there"]
    engine.start()
    found: list[tuple[float, float, float]] = []
    try:
        for _ in range(rounds):
            alone_ns = long.cost_ns
            _work(engine, samples, [])
            beside_ns, others_ns = long.cost_ns, there.cost_ns
            others_ns -= _work(engine, samples, _pauses_s(LONG_READS))
            found.append((beside_ns - alone_ns, long.cost_ns - beside_ns, there.cost_ns - others_ns))
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


def _engine(network: Network, policy: str, settings: SchedulerSettings | None) -> tuple[Engine, Samples]:
    """Build an engine whose outlets record latencies, as every delivery does, and samples to feed it."""
    recorder, samples = LatencyRecorder(QoS()), Samples(network)
    outlets = [lambda train: recorder.record(train.arrival_ns, time_ns())] * len(network.outputs)
    engine = Engine(network, outlets, workers=2, policy=policy, settings=settings, event_time=samples.event_time())
    for stream in network.streams:
        samples.train(stream.number, 1)  # the first train takes long
    return engine, samples


def _read(engine: Engine, samples: Samples) -> Read:
    """Bring one read and measure it."""
    loop, here = engine.loop, engine.runtimes[0]  # the filter
    before = loop.decision_ns, loop.storage_ns, engine.pool.caller_ns, here.cost_ns
    train = samples.train(0, READ_TUPLES)
    engine.ingress.admit(0, train, SOCKET)
    all_ns = time_ns() - int(train.arrival_ns[0])
    after = loop.decision_ns, loop.storage_ns, engine.pool.caller_ns, here.cost_ns
    step_ns, claim_ns, caller_ns, box_ns = (b - a for a, b in zip(before, after, strict=True))
    return Read(all_ns - box_ns, step_ns, claim_ns, caller_ns - box_ns)


def _typical(reads: Sequence[Read]) -> Read:
    return Read(*typical(np.array(reads, np.float64)).tolist())


def _pauses_s(reads: int) -> list[float]:
    pauses_s: list[float] = np.random.default_rng(SEED).exponential(PACE_S, reads).tolist()
    return pauses_s
