"""The plan of all runs: networks, loads and shapes, and for each of them the contenders in turn."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import monotonic
from typing import NamedTuple

from engine.lab.bench.overload.arrivals import ArrivalShape
from engine.lab.bench.promise.ideal import Ideal
from engine.lab.bench.promise.kinds import KINDS, generate
from engine.lab.bench.promise.measured import PromiseRun
from engine.lab.bench.promise.scenario import Contender
from engine.lab.bench.promise.trial import PromiseTrial
from engine.simulate.contract import Contract

POLICIES = ("round_robin", "qos", "auto")
NAIVE = ("block", "oldest", "newest", "random")
RATES = (0.85, 1.0)  # of the knee, that ``random`` lets in
SHAPES = {"steady": "uniform", "step": "step", "bursts": "bursts"}
CONTRACT_POLICY = "qos"
START_S, KNEE_TAKES_S = 4.0, 17.0  # beside the seconds of a run; to find a knee
Progress = Callable[[str], None]


@dataclass(frozen=True)
class PromisePlan:
    """What to run. Without ``shapes`` each network has the arrivals of its kind."""

    kinds: Sequence[str] = tuple(KINDS)
    seeds: int = 1
    loads: Sequence[float] = (0.7, 1.5, 3.0)
    shapes: Sequence[str] = ()
    policies: Sequence[str] = POLICIES
    naive: Sequence[str] = NAIVE
    seconds: float = 20.0
    rounds: int = 3

    def contenders(self) -> list[Contender]:
        found = [Contender(p, p, is_ours=True) for p in self.policies]
        for name in self.naive:
            if name == "random":
                found += [Contender(f"random {r:g}", manner="random", rate=r) for r in RATES]
            else:
                found.append(Contender(name, manner="direct" if name == "block" else name))
        return found

    @property
    def cells(self) -> int:
        return self.seeds * len(self.kinds) * len(self.loads) * max(1, len(self.shapes))

    @property
    def estimate_s(self) -> float:
        """How long all of it takes, about."""
        runs = self.cells * self.rounds * len(self.contenders()) * (self.seconds + START_S)
        return runs + self.seeds * len(self.kinds) * KNEE_TAKES_S


class PromiseCell(NamedTuple):
    """One network under one load and shape: all runs of all contenders."""

    network: str
    shape: str
    load: float
    knee_per_s: float
    ideal: Ideal
    runs: Sequence[PromiseRun]
    ours: Sequence[str]
    contract: Contract | None = None  # the simulator's prediction for qos
    contract_knee_per_s: float = 0.0

    @property
    def contenders(self) -> list[str]:
        return list(dict.fromkeys(run.contender for run in self.runs))

    def of(self, contender: str) -> list[PromiseRun]:
        """Return the runs of a contender, by rising utility."""
        return sorted((r for r in self.runs if r.contender == contender), key=lambda r: r.utility)

    def utility(self, contender: str) -> float:
        return median(run.utility for run in self.of(contender))

    def typical(self, contender: str) -> PromiseRun:
        """Return the run of median utility."""
        runs = self.of(contender)
        return runs[(len(runs) - 1) // 2]

    @property
    def best_naive(self) -> float | None:
        """The highest utility of a naive contender."""
        return max((self.utility(c) for c in self.contenders if c not in self.ours), default=None)


def run_promise(plan: PromisePlan, progress: Progress) -> Iterator[PromiseCell]:
    """Run everything, network by network; yield each cell when it is complete."""
    contenders = plan.contenders()
    done = 0
    begun_s = monotonic()
    progress(f"{plan.cells} networks, loads and shapes, {len(contenders)} contenders each: {span(plan.estimate_s)}")
    for seed in range(1, plan.seeds + 1):
        for kind in plan.kinds:
            spec = generate(kind, seed)
            with tempfile.TemporaryDirectory(prefix="aurorad-promise-") as folder:
                trial = PromiseTrial(spec, Path(folder), plan.seconds, progress)
                trial.find_knee()
                for shape in plan.shapes or (spec.shape,):
                    for load in plan.loads:
                        left = plan.estimate_s if not done else (monotonic() - begun_s) / done * (plan.cells - done)
                        done += 1
                        where = f"{spec.name}, {shape} arrivals at {load:g} times the knee"
                        progress(f"{done} of {plan.cells}: {where}; {span(left)} left")
                        yield _run_cell(trial, shape, load, plan, contenders, progress)


def _run_cell(
    trial: PromiseTrial, shape: str, load: float, plan: PromisePlan, contenders: Sequence[Contender], progress: Progress
) -> PromiseCell:
    arrivals = ArrivalShape(SHAPES[shape], load, plan.seconds)
    best = trial.ideal(arrivals)
    runs = []
    for _ in range(plan.rounds):
        for contender in contenders:
            runs.append(trial.run(contender, arrivals))
            progress(f"    {contender.name}: {runs[-1].utility:.2f} of {best.utility:.2f}")
    ours = [c.name for c in contenders if c.is_ours]
    promised = trial.contract(arrivals) if CONTRACT_POLICY in ours else None
    knee = trial.contract_knee_per_s if promised is not None else 0.0
    return PromiseCell(trial.spec.name, shape, load, trial.knee_per_s, best, runs, ours, promised, knee)


def span(seconds: float) -> str:
    """Write a time for people."""
    if seconds < 5_400:
        return f"about {max(1, round(seconds / 60))} min"
    return f"about {seconds / 3_600:.1f} h"
