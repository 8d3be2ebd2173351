"""``bench auto``: ``policy: auto`` against every fixed policy, in the simulator, on the workloads of ``workloads.py``.

Two goals: on no workload is the utility of auto more than 5 % below that of the best fixed policy, and over the whole
set it is above that of every single one. A fixed policy does not run on a network that lacks what the policy needs
(deadlines, for example). Some policies need a step for every tuple; with millions of tuples the run stops after
``STEPS_A_TRAIN`` steps for each train that arrived, and tuples that were not delivered by then are worth nothing.

The same seed gives the same table on every machine. So the work is divided into pieces, one policy on one workload
each; any number of processes may run them, and results can be kept (``pieces.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from engine.lab.bench.auto.pieces import AutoPiece, PieceResult, PieceStore, run_pieces
from engine.lab.bench.auto.workloads import ALL, QUICK, AutoCase, Workload, build
from engine.lab.bench.harness import BenchError, Options
from engine.lab.bench.report import Result
from engine.simulate.autopilot import SimulatedAutopilot
from engine.simulate.chooser import Chooser
from engine.simulate.core import Simulation
from engine.simulate.quality import summary
from engine.simulate.what_if import WhatIf
from scheduler.choice import AUTO
from scheduler.policies import policies, requirements

AT_LEAST = 0.95  # of the utility of the best fixed policy
STEPS_A_TRAIN = 50
SLICE_NS = 250_000_000

workload_of = lru_cache(maxsize=1)(
    build
)  # one at a time: arrivals take memory, and the pieces of a workload follow one another


def run(options: Options, seed: int = 7, store: PieceStore | None = None, only: str = "") -> Iterator[Result]:
    """Yield auto against the best policy for each workload, then auto against each policy over all workloads."""
    sums: dict[str, list[float]] = {}
    own: list[float] = []
    known = QUICK if options.quick else ALL
    cases = [c for c in known if only in str(c)]
    if not cases:
        raise BenchError(f"no workload has {only!r} in its name; the workloads are {', '.join(map(str, known))}")
    pieces = [AutoPiece(case, policy, seed) for case in cases for policy in contenders(case, seed)]
    found: dict[AutoCase, dict[str, PieceResult]] = {}
    for piece, done in run_pieces(pieces, run_piece, store or PieceStore()):
        of_case = found.setdefault(piece.case, {})
        of_case[piece.policy] = done
        if len(of_case) < sum(p.case == piece.case for p in pieces):
            continue
        fixed = {p: d.utility for p, d in of_case.items() if p != AUTO}
        mine = of_case[AUTO]
        own.append(mine.utility)
        for policy, utility in fixed.items():
            sums.setdefault(policy, []).append(utility - mine.utility)
        yield _against_the_best(piece.case, mine, fixed)
    if not own:
        return
    mean = sum(own) / len(own)
    for policy, ahead in sorted(sums.items(), key=lambda item: -sum(item[1]) / len(item[1])):
        # Over the workloads that the policy can run.
        theirs = mean + sum(ahead) / len(ahead)
        extra = {"engine": "simulated", "workloads": len(ahead)}
        yield Result("auto", f"whole set, against {policy}", "utility", mean, theirs, at_least=1.0, extra=extra)


def _against_the_best(case: AutoCase, mine: PieceResult, fixed: dict[str, float]) -> Result:
    best = max(fixed, key=lambda p: fixed[p])
    extra = {"engine": "simulated", "chose": mine.chose, "fixed": {p: round(u, 4) for p, u in sorted(fixed.items())}}
    return Result(
        "auto", f"{case}, best fixed {best}", "utility", mine.utility, fixed[best], at_least=AT_LEAST, extra=extra
    )


def contenders(case: AutoCase, seed: int) -> tuple[str, ...]:
    """List auto and every policy that can run the network of this case; the network is the same for all loads."""
    network = build(case._replace(amount=min(case.amount, 0.001)), seed).network
    return (AUTO, *(p for p in policies() if not requirements(p, network)))


def run_piece(piece: AutoPiece) -> PieceResult:
    return utility_of(workload_of(piece.case, piece.seed), piece.policy, piece.seed)


def utility_of(workload: Workload, policy: str, seed: int) -> PieceResult:
    """Simulate a policy; return its utility, and for auto the policies that it chose."""
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
        SimulatedAutopilot(simulation, chooser)
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
        delivered *= min(1.0, processed_share(simulation, came))
    return PieceResult(
        delivered, [f"{c.at_ns / 1e9:.1f}s {c.policy}" for c in chooser.history] if chooser is not None else []
    )


def processed_share(simulation: Simulation, came: int) -> float:
    """Return the share of the tuples that came which are no longer waiting."""
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
