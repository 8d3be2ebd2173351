"""The experiments of P4: many queries with deadlines, run task by task or in batches (table 1 and section 4.1).

A query has a stream of its own and 1 to 3 levels of operators; each level has fan-out (1 to 3) times as many operators
as the level before. An operator costs 1 to 20 us a tuple and passes half of the tuples, or a random share from 0.01 to
1. Here the operators of a level are one box of their total cost. A task is a tuple for a query, due 1 to 5 s after its
arrival. A run is 10,000 tuples of each stream, and SDMR counts all of them, also those of the first seconds, in which
no deadline can be missed yet. The run ends at the last deadline.

Rules of P4 that hold here: a basic batch does not run before its interval is over (definition 6); the controller uses
the SDMR of the whole run so far, in which a dropped task is missed, and its change from one execution to the next
(equation 3). In overload k is 1, as section 3.2 says.

**Two readings.** The Overdue Controller drops tasks after their deadline. By figure 2 of P4 it stands beside the
Priority Manager and the Scheduler, which alone are BTS; section 3.3 gives dropping to BTS1 and ATS1. The text to figure
7 says that the overhead of all of them falls because batches are overdue. So either all policies have it (*overdue
dropped*) or none has (*overdue run*). (Only ATS with it, as one might read figure 2, would compare two things at once.)
Every figure shows both.

A few queries stand for all. In the simulator the processor is as much slower; on the real engine streams are as much
faster, and deadlines and batches as much shorter. The ratios stay the same.

*ideal* is a bound: scheduling takes no time, no task runs in vain, the cheapest tasks run first, and all of them have
time until the last deadline.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from random import Random
from typing import NamedTuple

import numpy as np

from catalog.load import LoadModel
from catalog.network import Network
from catalog.qos import QoS
from catalog.stats import Statistics
from engine.lab.figures.figure import REAL, SIMULATED, Unprinted
from engine.lab.figures.lab import Lab
from engine.simulate.arrivals import PROCESSES, Trains
from engine.simulate.sketch import NetworkSketch
from scheduler.state import BatchRule

SECOND = 1_000_000_000
TUPLES = 10_000  # of each stream; in fewer no deadline would be missed, because a run must be long beside 5 s
LONGEST_S = 5.0  # deadline
FIXED, RANDOM = 0.5, None  # selectivities
DROPPED, RUN = "overdue dropped", "overdue run"
READINGS = {DROPPED: True, RUN: False}
NAMES = {"TAAT": "edf", "BTS": "bts", "BTS1": "bts1", "ATS": "ats", "ATS1": "ats1"}
TABLE_1 = {
    "levels of a query, fan-out": "1 to 3 each",
    "cost of an operator": "1 to 20 us",
    "deadlines": "1 to 5 s",
    "batch unit": "0.1 s",
    "arrivals": "exponential gaps, parameter lambda",
    "a run": "10,000 tuples of each query's stream, all counted",
}
UNPRINTED = {
    "step_us": Unprinted(50.0, "a scheduling step in the simulator; table 1 prints 20 to 80 us", (20.0, 80.0)),
    "per_ms": Unprinted(1.0, "lambda is in tuples a ms: figure 3 of P4 has some 50 to 75 in 0.1 s at lambda 0.5"),
    "control_us": Unprinted(1.0, "of the controller of ATS in a step, as measured; for the simulator"),
    "read": Unprinted(10, "tuples that arrive together"),
    "stand_for": Unprinted(10, "queries that stand for all of them; half of it on the engine and in the sweep"),
}


@dataclass(frozen=True)
class DeadlineSetup:
    """One run, in the paper's numbers."""

    policy: str  # by the paper's name
    rate: float  # lambda
    queries: int = 100
    selectivity: float | None = FIXED
    overdue: bool = True  # tasks are dropped after their deadline
    unit_s: float = 0.1  # phi
    k: int = 1
    proportional: float = 1.0
    integral: float = 10.0
    process: str = "poisson"
    seed: int = 1
    run: int = 10  # queries that stand for all
    step_us: float = 50.0
    control_us: float = 1.0
    per_ms: float = 1.0
    read: int = 10
    engine: str = SIMULATED
    tuples: int = TUPLES

    @property
    def per_s(self) -> float:
        """Tuples a second of a stream."""
        return self.rate * self.per_ms * 1_000

    @property
    def duration_s(self) -> float:
        """The time of the last arrival."""
        return self.tuples / self.per_s

    @property
    def scale(self) -> float:
        return self.queries / self.run

    @property
    def slower(self) -> float:
        """By how much the simulated processor is slower."""
        return 1.0 if self.engine == REAL else self.scale

    @property
    def faster(self) -> float:
        """By how much time passes faster on the real engine."""
        return self.scale if self.engine == REAL else 1.0

    def network(self) -> Network:
        return queries(self.run, self.slower, self.faster, self.selectivity, self.seed)


