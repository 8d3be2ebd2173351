"""The experiments of P4: many queries with deadlines, run task by task or in batches (table 1 and section 4.1).

A query has a stream of its own and 1 to 3 levels of operators; each level has fan-out (1 to 3) times as many operators
as the level before. An operator costs 1 to 20 us a tuple and passes half of the tuples, or a random share from 0.01 to
1. Here the operators of a level are one box of their total cost. A task is a tuple for a query, due 1 to 5 s after its
arrival. Streams are Poisson with lambda tuples a millisecond (figure 3 of P4: some 50 in 0.1 s at lambda 0.5).

A scheduling step takes the same time whatever it schedules: 20 to 80 us in table 1, here 80. For ATS a step also takes
the time of its controller, as measured here.

Rules of P4 that hold here, but not in a daemon:

- A basic batch does not run before its interval is over (definition 6).
- By figure 2 of P4, BTS is the Priority Manager and the Scheduler. The Overdue Controller, which drops tasks after
  their deadline, belongs to ATS. So TAAT and BTS run late tasks; BTS1 drops tasks that its statistics call hopeless.
  (Against this reading: the text to figure 7 says that the overhead of all of them falls because batches are overdue.)
- The controller uses the SDMR of the whole run so far, in which a dropped task is missed, and its change from one
  execution to the next (equation 3). In overload k is 1, as section 3.2 says.
- A run is 10,000 tuples of each stream, and SDMR counts all of them, also those of the first seconds, in which no
  deadline can be missed yet. The run ends at the last deadline.

SDMR counts tasks: a task is missed if it is dropped, if it never runs, or if the plan that runs it ends too late.

Our choices:

- Half of the queries run on a processor of half the speed: 50 for 100, with operators and steps of twice the cost (a
  sixth for 300). The ratios stay the same, and a run takes half of the time. (With much fewer queries a plan would be
  long beside the deadlines.)
- Tuples arrive ten to a read.
- *ideal* is a bound: scheduling takes no time, no task runs in vain, the cheapest tasks run first, and all of them have
  time until the last deadline.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import NamedTuple

import numpy as np

from catalog.load import LoadModel
from catalog.network import Network
from catalog.qos import QoS
from catalog.stats import Statistics
from engine.simulate.arrivals import Trains, poisson
from engine.simulate.core import Simulation
from engine.simulate.execution import PlanTimes
from engine.simulate.overheads import Overheads
from engine.simulate.sketch import NetworkSketch
from scheduler.claims import Claim
from scheduler.policies import policies
from scheduler.state import BatchRule, SchedulerSettings
from scheduler.trains import TrainRule

SECOND = 1_000_000_000
TUPLES = 10_000  # of each stream
LONGEST_S = 5.0  # deadline
READ = 10  # tuples that arrive together
STEP_NS = 80_000.0
CONTROL_NS = 1_000.0  # of the controller of ATS in a step (``Batches.clock`` with and without it)
FIXED, RANDOM = 0.5, None  # selectivities
OVERDUE_CONTROLLER = ("ATS", "ATS1")
NAMES = {"TAAT": "edf", "BTS": "bts", "BTS1": "bts1", "ATS": "ats", "ATS1": "ats1"}
TABLE_1 = {
    "levels of a query, fan-out": "1 to 3 each",
    "cost of an operator": "1 to 20 us",
    "a scheduling step": "80 us (20 to 80 in table 1)",
    "deadlines": "1 to 5 s",
    "arrivals": "Poisson, lambda tuples a ms for each query",
    "a run": "10,000 tuples of each query's stream, all counted",
    "scale": "50 queries stand for 100 or 300, at 2 or 6 times the cost",
}


@dataclass(frozen=True)
class DeadlineSetup:
    """One run, in the paper's numbers."""

    policy: str  # by the paper's name
    rate: float  # lambda
    queries: int = 100
    selectivity: float | None = FIXED
    unit_s: float = 0.1  # phi
    k: int = 1
    proportional: float = 1.0
    integral: float = 10.0
    seed: int = 1
    simulated: int = 50  # queries, which stand for all

    @property
    def duration_s(self) -> float:
        """The time of the last arrival."""
        return TUPLES / (self.rate * 1_000)

    @property
    def slower(self) -> float:
        return self.queries / self.simulated

    def network(self) -> Network:
        return queries(self.simulated, self.slower, self.selectivity, self.seed)


class DeadlineResult(NamedTuple):
    sdmr: float
    overhead_s: float  # spent in scheduling steps
    cpu: float  # busy share of the processor
    k: float  # mean over the plans


