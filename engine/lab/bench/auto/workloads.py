"""The workloads on which ``policy: auto`` is held against every fixed policy.

They are those figures of the papers that are about quality of service, and the demo:

- P0 11: 20 applications of five boxes in a row, with tight or loose graphs at random. It runs in bursts,
  one box at a time, and as in a daemon (superboxes, Poisson arrivals).
- P0 13: 200 applications of five boxes in a row, graphs of many shapes; likewise.
- P4 8: 100 queries of one to three boxes with deadlines; a scheduling step costs more than a task, and a late task is
  worth nothing.
- ``configs/demo.yaml``.

One worker runs each of them; the demo's file sets its own number. A load is a share of the capacity of the boxes alone,
so with overheads a network saturates below 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import NamedTuple

import numpy as np

from catalog.network import Network
from catalog.qos import QoS, QoSGraph
from catalog.stats import Statistics
from engine.lab.figures.p0_testbed import COST_NS, rate_at_capacity, trees
from engine.run.declared_costs import declared_costs
from engine.run.network_file import read_network
from engine.run.settings import scheduler_settings
from engine.simulate.arrivals import Trains, arrivals
from engine.simulate.experiment import capacity_rates
from engine.simulate.overheads import Overheads
from engine.simulate.sketch import NetworkSketch
from scheduler.state import BatchRule, SchedulerSettings
from scheduler.trains import TrainRule

SECOND = 1_000_000_000
LOADS = (0.3, 0.7, 0.9, 1.2)
PLAIN = SchedulerSettings(traversal="auto")
TIGHT = QoSGraph(((0.0, 1.0), (0.001 * SECOND, 1.0), (1.0 * SECOND, 0.0)))
LOOSE = QoSGraph(((0.0, 1.0), (4.0 * SECOND, 1.0), (5.0 * SECOND, 0.0)))
SOONER = 10  # by which costs and graphs of the bursts are divided
SOONER_COST_NS = (COST_NS[0] / SOONER, COST_NS[1] / SOONER)
DEMO = Path(__file__).resolve().parents[4] / "configs" / "demo.yaml"


@dataclass(frozen=True)
class Workload:
    """A network at one load, with the settings that every policy gets."""

    network: Network
    statistics: Statistics
    trains: Mapping[int, Trains]
    workers: int = 1
    settings: SchedulerSettings = PLAIN
    overheads: Overheads = field(default_factory=Overheads)


def applications(count: int, graphs: Callable[[Random], QoSGraph], seed: int) -> Network:
    """Make applications of five boxes in a row, each with its own stream; costs between 0.1 and 1 ms."""
    random, sketch = Random(seed), NetworkSketch()
    for _ in range(count):
        graph = graphs(random)
        tap = sketch.stream()
        for _ in range(5):
            tap = sketch.box(tap, cost_ns=random.uniform(1e5, 1e6))
        sketch.output(tap, QoS(graph, deadline_ns=int(graph.points[1][0])))
    return sketch.network()


def figure_11(seed: int) -> Network:
    return applications(20, lambda random: random.choice((TIGHT, LOOSE)), seed)


def figure_13(seed: int) -> Network:
    def any_shape(random: Random) -> QoSGraph:
        good = random.uniform(0.0, 0.5) * SECOND
        return QoSGraph(((0.0, 1.0), (good, 1.0), (good + random.uniform(0.1, 2.0) * SECOND, 0.0)))

    return applications(200, any_shape, seed)


def figure_p4(seed: int) -> Network:
    random, sketch = Random(seed), NetworkSketch()
    for _ in range(100):
        tap = sketch.stream()
        for _ in range(random.randint(1, 3)):
            tap = sketch.box(tap, cost_ns=random.uniform(1e4, 2e5), selectivity=0.5)
        deadline = random.uniform(0.4, 2.0) * SECOND
        worthless = QoSGraph(((0.0, 1.0), (deadline, 1.0), (deadline + 1_000.0, 0.0)))
        sketch.output(tap, QoS(worthless, deadline_ns=int(deadline)))
    return sketch.network()


P4_SETTINGS = SchedulerSettings(traversal="auto", batch=BatchRule(basic_ns=SECOND // 25, step_ns=500_000))
P4_OVERHEADS = Overheads(step_ns=500_000.0, claim_ns=0.0, plan_ns=0.0, call_ns=0.0)


def of_figure_11(load: float, seconds: float) -> Workload:
    """Set up the network of P0.11 with bursts: 20 tuples for every application at once, one box at a time."""
    random = Random(1)
    graphs = [_sooner(TIGHT), _sooner(LOOSE)] * 10
    random.shuffle(graphs)
    network = trees(20, fan_out=1, cost_ns=SOONER_COST_NS, qos=graphs, seed=1)
    gap_ns = 20 * SECOND / (rate_at_capacity(network) * load)
    times = np.arange(0, int(seconds * SECOND), gap_ns).astype(np.int64)
    trains = {s.number: (times, np.full(len(times), 20, np.int64)) for s in network.streams}
    settings = SchedulerSettings(unit="box", train=TrainRule("tuples", 5))
    return Workload(network, declared_costs(network), trains, 1, settings)


def of_figure_13(load: float, bursts: int) -> Workload:
    """Set up the network of P0.13 with bursts: 4 tuples for every application at once, one box at a time."""
    random, graphs = Random(1), []
    work_ns = 200 * 4 * 5 * sum(SOONER_COST_NS) / 2  # of one burst
    for _ in range(200):
        flat_ns, fall_ns = random.uniform(0.02, 1.4) * work_ns, random.uniform(0.1, 1.0) * work_ns
        graphs.append(QoS(QoSGraph(((0.0, 1.0), (flat_ns, 1.0), (flat_ns + fall_ns, 0.0)))))
    network = trees(200, fan_out=1, cost_ns=SOONER_COST_NS, qos=graphs, seed=1)
    times = (np.arange(bursts) * (work_ns / load)).astype(np.int64)
    trains = {s.number: (times, np.full(bursts, 4, np.int64)) for s in network.streams}
    settings = SchedulerSettings(unit="box", train=TrainRule("tuples", 2))
    overheads = Overheads(step_ns=13_000.0)
    return Workload(network, declared_costs(network), trains, 1, settings, overheads)


def _sooner(graph: QoSGraph) -> QoS:
    """Divide the times of a graph as the costs are divided."""
    return QoS(QoSGraph(tuple((ns / SOONER, utility) for ns, utility in graph.points)))


def of_papers(name: str, load: float, seconds: float, seed: int) -> Workload:
    network = {"P0.11": figure_11, "P0.13": figure_13, "P4.8": figure_p4}[name](seed)
    statistics = Statistics(network)
    statistics.cost_per_call_ns[:] = 0.0  # the papers' boxes have a cost per tuple only
    settings, overheads = (P4_SETTINGS, P4_OVERHEADS) if name == "P4.8" else (PLAIN, Overheads())
    trains = _poisson(network, statistics, 1, overheads, load, seconds, seed)
    return Workload(network, statistics, trains, 1, settings, overheads)


def of_demo(load: float, seconds: float, seed: int) -> Workload:
    network = read_network(DEMO)
    workers, statistics = network.config.engine.sure_workers, declared_costs(network)
    trains = _poisson(network, statistics, workers, Overheads(), load, seconds, seed)
    settings = scheduler_settings(network.config.scheduler, seed)
    return Workload(network, statistics, trains, workers, settings)


def _poisson(
    network: Network,
    statistics: Statistics,
    workers: int,
    overheads: Overheads,
    load: float,
    seconds: float,
    seed: int,
) -> dict[int, Trains]:
    rates = (capacity_rates(network, statistics, workers, overheads) * load).tolist()
    return {s: arrivals("poisson", seed, s, rate, int(seconds * SECOND)) for s, rate in enumerate(rates)}


class AutoCase(NamedTuple):
    """The parameters of a workload: small, so that they can be sent to another process."""

    family: str
    load: float
    amount: float  # seconds of arrivals, or bursts

    def __str__(self) -> str:
        return f"{self.family} load {self.load:g}"


QUICK = (AutoCase("P0.11", 1.2, 10.0), AutoCase("P4.8", 0.6, 1.0), AutoCase("demo", 1.2, 0.5))
"""Short runs of the workloads in which policies differ most."""

ALL = (
    *(AutoCase(family, load, amount) for load in LOADS for family, amount in (("P0.11 bursts", 4.0), ("P0.11", 20.0))),
    AutoCase("P0.13 bursts", 0.5, 5),
    *(AutoCase("P0.13", load, 8.0) for load in (0.9, 1.2)),
    *(AutoCase("P4.8", load, 4.0) for load in (0.3, 0.6, 0.9)),
    *(AutoCase("demo", load, 10.0) for load in LOADS),
)


def build(case: AutoCase, seed: int) -> Workload:
    family, load, amount = case
    if family == "P0.11 bursts":
        return of_figure_11(load, amount)
    if family == "P0.13 bursts":
        return of_figure_13(load, int(amount))
    return of_demo(load, amount, seed) if family == "demo" else of_papers(family, load, amount, seed)
