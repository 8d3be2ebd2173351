"""The verdict of ``bench promise``: for each goal the cases that reached it, and those that missed it, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import NamedTuple

from engine.lab.bench.promise.bench import PromiseCell
from engine.lab.bench.promise.measured import PromiseRun

OF_IDEAL, OF_NAIVE, CLAIM_OFF, CONTRACT_OFF, KNEE_OFF = 0.9, 1.0, 0.1, 0.1, 0.2
SETTLE_S, RESTORE_S, SPREAD, COVERED, GROWTH = 2.0, 5.0, 0.1, 0.94, 1.25
STARVED, WORTH_IT = 0.05, 0.2  # an output below the first, where the ideal gives it the second or more
BELOW_THE_KNEE = 0.9
LEAST_INTERVALS = 1_000
"""For a statement about their coverage. Intervals that hold in 95 % of all cases hold in 91.7 % or less of 120 windows
once in 13 runs, by chance."""


class GoalVerdict(NamedTuple):
    """One goal over all cases. ``missed`` names the cases, the worst first, each with its figure."""

    goal: str
    reached: int
    missed: tuple[str, ...]

    @property
    def text(self) -> str:
        cases = self.reached + len(self.missed)
        if not cases:
            return f"no case  {self.goal}"
        word = "missed " if self.missed else "reached"
        more = f" and {len(self.missed) - 5} more" if len(self.missed) > 5 else ""
        return f"{word}  {self.goal}: {self.reached} of {cases}" + (
            f"; missed by {', '.join(self.missed[:5])}{more}" if self.missed else ""
        )


class GoalCase(NamedTuple):
    """The figure of one cell, or of one contender in it: how far it is from the goal, 0 or less: reached."""

    name: str
    short_by: float
    shown: str


Judge = Callable[[PromiseCell, str], Iterator[tuple[float, str]]]
"""Yields how far a contender of ours is from a goal in a cell, and the figure; nothing where it does not apply."""


def verdicts(cells: Sequence[PromiseCell]) -> list[GoalVerdict]:
    """Judge every goal on all cells. The median of the runs counts, except where every run must hold."""
    return [_verdict(goal, [*_cases(cells, judge)]) for goal, judge in GOALS.items()]


def _cases(cells: Sequence[PromiseCell], judge: Judge) -> Iterator[GoalCase]:
    for cell in cells:
        for contender in cell.ours:
            for short_by, shown in judge(cell, contender):
                yield GoalCase(f"{cell.network} {cell.shape} {cell.load:g} {contender}", short_by, shown)


def _verdict(goal: str, cases: Sequence[GoalCase]) -> GoalVerdict:
    missed = sorted((c for c in cases if c.short_by > 1e-9), key=lambda c: -c.short_by)
    return GoalVerdict(goal, len(cases) - len(missed), tuple(f"{c.name} ({c.shown})" for c in missed))


def _untouched(cell: PromiseCell, contender: str) -> Iterator[tuple[float, str]]:
    if cell.shape == "steady" and cell.load < BELOW_THE_KNEE:
        lost = median(r.lost_later for r in cell.of(contender))
        yield lost, f"{lost:,.0f} dropped"


def _ideal(cell: PromiseCell, contender: str) -> Iterator[tuple[float, str]]:
    ratio = cell.utility(contender) / max(cell.ideal.utility, 1e-9)
    yield OF_IDEAL - ratio, f"{ratio:.2f}"


def _naive(cell: PromiseCell, contender: str) -> Iterator[tuple[float, str]]:
    if cell.best_naive is not None:
        ratio = cell.utility(contender) / max(cell.best_naive, 1e-9)
        yield OF_NAIVE - ratio, f"{ratio:.2f}"


def starved(cell: PromiseCell, run: PromiseRun) -> list[str]:
    """Return the outputs that have next to nothing, where the ideal gives them something."""
    return [o.name for o in run.outputs if o.utility < STARVED and cell.ideal.outputs[o.name] >= WORTH_IT]


def _fed(cell: PromiseCell, contender: str) -> Iterator[tuple[float, str]]:
    hungry = starved(cell, cell.typical(contender))
    yield float(len(hungry)), ", ".join(hungry[:3])


def _claims(cell: PromiseCell, contender: str) -> Iterator[tuple[float, str]]:
    off = median(r.worst_claim for r in cell.of(contender))
    yield off - CLAIM_OFF, f"{off:.2f}"


def _contract(cell: PromiseCell, contender: str) -> Iterator[tuple[float, str]]:
    if cell.contract is not None and contender == cell.contract.policy:
        off = cell.contract.utility / max(cell.utility(contender), 1e-9) - 1
        yield abs(off) - CONTRACT_OFF, f"{off:+.0%}"


def _knee(cell: PromiseCell, contender: str) -> Iterator[tuple[float, str]]:
    if cell.contract is not None and contender == cell.contract.policy:
        off = cell.contract_knee_per_s / max(cell.knee_per_s, 1e-9) - 1
        yield abs(off) - KNEE_OFF, f"{off:+.0%}"


def _settles(cell: PromiseCell, contender: str) -> Iterator[tuple[float, str]]:
    if steps := [r.step.settled_s for r in cell.of(contender) if r.step is not None]:
        yield median(steps) - SETTLE_S, f"{median(steps):.1f} s"


def _restores(cell: PromiseCell, contender: str) -> Iterator[tuple[float, str]]:
    if steps := [r.step.restored_s for r in cell.of(contender) if r.step is not None]:
        yield median(steps) - RESTORE_S, f"{median(steps):.1f} s"


def _steady(cell: PromiseCell, contender: str) -> Iterator[tuple[float, str]]:
    found = [r.utility for r in cell.of(contender)]
    if len(found) > 1:
        spread = (found[-1] - found[0]) / max(median(found), 1e-9)
        yield spread - SPREAD, f"{spread:.0%}"


def _exact(cell: PromiseCell, contender: str) -> Iterator[tuple[float, str]]:
    wrong = max(r.wrong_windows for r in cell.of(contender))
    yield float(wrong), f"{wrong} wrong"


def _covered(cell: PromiseCell, contender: str) -> Iterator[tuple[float, str]]:
    held, known = (sum(r.covered[i] for r in cell.of(contender)) for i in (0, 1))
    if known >= LEAST_INTERVALS:
        yield COVERED - held / known, f"{held / known:.1%} of {known}"


def _accounted(cell: PromiseCell, contender: str) -> Iterator[tuple[float, str]]:
    residual = max(abs(r.residual) for r in cell.of(contender))
    yield float(residual), f"{residual} tuples"


def _flat(cell: PromiseCell, contender: str) -> Iterator[tuple[float, str]]:
    growth = median(r.memory_growth for r in cell.of(contender))
    yield growth - GROWTH, f"{growth:.2f} times"


GOALS: dict[str, Judge] = {
    "at 0.7 of the knee, steady: nothing is dropped after the first second": _untouched,
    f"utility >= {OF_IDEAL:g} of the ideal": _ideal,
    "utility >= the best naive strategy": _naive,
    f"no output below {STARVED:g} where the ideal gives it {WORTH_IT:g}": _fed,
    f"|claimed - measured| <= {CLAIM_OFF:g} per output": _claims,
    f"contract: total within {CONTRACT_OFF:.0%}": _contract,
    f"contract: knee within {KNEE_OFF:.0%}": _knee,
    f"a step settles within {SETTLE_S:g} s": _settles,
    f"full delivery is back within {RESTORE_S:g} s": _restores,
    f"spread of runs <= {SPREAD:.0%}": _steady,
    "exact windows wrong: 0": _exact,
    f"intervals at 95 % hold the truth in >= {COVERED:.0%} of the windows": _covered,
    "residual 0": _accounted,
    f"resident memory grows by less than {GROWTH - 1:.0%} after the warm-up": _flat,
}
