"""The engine measured, so that the simulator can stand in for it: its own overheads, and what boxes cost.

Overheads: chains of universal boxes of no cost run on the real engine, one tuple a plan, and the engine's own counters
(scheduler, storage, worker: figure 9 of P0) are divided by plans and calls. Two lengths of chain tell what a plan costs
from what a call costs. Costs of boxes: the network's own boxes run on made-up tuples in trains of several lengths, and
the daemon's statistics are fitted to what they took.

What is measured depends on the machine and the moment, so nothing here is used unless it is asked for: a simulation
with stored numbers gives the same answer twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic, time_ns
from typing import Any

import numpy as np
import numpy.typing as npt

from catalog.network import Network
from catalog.schema import Schema, Type
from catalog.stats import Statistics
from engine.core import Engine
from engine.simulate.costs import declared
from engine.simulate.execution import Overheads
from engine.simulate.sketch import SCHEMA, Sketch
from scheduler.state import SchedulerSettings
from scheduler.trains import TrainRule
from storage.strings import StringPool
from storage.train import Train, constant_ns

DRAIN_S = 30.0
LOTS = 20
LONG_S = 0.1
TRAINS = (1, 16, 256, 4_096)  # lengths on which costs are fitted
WORDS = tuple(f"w{i:02d}" for i in range(32))


def measure_overheads(plans: int = 2_000) -> Overheads:
    """What the engine spends beside the boxes, on this machine, now."""
    short, long = (_per_plan(boxes, plans) for boxes in (1, 5))
    call_ns = max(0.0, (long[2] - short[2]) / 4)
    return Overheads(
        step_ns=(short[0] + long[0]) / 2,
        claim_ns=(short[1] + long[1]) / 2,
        plan_ns=max(0.0, short[2] - call_ns),
        call_ns=call_ns,
    )


def _per_plan(boxes: int, plans: int) -> tuple[float, float, float]:
    """Nanoseconds a plan in the scheduler, in storage and in the worker outside its boxes."""
    sketch = Sketch()
    sketch.output(sketch.chain(sketch.stream(), boxes, cost_ns=0.0))
    engine = Engine(sketch.network(), [_ignore], workers=1, settings=SchedulerSettings(train=TrainRule("tuples", 1)))
    engine.start()
    lots: list[tuple[float, float, float]] = []
    try:
        for _ in range(LOTS):
            before = engine.scheduler_reading()
            assert engine.feed(0, make_train(SCHEMA, plans // LOTS, seed=0))
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
    # The best lot: whatever else runs on the machine only ever adds.
    scheduler_ns, storage_ns, worker_ns = (min(column) for column in zip(*lots, strict=True))
    return scheduler_ns, storage_ns, worker_ns


def measure_costs(network: Network, rounds: int = 6) -> Statistics:
    """Costs and selectivities of the network's own boxes on made-up tuples.

    Selectivities then are those of made-up values, so what the file declares wins.
    """
    statistics = Statistics(network)
    engine = Engine(network, [_ignore] * len(network.outputs), workers=1, settings=SchedulerSettings(unit="box"))
    before = counts(engine)
    engine.start()
    try:
        for round_number in range(rounds):
            for count in TRAINS:
                begun_s = monotonic()
                for stream in network.streams:
                    assert engine.feed(stream.number, make_train(stream.schema, count, seed=round_number))
                assert engine.drain(DRAIN_S)
                after = counts(engine)
                calls, taken, out, cost_ns = (a - b for a, b in zip(after, before, strict=True))
                statistics.observe_boxes(calls, taken, out, cost_ns, 1_000_000_000)
                before = after
                if monotonic() - begun_s > LONG_S:
                    break  # dear boxes: longer trains would take minutes and teach nothing
    finally:
        engine.stop()
    said = declared(network)
    for node in network.boxes:
        start, stop = int(said.port_start[node.number]), int(said.port_start[node.number + 1])
        if node.selectivity is not None:
            statistics.selectivity[node.number] = said.selectivity[node.number]
            statistics.port_selectivity[start:stop] = said.port_selectivity[start:stop]
        if not statistics.observed_calls[node.number] or node.cost_ns is not None:
            statistics.cost_per_tuple_ns[node.number] = said.cost_per_tuple_ns[node.number]
    statistics.train_tuples[:] = 1.0
    return statistics


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


def make_train(schema: Schema, count: int, seed: int, arrival_ns: int | None = None) -> Train:
    """Made-up tuples: numbers from 0 to 1,000, a few words, half of the booleans true, times from now on."""
    random = np.random.default_rng([seed, count])
    pools = tuple(StringPool(WORDS) if f.type is Type.STRING else None for f in schema)
    columns = tuple(_MAKERS[f.type](random, count).astype(f.type.dtype) for f in schema)
    stamp = time_ns() if arrival_ns is None else arrival_ns
    return Train(schema, columns, constant_ns(stamp, count), pools=pools)


Maker = Callable[[np.random.Generator, int], npt.NDArray[Any]]
_MAKERS: dict[Type, Maker] = {
    Type.BOOLEAN: lambda random, n: random.integers(0, 2, n),
    Type.INT: lambda random, n: random.integers(0, 1_000, n),
    Type.BIGINT: lambda random, n: random.integers(0, 1_000, n),
    Type.FLOAT: lambda random, n: random.random(n) * 1_000,
    Type.DOUBLE: lambda random, n: random.random(n) * 1_000,
    Type.STRING: lambda random, n: random.integers(0, len(WORDS), n),
    Type.TIMESTAMP: lambda random, n: time_ns() + np.arange(n) * 1_000,
}


def _ignore(train: Train) -> None:
    """An outlet that nobody reads."""


def kind_costs() -> dict[str, tuple[float, float]]:
    """ns a call and a tuple of each simple kind, for ``costs.KIND_COSTS``."""
    from engine.load import load_network

    kinds = {
        "filter": '{filter: s, where: "x > 500"}',
        "map": '{map: s, select: {ts: ts, y: "x * n"}}',
        "case": '{case: s, when: {a: "x > 500"}, otherwise: b}',
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
