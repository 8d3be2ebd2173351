"""One server that takes tuple by tuple, for the systems of P2: simulated or on the real engine.

The paper's service times are random. The boxes of the engine have constant costs, so here each box call draws its cost
from a gamma distribution of the given mean and coefficient of variation, with one sequence for each box. Tuples are
scheduled one by one, and a decision is made when the server is free. In the simulator nothing but the boxes takes time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from catalog.network import Network
from catalog.stats import Statistics
from engine.lab.figures.lab import Lab
from engine.operators.boxes.base import Emit, Tally
from engine.operators.boxes.universal import Universal, spend
from engine.simulate.arrivals import Times, Trains, poisson
from engine.simulate.core import Simulation
from engine.simulate.execution import PlanTimes
from engine.simulate.overheads import Overheads
from engine.simulate.storage import SimulatedTrain
from scheduler.claims import Claim
from scheduler.policies import Policy, policies
from scheduler.state import SchedulerSettings
from scheduler.trains import TrainRule
from storage.train import Train

UNIT_NS = 1_000_000  # one unit of service time in the simulator
REAL_UNIT_NS = 150_000  # and on the engine: the service of a tuple, n units, is long beside a step
FREE = Overheads(0.0, 0.0, 0.0, 0.0)
DRAWN_AT_ONCE = 4_096
ONE_TUPLE = SchedulerSettings(unit="tuple")
LINE = SchedulerSettings(unit="vpipe", train=TrainRule("tuples", 1))


class Draws:
    """Factors of mean 1, an endless sequence."""

    def __init__(self, variation: float, *seed: int) -> None:
        self._variation = variation
        self._random = np.random.default_rng(seed)
        self._left = iter([0.0][:0])

    def next(self) -> float:
        if not self._variation:
            return 1.0
        for factor in self._left:
            return factor
        shape = 1 / self._variation**2
        self._left = iter(self._random.gamma(shape, 1 / shape, DRAWN_AT_ONCE).tolist())
        return next(self._left)


class DrawnCosts(list[float]):
    """The costs by box; every read of a box's cost draws another value."""

    def __init__(self, means: Sequence[float], variation: float, seed: int) -> None:
        super().__init__(means)
        self._draws = [Draws(variation, seed, box) for box in range(len(means))]

    def __getitem__(self, box):  # type: ignore[no-untyped-def]
        return super().__getitem__(box) * self._draws[box].next()


class DrawnBox(Universal):
    """A universal box that draws its cost for every tuple."""

    mean_ns: float
    draws: Draws

    def run(self, state: list[int], port: int, train: Train, emit: Emit, tally: Tally) -> None:
        spend(round(sum(self.draws.next() for _ in range(train.count)) * self.mean_ns))
        emit(0, train)


class Served:
    """The times of a run in units: arrival and end of each tuple by output; ``plans`` in the simulator only."""

    def __init__(
        self, times: Sequence[Sequence[tuple[float, float]]], plans: Sequence[tuple[int, float, float]]
    ) -> None:
        self.times = times
        self.plans = plans  # their first box, the arrival of its tuple, their end

    def response(self, output: int = 0) -> float:
        """Return the mean response time."""
        came, done = np.array(self.times[output]).T
        return float((done - came).mean())

    def length(self) -> float:
        return max(done for times in self.times for _, done in times)


class TupleServer(Simulation):
    """The simulated server."""

    def __init__(
        self,
        network: Network,
        policy: Policy,
        trains: Mapping[int, Trains],
        settings: SchedulerSettings,
        costs: DrawnCosts,
    ) -> None:
        super().__init__(network, policy, trains, statistics=statistics_of(network), settings=settings, overheads=FREE)
        self.loop.plans_at_least = 1
        self.execution.is_counted = True  # costs are random, so the cost of a plan cannot be computed beforehand
        self.execution.tuple_ns = costs
        self.times: list[list[tuple[float, float]]] = [[] for _ in network.outputs]
        self.plans: list[tuple[int, float, float]] = []
        for recorder, times in zip(self.recorders, self.times, strict=True):
            recorder.deliver = _keep(times)  # type: ignore[method-assign]

    def _execute(self, boxes: tuple[int, ...], claims: Mapping[int, Claim], begun_ns: float) -> PlanTimes:
        came_ns = next(t.first_ns for claim in claims.values() for t in claim.trains)  # type: ignore[attr-defined]
        ran = super()._execute(boxes, claims, begun_ns)
        self.plans.append((boxes[0], came_ns / UNIT_NS, ran.end_ns / UNIT_NS))
        return ran


