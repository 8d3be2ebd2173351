"""Simulations of the two systems that P2 analyses: outputs that are shared, and streams that meet in a join.

The paper's service times are random. The simulator's boxes have constant costs, so here each box call draws its cost
from a gamma distribution of the given mean and coefficient of variation, with one sequence for each box. Tuples are
scheduled one by one, the queue of plans has length one (a decision is made when the server is free), and nothing but
the boxes takes time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from catalog.network import Network
from catalog.stats import Statistics
from engine.simulate.arrivals import Times, Trains, poisson
from engine.simulate.core import Simulation
from engine.simulate.execution import PlanTimes
from engine.simulate.overheads import Overheads
from engine.simulate.sketch import NetworkSketch
from engine.simulate.storage import SimulatedTrain
from scheduler.claims import Claim
from scheduler.plan import Plan, Step
from scheduler.policies import Policy, policies
from scheduler.state import SchedulerSettings, SchedulerState

UNIT_NS = 1_000_000  # one unit of service time
FREE = Overheads(0.0, 0.0, 0.0, 0.0)
DRAWN_AT_ONCE = 4_096


class DrawnCosts(list[float]):
    """The costs by box; every read of a box's cost draws another value."""

    def __init__(self, means: Sequence[float], variation: float, seed: int) -> None:
        super().__init__(means)
        self._variation = variation
        self._random = [np.random.default_rng([seed, box]) for box in range(len(means))]
        self._left = [iter([0.0][:0]) for _ in means]

    def __getitem__(self, box):  # type: ignore[no-untyped-def]
        mean = super().__getitem__(box)
        if not self._variation:
            return mean
        for factor in self._left[box]:
            return mean * factor
        shape = 1 / self._variation**2
        self._left[box] = iter(self._random[box].gamma(shape, 1 / shape, DRAWN_AT_ONCE).tolist())
        return mean * next(self._left[box])


class TupleServer(Simulation):
    """One server that takes tuple by tuple. ``times`` has (arrival, end) of each tuple, by output."""

    def __init__(
        self, network: Network, policy: Policy, trains: dict[int, Trains], costs: Sequence[float], variation: float
    ) -> None:
        statistics = Statistics(network)
        statistics.cost_per_call_ns[:] = 0.0
        statistics.rate_per_s[:] = 1.0
        super().__init__(
            network, policy, trains, statistics=statistics, settings=SchedulerSettings(unit="tuple"), overheads=FREE
        )
        self.loop.plans_at_least = 1
        self.execution.is_counted = True  # costs are random, so the cost of a plan cannot be computed beforehand
        self.execution.tuple_ns = DrawnCosts([c * UNIT_NS for c in costs], variation, seed=len(network.boxes))
        self.times: list[list[tuple[int, int]]] = [[] for _ in network.outputs]
        self.served: list[tuple[int, int, int]] = []  # plans: their first box, the arrival of its tuple, their end
        for recorder, times in zip(self.recorders, self.times, strict=True):
            recorder.deliver = _keep(times)  # type: ignore[method-assign]

    def _execute(self, boxes: tuple[int, ...], claims: Mapping[int, Claim], begun_ns: float) -> PlanTimes:
        came_ns = next(t.first_ns for claim in claims.values() for t in claim.trains)  # type: ignore[attr-defined]
        ran = super()._execute(boxes, claims, begun_ns)
        self.served.append((boxes[0], came_ns, ran.end_ns))
        return ran

    def response(self, output: int) -> float:
        """Return the mean response time, in units."""
        came, done = np.array(self.times[output]).T
        return float((done - came).mean()) / UNIT_NS


def _keep(times: list[tuple[int, int]]):  # type: ignore[no-untyped-def]
    def deliver(train: SimulatedTrain, now_ns: int) -> None:
        times.append((train.first_ns, now_ns))

    return deliver


def arriving(rate: float, tuples: int, seed: int) -> Trains:
    """Make Poisson arrivals at ``rate`` tuples a unit of time."""
    per_s = rate * 1e9 / UNIT_NS
    times: Times = poisson(np.random.default_rng(seed), per_s, int(tuples / per_s * 1e9))
    return times, np.ones(len(times), np.int64)


# -- shared outputs (figure 5) ----------------------------------------------------------------------------------------


class SharedWaits(NamedTuple):
    """Mean waiting times in the queue, in units."""

    apart: float  # second segment, with arrivals of its own
    copied: float  # second segment, on copies
    base: float  # both segments as one service


@cache
def shared_output(rate: float, first: float, second: float, variation: float, tuples: int) -> SharedWaits:
    """Simulate both forms. Chain uses declared costs, by which the first segment is always the steeper one."""
    means = (first, second)

    def low_wait(streams: int) -> float:
        sketch = NetworkSketch()
        taps = [sketch.stream() for _ in range(streams)]
        sketch.output(sketch.box(taps[0], cost_ns=1.0, name="O1"))
        sketch.output(sketch.box(taps[-1], cost_ns=2.0, name="O2"))
        trains = {s: arriving(rate, tuples, seed=s) for s in range(streams)}
        server = TupleServer(sketch.network(), policies()["chain"], trains, means, variation)
        server.run()
        return server.response(1) - second

    sketch = NetworkSketch()
    both = sketch.box(sketch.box(sketch.stream(), cost_ns=1.0), cost_ns=1.0)
    sketch.output(both)
    base = TupleServer(sketch.network(), one_by_one, {0: arriving(rate, tuples, seed=0)}, means, variation)
    base.run()
    return SharedWaits(low_wait(2), low_wait(1), base.response(0) - first - second)


