"""``bench auto``: ``policy: auto`` against every fixed policy, in the simulator, on the workloads of ``auto_set.py``.

Two claims are held. On no workload is auto more than 5 % behind the best fixed policy in utility; and over the whole
set it is ahead of every single one. A fixed policy is left out where the network lacks what it goes by. One that needs
a step for every tuple where tuples come by the million is stopped after ``STEPS_A_TRAIN`` steps for each train that
arrived; what it has not delivered by then is worth nothing.

The same seed gives the same table: nothing here depends on the machine. So the work is cut into pieces, a policy on a
workload each, which any number of processes may do and which are kept (``auto_pieces.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from engine.bench.auto_pieces import Done, Keep, Piece, each
from engine.bench.auto_set import ALL, QUICK, Case, Workload, build
from engine.bench.harness import BenchError, Options
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

workload_of = lru_cache(maxsize=1)(build)  # arrivals take room, and pieces of one workload come one after another


def run(options: Options, seed: int = 7, keep: Keep | None = None, only: str = "") -> Iterator[Result]:
    """For each workload auto beside the best, then over all of them auto beside each."""
    sums: dict[str, list[float]] = {}
    own: list[float] = []
    known = QUICK if options.quick else ALL
    cases = [c for c in known if only in str(c)]
    if not cases:
        raise BenchError(f"no workload has {only!r} in its name; there is {', '.join(map(str, known))}")
    pieces = [Piece(case, policy, seed) for case in cases for policy in contenders(case, seed)]
    found: dict[Case, dict[str, Done]] = {}
    for piece, done in each(pieces, do, keep or Keep()):
        of_case = found.setdefault(piece.case, {})
        of_case[piece.policy] = done
        if len(of_case) < sum(p.case == piece.case for p in pieces):
            continue
        fixed = {p: d.utility for p, d in of_case.items() if p != AUTO}
        mine = of_case[AUTO]
        own.append(mine.utility)
        for policy, utility in fixed.items():
            sums.setdefault(policy, []).append(utility - mine.utility)
        yield _beside_the_best(piece.case, mine, fixed)
    if not own:
        return
    mean = sum(own) / len(own)
    for policy, ahead in sorted(sums.items(), key=lambda item: -sum(item[1]) / len(item[1])):
        # Over the workloads that the policy can run at all.
        theirs = mean + sum(ahead) / len(ahead)
        extra = {"engine": "simulated", "workloads": len(ahead)}
        yield Result("auto", f"whole set, against {policy}", "utility", mean, theirs, at_least=1.0, extra=extra)


def _beside_the_best(case: Case, mine: Done, fixed: dict[str, float]) -> Result:
    best = max(fixed, key=lambda p: fixed[p])
    extra = {"engine": "simulated", "chose": mine.chose, "fixed": {p: round(u, 4) for p, u in sorted(fixed.items())}}
    return Result(
        "auto", f"{case}, best fixed {best}", "utility", mine.utility, fixed[best], at_least=BEHIND, extra=extra
    )


def contenders(case: Case, seed: int) -> tuple[str, ...]:
    """auto, and every policy that can run this network; the demo and each paper's figure have one for all loads."""
    network = build(case._replace(amount=min(case.amount, 0.001)), seed).network
    return (AUTO, *(p for p in policies() if not requirements(p, network)))


def do(piece: Piece) -> Done:
    return utility_of(workload_of(piece.case, piece.seed), piece.policy, piece.seed)


def utility_of(workload: Workload, policy: str, seed: int) -> Done:
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
    return Done(delivered, [f"{c.at_ns / 1e9:.1f}s {c.policy}" for c in chooser.history] if chooser is not None else [])


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
