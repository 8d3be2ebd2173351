"""The engine measured, so that the simulator can stand in for it: its own overheads, and what boxes cost.

Overheads, in a busy engine: chains of one and of five universal boxes of no cost run one tuple a plan, and the engine's
own counters (scheduler, storage, worker: figure 9 of P0) are divided by plans and calls.

And at rest, as a read finds it below the knee: on a network of one box, the thread that brings a tuple has slept for a
millisecond, and so have the workers. What is done once in a while finds cold caches and sleeping cores, and takes two
to four times as long as in a loop. What a read takes beyond the figures of the busy engine belongs to the thread that
brings it: the first after the sleep shows what cold costs, the one behind it what a read costs itself. What it takes to
run for a thread that slept is seen where it shows alone: a worker has been woken and sleeps on Python's lock, and the
lock is let go.

Costs of boxes: the network's own boxes run on a sample of tuples in trains of several lengths.

What is measured depends on the machine and the moment, so nothing here is used unless it is asked for: a simulation
with stored numbers gives the same answer twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os import sched_getaffinity
from threading import Event, Thread
from time import monotonic, perf_counter_ns, sleep, time_ns

import numpy as np
import numpy.typing as npt

from catalog.network import Network
from catalog.qos import QoS
from catalog.stats import Statistics
from engine.boxes.universal import spend
from engine.core import Engine
from engine.load import load_network
from engine.simulate.costs import declared
from engine.simulate.overheads import Overheads
from engine.simulate.samples import Samples
from engine.simulate.sketch import Sketch
from qos_monitor.histogram import LatencyRecorder
from scheduler.state import SchedulerSettings
from scheduler.trains import TrainRule
from storage.train import Train

DRAIN_S = 30.0
PACE_S = 0.001
NAP_S = 0.0002
BURN_NS = 500_000
TYPICAL = 0.9  # of what was measured
LOTS = 20
LONG_S = 0.1
TRAINS = (1, 1, 2, 2, 1, 2, 16, 256, 4_096)  # lengths on which costs are fitted
APART = 4.0  # lengths this many times as long as the shortest tell the cost of a tuple from that of a call
ONE_BOX = """
http: {{listen: "off"}}
streams:
  s: {{schema: {{ts: timestamp, x: double}}, time: ts}}
boxes:
  b: {}
outputs:
  o: {{from: b, qos: {{deadline: 50ms, dead: 500ms}}}}