@cache
def queries(count: int, slower: float, selectivity: float | None, seed: int) -> Network:
    random, sketch = Random(seed), NetworkSketch()
    for _ in range(count):
        tap, fan_out = sketch.stream(), random.randint(1, 3)
        for level in range(random.randint(1, 3)):
            cost_ns = sum(random.uniform(1e3, 20e3) for _ in range(fan_out**level)) * slower
            share = random.uniform(0.01, 1.0) if selectivity is None else selectivity
            tap = sketch.box(tap, cost_ns=cost_ns, selectivity=share)
        sketch.output(tap, QoS(deadline_ns=int(random.uniform(1, LONGEST_S) * SECOND)))
    sketch.stream("clock")  # so that the scheduler runs also when no tuple arrives
    return sketch.network()


def arrivals(network: Network, setup: DeadlineSetup) -> dict[int, Trains]:
    out: dict[int, Trains] = {}
    for stream in network.streams[:-1]:
        random = np.random.default_rng([setup.seed, stream.number])
        times = poisson(random, setup.rate * 1_000 / READ, int(setup.duration_s * SECOND))
        out[stream.number] = times, np.full(len(times), READ, np.int64)
    ticks = np.arange(0, int((setup.duration_s + LONGEST_S) * SECOND), SECOND // 100)
    out[len(out)] = ticks, np.ones(len(ticks), np.int64)
    return out


def load(setup: DeadlineSetup) -> float:
    """Compute the load of the operators alone."""
    return sum(task_costs_ns(setup)) * setup.rate * 1_000 / 1e9


def task_costs_ns(setup: DeadlineSetup) -> list[float]:
    """Compute the mean cost of a task, by query."""
    network = setup.network()
    statistics = Statistics(network)
    work = LoadModel(network).coefficients(statistics.cost_per_tuple_ns, statistics.port_selectivity)
    costs: list[float] = work.streams.tolist()
    return costs[:-1]


def ideal(setup: DeadlineSetup) -> float:
    """Compute the least share of missed tasks: no time for scheduling, none in vain, the cheapest tasks first."""
    costs = sorted(task_costs_ns(setup))
    left, done = (setup.duration_s + LONGEST_S) * 1e9 / TUPLES, 0.0  # time for one task of each query
    for cost_ns in costs:
        done += min(1.0, left / cost_ns)
        left = max(0.0, left - cost_ns)
    return 1 - done / len(costs)


class TaskSimulation(Simulation):
    """Count the tasks that ran, and those that ended too late."""

    run_tasks = late_tasks = plan_ks = 0
    end_ns = 0

    def _execute(self, boxes: tuple[int, ...], claims: Mapping[int, Claim], begun_ns: float) -> PlanTimes:
        ran = super()._execute(boxes, claims, begun_ns)
        end_ns = self.end_ns = ran.end_ns
        self.plan_ks += getattr(self.state.index, "k", 1)
        for arc, claim in claims.items():
            due_ns = self.state.facts.deadline_ns[self.network.arcs[arc].box or 0]
            for train in claim.trains:
                self.run_tasks += train.count
                if end_ns > train.first_ns + due_ns:  # type: ignore[attr-defined]
                    self.late_tasks += train.count
        return ran


def rule(setup: DeadlineSetup) -> BatchRule:
    return BatchRule(
        basic_ns=round(setup.unit_s * SECOND),
        k=setup.k,
        proportional=setup.proportional,
        integral=setup.integral,
        step_ns=round(step_ns(setup)),
        whole=True,
        overdue=setup.policy in OVERDUE_CONTROLLER,
        total=True,
    )


def step_ns(setup: DeadlineSetup) -> float:
    return (STEP_NS + CONTROL_NS * setup.policy.startswith("ATS")) * setup.slower


@cache
def run(setup: DeadlineSetup) -> DeadlineResult:
    network = setup.network()
    trains = arrivals(network, setup)
    statistics = Statistics(network)
    statistics.cost_per_call_ns[:] = 0.0
    simulation = TaskSimulation(
        network,
        policies()[NAMES[setup.policy]],
        trains,
        statistics=statistics,
        settings=SchedulerSettings(train=TrainRule("all"), batch=rule(setup)),
        overheads=Overheads(step_ns(setup), 0.0, 0.0, 0.0),
    )
    simulation.loop.plans_at_least = 1
    simulation.run(int((setup.duration_s + LONGEST_S) * SECOND))
    came = simulation.arrived - simulation.came_tuples[-1]  # without the ticks of the clock stream
    totals = simulation.totals
    length_ns = max(setup.duration_s * SECOND, simulation.end_ns)
    return DeadlineResult(
        sdmr=1 - (simulation.run_tasks - simulation.late_tasks) / came,
        overhead_s=totals.scheduler_ns / 1e9,
        cpu=(totals.scheduler_ns + totals.box_ns) / length_ns,
        k=simulation.plan_ks / max(totals.plans, 1),
    )