def setup_of(lab: Lab) -> DeadlineSetup:
    """Make a set-up from the settings that the paper does not print; the rest is the figure's."""
    return DeadlineSetup(
        "",
        0.0,
        seed=lab.seed,
        run=max(2, lab.count("stand_for") // 2) if lab.is_real or lab.short else lab.count("stand_for"),
        step_us=lab.number("step_us"),
        control_us=lab.number("control_us"),
        per_ms=lab.number("per_ms"),
        read=lab.count("read"),
        engine=lab.engine,
    )


class DeadlineResult(NamedTuple):
    sdmr: float
    overhead_s: float  # spent in scheduling
    cpu: float  # busy share of the processor
    k: float  # mean over the plans; 0 on the real engine


@cache
def queries(count: int, slower: float, faster: float, selectivity: float | None, seed: int) -> Network:
    random, sketch = Random(seed), NetworkSketch()
    for _ in range(count):
        tap, fan_out = sketch.stream(), random.randint(1, 3)
        for level in range(random.randint(1, 3)):
            cost_ns = sum(random.uniform(1e3, 20e3) for _ in range(fan_out**level)) * slower
            share = random.uniform(0.01, 1.0) if selectivity is None else selectivity
            tap = sketch.box(tap, cost_ns=cost_ns, selectivity=share)
        sketch.output(tap, QoS(deadline_ns=int(random.uniform(1, LONGEST_S) * SECOND / faster)))
    sketch.stream("clock")  # so that the scheduler runs also when no tuple arrives
    return sketch.network()


def arrivals(network: Network, setup: DeadlineSetup) -> dict[int, Trains]:
    out: dict[int, Trains] = {}
    length_ns = int(setup.duration_s * SECOND / setup.faster)
    for stream in network.streams[:-1]:
        random = np.random.default_rng([setup.seed, stream.number])
        times = PROCESSES[setup.process](random, setup.per_s * setup.faster / setup.read, length_ns)
        out[stream.number] = times, np.full(len(times), setup.read, np.int64)
    ticks = np.arange(0, end_ns(setup), int(SECOND / setup.faster) // 100)
    out[len(out)] = ticks, np.ones(len(ticks), np.int64)
    return out


def end_ns(setup: DeadlineSetup) -> int:
    """Return the time of the last deadline."""
    return int((setup.duration_s + LONGEST_S) * SECOND / setup.faster)


def load(setup: DeadlineSetup) -> float:
    """Compute the load of the operators alone."""
    return sum(task_costs_ns(setup)) * setup.per_s * setup.faster / 1e9


def task_costs_ns(setup: DeadlineSetup) -> list[float]:
    """Compute the mean cost of a task, by query."""
    network = setup.network()
    statistics = Statistics(network)
    work = LoadModel(network).coefficients(statistics.cost_per_tuple_ns, statistics.port_selectivity)
    costs: list[float] = work.streams.tolist()
    return costs[:-1]


def ideal(setup: DeadlineSetup) -> float:
    """Compute the least share of missed tasks: no time for scheduling, none in vain, the cheapest tasks first."""
    left, done = end_ns(setup) / setup.tuples, 0.0  # time for one task of each query
    costs = sorted(task_costs_ns(setup))
    for cost_ns in costs:
        done += min(1.0, left / cost_ns)
        left = max(0.0, left - cost_ns)
    return 1 - done / len(costs)


def rule(setup: DeadlineSetup) -> BatchRule:
    return BatchRule(
        basic_ns=round(setup.unit_s * SECOND / setup.faster),
        k=setup.k,
        proportional=setup.proportional,
        integral=setup.integral,
        step_ns=round(step_ns(setup)),
        whole=True,
        overdue=setup.overdue,
        total=True,
    )


def step_ns(setup: DeadlineSetup) -> float:
    return (setup.step_us + setup.control_us * setup.policy.startswith("ATS")) * 1e3 * setup.slower


@cache
def run(setup: DeadlineSetup) -> DeadlineResult:
    """Run the tasks. Figures that need the same run share it."""
    if setup.engine == REAL:
        from engine.lab.figures.p4_real import run_real_tasks

        return run_real_tasks(setup)
    from engine.lab.figures.p4_simulated import run_simulated_tasks

    return run_simulated_tasks(setup)