"""
FILTER = ONE_BOX.format('{filter: s, where: "x >= 0"}')  # which the thread that brings a tuple runs itself
HANDED = ONE_BOX.format("{universal: s}")  # which a worker runs
HOLD_NS = 300_000  # longer than a thread needs to wake

Floats = npt.NDArray[np.float64]


@contextmanager
def half_busy() -> Iterator[None]:
    """Another thread works for half of the time, as workers do at the loads for which costs are wanted: on a machine
    that does nothing else code runs up to twice as fast, because a core has caches and clock for itself."""
    ended = Event()

    def burn() -> None:
        while not ended.wait(BURN_NS / 1e9):
            spend(BURN_NS)

    thread = Thread(target=burn, name="calibrate", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def measure_overheads(plans: int = 2_000, reads: int = 200, policy: str = "qos") -> Overheads:
    """What the engine spends beside the boxes, on this machine, now, under this policy."""
    with half_busy():
        one, five = (_per_plan(boxes, plans, policy) for boxes in (1, 5))
        first_ns, again_ns = _reads(FILTER, reads, policy, SchedulerSettings(unit="box"))
        short_first_ns, short_ns = _reads(FILTER, reads, policy)
        handed_ns, _ = _reads(HANDED, reads, policy)
        woken_ns = _woken_ns(reads, policy)
    call_ns = max(0.0, (five[2] - one[2]) / 4)
    step_ns, claim_ns, plan_ns = (one[0] + five[0]) / 2, (one[1] + five[1]) / 2, max(0.0, one[2] - call_ns)
    return Overheads(
        step_ns=step_ns,
        claim_ns=claim_ns,
        plan_ns=plan_ns,
        call_ns=call_ns,
        wake_ns=max(0.0, handed_ns - first_ns + plan_ns + call_ns),
        woken_ns=woken_ns,
        admit_ns=max(1.0, again_ns - step_ns - claim_ns - plan_ns - call_ns),
        short_ns=short_ns,
        cold_ns=max(0.0, (first_ns - again_ns + short_first_ns - short_ns) / 2),
        cores=float(len(sched_getaffinity(0))),
    )


def _chain(boxes: int) -> Network:
    sketch = Sketch()
    sketch.output(sketch.chain(sketch.stream(), boxes, cost_ns=0.0))
    return sketch.network()


def _per_plan(boxes: int, plans: int, policy: str) -> tuple[float, float, float]:
    """Nanoseconds a plan in the scheduler, in storage and in the worker outside its boxes, one plan after another."""
    network = _chain(boxes)
    settings = SchedulerSettings(train=TrainRule("tuples", 1))
    engine, samples = _engine(network, policy, settings, workers=1)
    engine.start()
    lots: list[tuple[float, float, float]] = []
    try:
        for _ in range(LOTS):
            before = engine.scheduler_reading()
            assert engine.feed(0, samples.train(0, plans // LOTS))
            assert engine.drain(DRAIN_S)
            after = engine.scheduler_reading()
            steps = max(1, after.steps - before.steps)
            lots.append((
                (after.scheduler_ns - before.scheduler_ns) / steps,
                (after.storage_ns - before.storage_ns) / steps,
                (after.worker_ns - before.worker_ns) / steps,
            ))  # fmt: skip
    finally:
        engine.stop()
    scheduler_ns, storage_ns, worker_ns = typical(np.array(lots)).tolist()
    return scheduler_ns, storage_ns, worker_ns


def _engine(network: Network, policy: str, settings: SchedulerSettings | None, workers: int) -> tuple[Engine, Samples]:
    """An engine whose outlet does what every delivery does, and what to feed it."""
    recorder, samples = LatencyRecorder(QoS()), Samples(network)
    engine = Engine(
        network,
        [lambda train: recorder.record(train.arrival_ns, time_ns())],
        workers=workers,
        policy=policy,
        settings=settings,
        stamps=samples.stamps(),
    )
    return engine, samples


def _reads(text: str, reads: int, policy: str, settings: SchedulerSettings | None = None) -> tuple[float, float]:
    """ns that a read keeps the thread that brings it, from its stamp on and beside its boxes: after a sleep, and right
    behind another."""
    engine, samples = _engine(load_network(text), policy, settings, workers=2)
    engine.start()
    found: list[list[float]] = []
    try:
        for _ in range(reads):
            sleep(PACE_S)
            found.append([_read(engine, samples), _read(engine, samples)])
            _settle(engine)
    finally:
        engine.stop()
    first_ns, again_ns = typical(np.array(found)).tolist()
    return first_ns, again_ns


def _read(engine: Engine, samples: Samples) -> float:
    before_ns = sum(r.cost_ns for r in engine.runtimes)
    train = samples.train(0, 1)
    engine.admit_here(0, train)
    return float(time_ns() - train.arrival_ns[0]) - (sum(r.cost_ns for r in engine.runtimes) - before_ns)


def _woken_ns(reads: int, policy: str) -> float:
    """ns until a thread that slept runs: a worker that has been woken and sleeps on Python's lock, since the lock was
    let go."""
    engine, samples = _engine(load_network(HANDED), policy, None, workers=2)
    begun_ns = [0]

    def begin(boxes: tuple[int, ...]) -> None:
        begun_ns[0] = perf_counter_ns()

    engine.pool.before_plan = begin
    engine.start()
    found: list[float] = []
    try:
        for _ in range(reads):
            sleep(PACE_S)
            engine.admit_here(0, samples.train(0, 1))
            held_ns = perf_counter_ns()
            while (now_ns := perf_counter_ns()) - held_ns < HOLD_NS:
                pass
            sleep(PACE_S)
            found.append(begun_ns[0] - now_ns)
            _settle(engine)
    finally:
        engine.stop()
    return max(0.0, float(typical(np.array(found))))


def _settle(engine: Engine) -> None:
    """Until nothing waits and nothing runs. Not by ``drain``, whose naps of 2 ms make everything colder than it is; and
    the end of the last plan is read at once, not with the next turn of the scheduler's thread, 20 ms later."""
    until_s = monotonic() + DRAIN_S
    engine.loop.settle()
    while not engine.is_quiet():
        assert monotonic() < until_s, "what was fed takes too long"
        sleep(NAP_S)
        engine.loop.settle()


def measure_costs(
    network: Network, rounds: int = 6, settings: SchedulerSettings | None = None, workers: int = 1
) -> Statistics:
    """Costs and selectivities of the network's own boxes on a sample of tuples, under these units and trains, each run
    by the thread that would run it: a box costs more on a worker that has just been woken than behind another.

    Selectivities then are those of the sample, so what the file declares wins.
    """
    statistics = declared(network)
    said = declared(network)
    samples = Samples(network)
    outlets = [_ignore] * len(network.outputs)
    engine = Engine(network, outlets, workers=workers, settings=settings, stamps=samples.stamps())
    engine.expire(False)
    first = counts(engine)
    lots: list[tuple[Floats, Floats]] = []  # tuples a call and ns a call, by box
    engine.start()
    try:
        with half_busy():
            for _ in range(rounds):
                lots += _costs_by_length(engine, samples)
    finally:
        engine.stop()
    calls, taken, out, _ = (a - b for a, b in zip(counts(engine), first, strict=True))
    statistics.observed_calls[:] = calls
    for node in network.boxes:
        number = node.number
        start, stop = int(statistics.port_start[number]), int(statistics.port_start[number + 1])
        if node.selectivity is None and taken[number]:
            statistics.port_selectivity[start:stop] = out[start:stop] / taken[number]
            statistics.selectivity[number] = out[start:stop].sum() / taken[number]
        if calls[number]:
            lengths, costs_ns = (np.array([lot[i][number] for lot in lots]) for i in (0, 1))
            a, b = fit(lengths, costs_ns, float(said.cost_per_tuple_ns[number]))
            statistics.cost_per_call_ns[number] = a
            statistics.cost_per_tuple_ns[number] = b if node.cost_ns is None else said.cost_per_tuple_ns[number]
    statistics.train_tuples[:] = 1.0
    return statistics


