"""``bench auto --real``: ``policy: auto`` against every fixed policy on the engine itself, with threads and shedding.

Three networks of ``bench promise`` (``values``, ``windows``, ``many``), each at four multiples of its measured knee. A
policy that lacks what it needs does not run. ``auto``, ``qos`` and ``round_robin`` run ``ROUNDS`` times in turn, the
others once: the spread of the rounds is the noise, and above the knee ``auto`` must not be behind ``qos`` or
``round_robin`` by more than that. A run beside which other processes take more than ``OTHERS_CORES`` is repeated, and
the least disturbed of ``TRIES`` counts: beside busy neighbours the last policies of a list once came out far ahead of
the first, because the neighbours had ended.

A whole table takes about 25 minutes. With a folder that keeps results the work can be done in slices. Results depend on
the machine, so a change of the code does not invalidate them: use a new folder for a new table.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import orjson

from engine.lab.bench.auto.real_run import RealPiece, RealRun, measure_knee, run_real_piece
from engine.lab.bench.harness import BenchError, make_folder, read_kept
from engine.lab.bench.promise.kinds import generate
from engine.run.network_file import read_network
from scheduler.choice import AUTO
from scheduler.policies import policies, requirements

NETWORKS = ("values", "windows", "many")
LOADS = (0.7, 1.0, 1.5, 3.0)
SEED = 1
SECONDS, WARM_S = 6.0, 2.0
ROUNDS = 3
OFTEN = (AUTO, "qos", "round_robin")  # these run in every round
OTHERS_CORES, TRIES = 0.1, 3
OVERLOAD = 1.2  # multiples of the knee from here on are an overload


class RealCase(NamedTuple):
    """One network at one load."""

    kind: str
    load: float

    def __str__(self) -> str:
        return f"{self.kind} at {self.load:g}"


@dataclass(frozen=True)
class RealPlan:
    """What to run. ``folder`` keeps results; None: none are kept."""

    folder: Path | None = None
    only: str = ""
    rounds: int = ROUNDS
    seconds: float = SECONDS
    policies: Sequence[str] = ()  # empty: all that fit
    progress: Callable[[int, int, str, float], None] = lambda done, of, name, utility: None

    @property
    def cases(self) -> list[RealCase]:
        known = [RealCase(kind, load) for kind in NETWORKS for load in LOADS]
        found = [case for case in known if self.only in str(case)]
        if not found:
            raise BenchError(f"no case has {self.only!r} in its name; the cases are {', '.join(map(str, known))}")
        return found


class CaseTable(NamedTuple):
    """All runs of one case, by policy."""

    case: RealCase
    runs: Mapping[str, Sequence[RealRun]]

    def utility(self, policy: str) -> float:
        return median(run.utility for run in self.runs[policy])

    def spread(self, policy: str) -> float:
        """Half of the range of the rounds: what chance does."""
        found = [run.utility for run in self.runs[policy]]
        return (max(found) - min(found)) / 2

    @property
    def best(self) -> str:
        return max((p for p in self.runs if p != AUTO), key=self.utility)


def tables(plan: RealPlan) -> Iterator[CaseTable]:
    """Yield each case when it is complete."""
    cases = plan.cases
    if plan.folder is not None:
        make_folder(plan.folder)
    fitting = {kind: plan.policies or contenders(kind) for kind in dict.fromkeys(c.kind for c in cases)}
    of = sum(_runs(fitting[case.kind], plan.rounds) for case in cases)
    done = 0
    for case in cases:
        knee_per_s = _kept(plan.folder, f"knee-{case.kind}.json", float, lambda kind=case.kind: _knee(kind))
        found: dict[str, list[RealRun]] = {}
        for number in range(plan.rounds):
            for policy in fitting[case.kind]:
                if number and policy not in OFTEN:
                    continue
                piece = RealPiece(case.kind, SEED, case.load, policy, plan.seconds, WARM_S, knee_per_s, number)
                name = f"{case.kind}-{case.load:g}-{policy}-{number}.json"
                run = _kept(plan.folder, name, _run_of, lambda piece=piece: _undisturbed(run_real_piece, piece))
                found.setdefault(policy, []).append(run)
                done += 1
                plan.progress(done, of, f"{case}, {policy}", run.utility)
        yield CaseTable(case, found)


def contenders(kind: str) -> tuple[str, ...]:
    """List auto and every fixed policy that can run the network of this kind, those of every round first."""
    network = read_network(orjson.dumps(generate(kind, SEED).document).decode(), {})
    others = [p for p in policies() if p not in OFTEN and not requirements(p, network)]
    return (*OFTEN, *others)


def _runs(fitting: Sequence[str], rounds: int) -> int:
    return sum(rounds if p in OFTEN else 1 for p in fitting)


def _knee(kind: str) -> float:
    return float(max(_undisturbed(measure_knee, kind, SEED).per_s for _ in range(2)))


def _undisturbed(work: Callable[..., Any], *arguments: Any) -> Any:
    """Return the run beside which other processes took the least, of as few as will do."""
    runs: list[Any] = []
    while len(runs) < TRIES and not any(run.others_cores <= OTHERS_CORES for run in runs):
        runs.append(_alone(work, *arguments))
    return min(runs, key=lambda run: run.others_cores)


def _alone(work: Any, *arguments: Any) -> Any:
    """Run in a new process, so that no run inherits threads, memory or warm code of another."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(work, *arguments).result()


def _run_of(data: Any) -> RealRun:
    return RealRun(**data)


def _kept(folder: Path | None, name: str, of: Any, make: Any) -> Any:
    """Return a result that was kept, or make it and keep it."""
    if folder is None:
        return make()
    file = folder / name
    if file.exists():
        return read_kept(file, of, "`bench auto --real` keeps")
    made = make()
    part = folder / f"{name}.{os.getpid()}"
    part.write_bytes(orjson.dumps(made._asdict() if isinstance(made, RealRun) else made))
    part.replace(file)
    return made