def _keep(times: list[tuple[float, float]]):  # type: ignore[no-untyped-def]
    def deliver(train: SimulatedTrain, now_ns: int) -> None:
        # A train of several tuples has the arrivals of its first and, from the mean, of its last one.
        last_ns = 2 * train.mean_ns - train.first_ns
        times.extend(
            (ns / UNIT_NS, now_ns / UNIT_NS) for ns in np.linspace(train.first_ns, last_ns, train.count).tolist()
        )

    return deliver


def statistics_of(network: Network) -> Statistics:
    statistics = Statistics(network)
    statistics.cost_per_call_ns[:] = 0.0
    statistics.rate_per_s[:] = 1.0
    return statistics


def unit_ns(lab: Lab) -> int:
    return lab.by_engine(REAL_UNIT_NS, UNIT_NS)


def arriving(lab: Lab, rate: float, tuples: int, stream: int) -> Trains:
    """Make Poisson arrivals at ``rate`` tuples a unit of time."""
    per_s = rate * 1e9 / unit_ns(lab)
    times: Times = poisson(np.random.default_rng([lab.seed, stream]), per_s, int(tuples / per_s * 1e9))
    return times, np.ones(len(times), np.int64)


def serve(
    lab: Lab,
    network: Network,
    policy: str | Policy,
    trains: Mapping[int, Trains],
    means: Sequence[float],
    variation: float,
    settings: SchedulerSettings = ONE_TUPLE,
) -> Served:
    """Run tuples through a network whose boxes take ``means`` units."""
    if lab.is_real:
        return _serve_real(lab, network, policy, trains, means, variation, settings)
    decide = policies()[policy] if isinstance(policy, str) else policy
    costs = DrawnCosts([c * UNIT_NS for c in means], variation, lab.seed)
    server = TupleServer(network, decide, trains, settings, costs)
    server.run()
    return Served(server.times, server.plans)


def drawn(network: Network, means: Sequence[float], variation: float, seed: int) -> Network:
    """Replace the boxes by ones that draw their costs."""
    nodes = []
    for node, mean in zip(network.boxes, means, strict=True):
        box = DrawnBox(node.box.parameters)
        box.mean_ns, box.draws = mean * REAL_UNIT_NS, Draws(variation, seed, node.number)
        nodes.append(replace(node, box=box))
    return replace(network, boxes=tuple(nodes))


def _serve_real(
    lab: Lab,
    network: Network,
    policy: str | Policy,
    trains: Mapping[int, Trains],
    means: Sequence[float],
    variation: float,
    settings: SchedulerSettings,
) -> Served:
    from engine.lab.figures.real_engine import ProcessorClock, drive, make_engine

    network, clock = drawn(network, means, variation, lab.seed), ProcessorClock()
    rows: list[list[tuple[int, Any]]] = [[] for _ in network.outputs]
    outlets = [_outlet(of, clock) for of in rows]
    engine = make_engine(network, outlets, policy, settings, statistics_of(network), clock, one_by_one=True)
    drive(engine, trains, clock)
    begun_ns = min(int(arrived[0]) for of in rows for _, arrived in of) - min(int(t[0]) for t, _ in trains.values())
    times = [
        [
            ((a - begun_ns) / REAL_UNIT_NS, (at - begun_ns) / REAL_UNIT_NS)
            for at, arrived in of
            for a in arrived.tolist()
        ]
        for of in rows
    ]
    return Served(times, [])


def _outlet(rows: list[tuple[int, Any]], clock):  # type: ignore[no-untyped-def]
    return lambda train: rows.append((clock(), train.arrival_ns)) if train.count else None