def _costs_by_length(engine: Engine, samples: Samples) -> list[tuple[Floats, Floats]]:
    """By box, tuples a call and ns a call, for one length of train after the other."""
    lots: list[tuple[Floats, Floats]] = []
    before = counts(engine)
    for count in TRAINS:
        begun_s = monotonic()
        for stream in engine.network.streams:
            sleep(PACE_S)
            engine.admit_here(stream.number, samples.train(stream.number, count))
        _settle(engine)
        after = counts(engine)
        calls, taken, _, cost_ns = (a - b for a, b in zip(after, before, strict=True))
        made = np.where(calls > 0, calls, np.nan)
        lots.append((taken / made, cost_ns / made))
        before = after
        if monotonic() - begun_s > LONG_S:
            break  # dear boxes: longer trains would take minutes and teach nothing
    return lots


def typical(values: Floats) -> Floats:
    """The mean along the first axis without the highest tenth. A way of several parts takes as long as their means
    together, which is more than their medians together where some waits are long; what others on the machine took is
    in the tenth that is left out."""
    ordered = np.sort(values, axis=0)
    found: Floats = ordered[: max(1, int(len(ordered) * TYPICAL))].mean(axis=0)
    return found


def fit(tuples: Floats, cost_ns: Floats, guess_ns: float) -> tuple[float, float]:
    """ns a call and a tuple: the shortest trains and the longest, and the line between them. ``guess_ns``
    a tuple where all trains were of one length."""
    there = ~np.isnan(tuples)
    tuples, cost_ns = tuples[there], cost_ns[there]
    short, long = tuples <= 2 * tuples.min(), tuples >= tuples.max() / 2
    low, low_ns = float(np.median(tuples[short])), float(typical(cost_ns[short]))
    high, high_ns = float(np.median(tuples[long])), float(typical(cost_ns[long]))
    each_ns = max(0.0, (high_ns - low_ns) / (high - low)) if high >= APART * low else min(guess_ns, low_ns / low)
    if low_ns >= each_ns * low:
        return low_ns - each_ns * low, each_ns
    return 0.0, low_ns / low


def counts(engine: Engine) -> tuple[npt.NDArray[np.int64], ...]:
    """Calls, tuples in, tuples out by port and time spent, of all boxes since the start."""
    runtimes = engine.runtimes
    columns: Sequence[list[int]] = (
        [r.calls for r in runtimes],
        [r.tuples_in for r in runtimes],
        [n for r in runtimes for n in (r.tuples_out or [0])],
        [r.cost_ns for r in runtimes],
    )
    return tuple(np.array(column, np.int64) for column in columns)


def _ignore(train: Train) -> None:
    """An outlet that nobody reads."""


def kind_costs() -> dict[str, tuple[float, float]]:
    """ns a call and a tuple of each simple kind, for ``costs.KIND_COSTS``."""
    kinds = {
        "filter": '{filter: s, where: "x > 50"}',
        "map": '{map: s, select: {ts: ts, y: "x * n"}}',
        "case": '{case: s, when: {a: "x > 50"}, otherwise: b}',
        "union": "{union: [s, s2]}",
        "universal": "{universal: s}",
        "aggregate": '{aggregate: s, window: {tumbling: 1s}, by: [k], select: {m: "avg(x)"}}',
        "dedup": "{dedup: s, by: [k], within: 1s}",
        "bsort": "{bsort: s, by: x, slack: 100}",
        "latest": "{latest: s, by: [k]}",
    }
    schema = "{ts: timestamp, x: double, n: int, k: string}"
    out: dict[str, tuple[float, float]] = {}
    for kind, box in kinds.items():
        port = "b.a" if kind == "case" else "b"
        streams = f"streams:\n  s: {{schema: {schema}, time: ts}}\n  s2: {{schema: {schema}, time: ts}}\n"
        text = f'http: {{listen: "off"}}\n{streams}boxes:\n  b: {box}\noutputs:\n  o: {{from: {port}}}\n'
        statistics = measure_costs(load_network(text))
        out[kind] = float(statistics.cost_per_call_ns[0]), float(statistics.cost_per_tuple_ns[0])
    return out
