"""The workloads on which ``policy: auto`` is held against every fixed policy.

Those of the papers' figures that are about quality of service, and the demo:

- P0 11: 20 applications of five boxes in a row, tight and loose graphs given out at random.
- P0 13: 200 applications of five boxes in a row, graphs of many shapes.
- P4 8: 100 queries of one to three boxes with deadlines, a scheduling step that costs more than a task; a task that is
  late is worth nothing.
- ``configs/demo.yaml``.

All are run by one worker but the demo, which says itself how many. Tuples come by Poisson; a load is a share of what
the boxes alone can do, so with overheads a network is full below 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from catalog.network import Network
from catalog.qos import QoS, QoSGraph
from catalog.stats import Statistics
from engine.load import load_network
from engine.simulate.arrivals import Trains, arrivals
from engine.simulate.core import Overheads
from engine.simulate.costs import declared
from engine.simulate.experiment import capacity_rates
from engine.simulate.sketch import Sketch
from scheduler.state import BatchRule, SchedulerSettings

SECOND = 1_000_000_000
TIGHT = QoSGraph(((0.0, 1.0), (0.001 * SECOND, 1.0), (1.0 * SECOND, 0.0)))
LOOSE = QoSGraph(((0.0, 1.0), (4.0 * SECOND, 1.0), (5.0 * SECOND, 0.0)))
DEMO = Path(__file__).resolve().parents[2] / "configs" / "demo.yaml"


@dataclass(frozen=True)
class Workload:
    """A network at one load, with the settings that everyone gets."""

    name: str
    load: float
    network: Network
    statistics: Statistics
    trains: Mapping[int, Trains]
    workers: int = 1
    settings: SchedulerSettings = field(default_factory=lambda: SchedulerSettings(traversal="auto"))
    overheads: Overheads = field(default_factory=Overheads)

    @property
    def case(self) -> str:
        return f"{self.name} load {self.load:g}"


def figure_11(seed: int) -> tuple[Network, SchedulerSettings]:
    random, sketch = Random(seed), Sketch()
    for _ in range(20):
        graph = random.choice((TIGHT, LOOSE))
        costs = [random.uniform(1e5, 1e6) for _ in range(5)]
        tap = sketch.stream()
        for cost_ns in costs:
            tap = sketch.box(tap, cost_ns=cost_ns)
        sketch.output(tap, QoS(graph, deadline_ns=int(graph.points[1][0])))
    return sketch.network(), SchedulerSettings(traversal="auto")


def figure_13(seed: int) -> tuple[Network, SchedulerSettings]:
    random, sketch = Random(seed), Sketch()
    for _ in range(200):
        good = random.uniform(0.0, 0.5) * SECOND
        dead = good + random.uniform(0.1, 2.0) * SECOND
        graph = QoSGraph(((0.0, 1.0), (good, 1.0), (dead, 0.0)))
        tap = sketch.stream()
        for _ in range(5):
            tap = sketch.box(tap, cost_ns=random.uniform(1e5, 1e6))
        sketch.output(tap, QoS(graph, deadline_ns=int(good)))
    return sketch.network(), SchedulerSettings(traversal="auto")


def figure_p4(seed: int) -> tuple[Network, SchedulerSettings]:
    random, sketch = Random(seed), Sketch()
    for _ in range(100):
        tap = sketch.stream()
        for _ in range(random.randint(1, 3)):
            tap = sketch.box(tap, cost_ns=random.uniform(1e4, 2e5), selectivity=0.5)
        deadline = random.uniform(0.4, 2.0) * SECOND
        worthless = QoSGraph(((0.0, 1.0), (deadline, 1.0), (deadline + 1_000.0, 0.0)))
        sketch.output(tap, QoS(worthless, deadline_ns=int(deadline)))
    batch = BatchRule(basic_ns=SECOND // 25, step_ns=500_000)
    return sketch.network(), SchedulerSettings(traversal="auto", batch=batch)
