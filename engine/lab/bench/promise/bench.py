"""The plan of all runs: networks, loads and shapes, and for each of them the contenders in turn."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import NamedTuple

from engine.lab.bench.overload.arrivals import ArrivalShape
from engine.lab.bench.promise.ideal import Ideal
from engine.lab.bench.promise.kinds import KINDS, generate
from engine.lab.bench.promise.measured import PromiseRun
from engine.lab.bench.promise.scenario import Contender
from engine.lab.bench.promise.trial import PromiseTrial

POLICIES = ("round_robin", "qos", "auto")
NAIVE = ("block", "oldest", "newest", "random")
RATES = (0.85, 1.0)  # of the knee, that ``random`` lets in
SHAPES = {"steady": "uniform", "step": "step", "bursts": "bursts"}
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


class PromiseCell(NamedTuple):
    """One network under one load and shape: all runs of all contenders."""

    network: str
    shape: str
    load: float
    knee_per_s: float
    ideal: Ideal
    runs: Sequence[PromiseRun]
    ours: Sequence[str]

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
    cells = plan.seeds * len(plan.kinds) * len(plan.loads) * max(1, len(plan.shapes))
    done = 0
    for seed in range(1, plan.seeds + 1):
        for kind in plan.kinds:
            spec = generate(kind, seed)
            with tempfile.TemporaryDirectory(prefix="aurorad-promise-") as folder:
                trial = PromiseTrial(spec, Path(folder), plan.seconds, progress)
                trial.find_knee()
                for shape in plan.shapes or (spec.shape,):
                    for load in plan.loads:
                        done += 1
                        progress(f"{done} of {cells}: {spec.name}, {shape} arrivals at {load:g} times the knee")
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
    return PromiseCell(trial.spec.name, shape, load, trial.knee_per_s, best, runs, ours)
