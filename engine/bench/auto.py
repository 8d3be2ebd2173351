"""``bench auto``: ``policy: auto`` against every fixed policy, in the simulator, on the workloads of ``auto_set.py``.

Two claims are held. On no workload is auto more than 5 % behind the best fixed policy in utility; and over the whole
set it is ahead of every single one. A fixed policy is left out where the network lacks what it goes by. One that needs
a step for every tuple where tuples come by the million is stopped after ``STEPS_A_TRAIN`` steps for each train that
arrived; what it has not delivered by then is worth nothing.

The same seed gives the same table: nothing here depends on the machine.
"""

from __future__ import annotations

from collections.abc import Iterator

from engine.bench.auto_set import Workload, workloads
from engine.bench.harness import Options
from engine.bench.report import Result
from engine.chooser import Chooser
from engine.simulate.core import Simulation
from engine.simulate.measure import summary
from engine.simulate.pilot import Pilot
from engine.simulate.what_if import WhatIf
from scheduler.choice import AUTO
from scheduler.policies import policies, requirements

BEHIND = 0.95  # of the best fixed policy, at least
STEPS_A_TRAIN = 50
SLICE_NS = 250_000_000


def run(options: Options, seed: int = 7) -> Iterator[Result]:
    """For each workload auto beside the best, then over all of them auto beside each."""
    sums: dict[str, list[float]] = {}
    for workload in workloads(seed, quick=options.quick):
        mine, chosen = utility_of(workload, AUTO, seed)
        fixed = {p: utility_of(workload, p, seed)[0] for p in policies() if not requirements(p, workload.network)}
        best = max(fixed, key=lambda p: fixed[p])
        for policy, utility in fixed.items():
            sums.setdefault(policy, []).append(utility - mine)
        sums.setdefault(AUTO, []).append(mine)
        case = f"{workload.case}, best fixed {best}"
        extra = {"engine": "simulated", "chose": chosen, "fixed": {p: round(u, 4) for p, u in fixed.items()}}
        yield Result("auto", case, "utility", mine, fixed[best], at_least=BEHIND, extra=extra)
    own = sums.pop(AUTO)
    mean = sum(own) / len(own)
    for policy, ahead in sorted(sums.items(), key=lambda item: -sum(item[1]) / len(item[1])):
        # Over the workloads that the policy can run at all.
        theirs = mean + sum(ahead) / len(ahead)
        yield Result("auto", f"whole set, against {policy}", "utility", mean, theirs, at_least=1.0)


def utility_of(workload: Workload, policy: str, seed: int) -> tuple[float, list[str]]:
    """Utility of a policy, and for auto what it chose on the way."""
    chooser = _chooser(workload, seed) if policy == AUTO else None
    simulation = Simulation(
        workload.network,
        policies()[policy if chooser is None else chooser.choice.policy],
        workload.trains,
        statistics=workload.statistics,
        settings=workload.settings,
        workers=workload.workers,
        overheads=workload.overheads,
    )
    if chooser is not None:
        Pilot(simulation, chooser)
    steps_at_most = STEPS_A_TRAIN * sum(len(times) for times, _ in workload.trains.values())
    until_ns = 0
    while not simulation.is_done and simulation.totals.plans <= steps_at_most:
        until_ns += SLICE_NS
        simulation.run(until_ns)
    simulation.count_expired()
    quality = summary(simulation.recorders)
    delivered = quality.utility
    if not simulation.is_done:
        came = sum(int(counts.sum()) for _, counts in workload.trains.values())
        delivered *= min(1.0, simulation_share(simulation, came))
    return delivered, [f"{c.at_ns / 1e9:.1f}s {c.policy}" for c in chooser.history] if chooser is not None else []


def simulation_share(simulation: Simulation, came: int) -> float:
    """Of the tuples that came, how many have left their first queues."""
    return max(0.0, 1 - simulation.state.waiting_tuples / max(1, came))


def _chooser(workload: Workload, seed: int) -> Chooser:
    what_if = WhatIf(
        workload.network,
        settings=workload.settings,
        workers=workload.workers,
        overheads=workload.overheads,
        seed=seed,
    )
    return Chooser(workload.network, what_if)