def one_by_one(state: SchedulerState, now_ns: int) -> Plan | None:
    """Run a tuple through all boxes, then the next one."""
    if not state.waiting[0]:
        return None
    return Plan(tuple(Step(box, 1) for box in range(len(state.network.boxes))))


# -- a join that keeps the order of time (figures 7 to 9) --------------------------------------------------------------

O1, O2, JOIN = range(3)


def binary_join(n: float) -> Network:
    """Make two segments of one unit each that meet in J and O3, together n units. The first is slightly steeper."""
    sketch = NetworkSketch()
    first = sketch.box(sketch.stream(), cost_ns=0.999 * UNIT_NS, name="O1")
    second = sketch.box(sketch.stream(), cost_ns=UNIT_NS, name="O2")
    sketch.output(sketch.box(first, second, cost_ns=n * UNIT_NS, name="J O3", kind="join"))
    return sketch.network()


class ChainInOrder:
    """The rule of figure 9: Chain at a join that takes tuples in the order of time.

    A tuple of the first queue goes through O1 at once. While a tuple waits in the second queue, it is kept in a buffer
    before the join (the pipeline is broken). After a tuple of the second queue the older tuples of the buffer go
    through the join. With ``at_once`` the buffer is also released when the second queue is empty; under the paper's
    rule it waits for the next arrival.
    """

    def __init__(self, network: Network, at_once: bool) -> None:
        self._queue1, self._queue2 = network.boxes[O1].in_arcs[0], network.boxes[O2].in_arcs[0]
        self._buffer, self._second = network.boxes[JOIN].in_arcs
        self._at_once = at_once
        self._released_ns = -1  # tuples older than this may pass the join
        self.fetched = 0  # from the first queue
        self.broken = 0

    def __call__(self, state: SchedulerState, now_ns: int) -> Plan | None:
        first, second, kept = (state.arcs[a].entries for a in (self._queue1, self._queue2, self._buffer))
        if kept and (kept[0].first_arrival_ns < self._released_ns or (self._at_once and not second)):
            return Plan((Step(JOIN, 1),), {self._buffer: 1})
        if first:
            self.fetched += 1
            if second:
                self.broken += 1
                return Plan((Step(O1, 1),), {self._queue1: 1})
            return Plan((Step(O1, 1), Step(JOIN, 1)), {self._queue1: 1})
        if second:
            self._released_ns = second[0].first_arrival_ns
            return Plan((Step(O2, 1), Step(JOIN, 1)), {self._queue2: 1})
        return None


class JoinTimes(NamedTuple):
    """Response times at one rate, in units."""

    chain: float  # of all tuples, until they leave the join
    chain_at_once: float
    chain_high: float  # until its segment is done with a tuple: E(W) + E(B)
    chain_low: float
    vpipe: float
    broken: float  # P: share of tuples that find a tuple in the second queue
    second_busy: float  # share of the time in which a tuple of the second stream is in the system


@cache
def joined(x: float, n: float, tuples: int) -> JoinTimes:
    """Simulate the join: both streams at the rate x/n, exponential service times."""
    network = binary_join(n)
    trains = {stream: arriving(x / n, tuples, seed=10 + stream) for stream in (0, 1)}
    rules = [ChainInOrder(network, at_once) for at_once in (False, True)]
    contenders: list[Policy] = [*rules, policies()["vpipe"]]
    runs = [TupleServer(network, policy, trains, (1.0, 1.0, n), 1.0) for policy in contenders]
    slopes = [segment.slope for segment in runs[0].state.facts.chain_segment]
    assert slopes[O1] > slopes[O2], "Chain would run the other segment first"
    for run in runs:
        run.run()
    rule = rules[0]
    high, low = by_queue(runs[0].served)
    return JoinTimes(
        chain=runs[0].response(0),
        chain_at_once=runs[1].response(0),
        chain_high=high,
        chain_low=low,
        vpipe=runs[2].response(0),
        broken=rule.broken / rule.fetched,
        second_busy=_busy_share(runs[0].times[0], set(trains[1][0].tolist())),
    )


def by_queue(served: Sequence[tuple[int, int, int]]) -> tuple[float, float]:
    """Compute the mean response by queue, in units. The release after a tuple is part of its service."""
    spans: dict[int, list[list[int]]] = {O1: [], O2: []}
    last: list[int] = []
    for box, came_ns, end_ns in served:
        if box == JOIN:
            last[1] = end_ns
        else:
            last = [came_ns, end_ns]
            spans[box].append(last)
    high, low = (float(np.mean([end - came for came, end in spans[box]])) / UNIT_NS for box in (O1, O2))
    return high, low


def _busy_share(times: list[tuple[int, int]], stream: set[int]) -> float:
    """Compute the share of the time in which at least one tuple of a stream is in the system."""
    busy_ns = end_ns = 0
    for came_ns, done_ns in sorted(t for t in times if t[0] in stream):
        if done_ns > end_ns:
            busy_ns += done_ns - max(came_ns, end_ns)
            end_ns = done_ns
    return busy_ns / max(end_ns, 1)
