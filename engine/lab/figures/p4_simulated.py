"""The tasks of P4 in the simulator: a plan's tasks are in time if the plan ends in time."""

from __future__ import annotations

from collections.abc import Mapping

from catalog.stats import Statistics
from engine.lab.figures.p4_deadlines import (
    NAMES,
    SECOND,
    DeadlineResult,
    DeadlineSetup,
    arrivals,
    end_ns,
    rule,
    step_ns,
)
from engine.simulate.core import Simulation
from engine.simulate.execution import PlanTimes
from engine.simulate.overheads import Overheads
from scheduler.claims import Claim
from scheduler.policies import policies
from scheduler.state import SchedulerSettings
from scheduler.trains import TrainRule


class TaskSimulation(Simulation):
    """Count the tasks that ran, and those that ended too late."""

    run_tasks = late_tasks = plan_ks = 0
    end_ns = 0

    def _execute(self, boxes: tuple[int, ...], claims: Mapping[int, Claim], begun_ns: float) -> PlanTimes:
        ran = super()._execute(boxes, claims, begun_ns)
        ended_ns = self.end_ns = ran.end_ns
        self.plan_ks += getattr(self.state.index, "k", 1)
        for arc, claim in claims.items():
            due_ns = self.state.facts.deadline_ns[self.network.arcs[arc].box or 0]
            for train in claim.trains:
                self.run_tasks += train.count
                if ended_ns > train.first_ns + due_ns:  # type: ignore[attr-defined]
                    self.late_tasks += train.count
        return ran


def run_simulated_tasks(setup: DeadlineSetup) -> DeadlineResult:
    network = setup.network()
    statistics = Statistics(network)
    statistics.cost_per_call_ns[:] = 0.0
    simulation = TaskSimulation(
        network,
        policies()[NAMES[setup.policy]],
        arrivals(network, setup),
        statistics=statistics,
        settings=SchedulerSettings(train=TrainRule("all"), batch=rule(setup)),
        overheads=Overheads(step_ns(setup), 0.0, 0.0, 0.0),
    )
    simulation.loop.plans_at_least = 1
    simulation.run(end_ns(setup))
    came = simulation.arrived - simulation.came_tuples[-1]  # without the ticks of the clock stream
    totals = simulation.totals
    length_ns = max(setup.duration_s * SECOND, simulation.end_ns)
    return DeadlineResult(
        sdmr=1 - (simulation.run_tasks - simulation.late_tasks) / came,
        overhead_s=totals.scheduler_ns / 1e9,
        cpu=(totals.scheduler_ns + totals.box_ns) / length_ns,
        k=simulation.plan_ks / max(totals.plans, 1),
    )
