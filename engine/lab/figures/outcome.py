"""From runs to a word: in how many runs a claim holds, the mean with its interval, and where it breaks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import sqrt
from statistics import fmean, stdev
from typing import NamedTuple

from engine.lab.figures.figure import DIFFERS, HOLDS, SHAPE, Figure, FigureData, FigureVerdict, Panel
from engine.lab.figures.sweep import Variation

ENOUGH = 0.9  # of the runs
STUDENT = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)  # 95 %, by degrees of freedom from 1


class FigureRun(NamedTuple):
    variation: Variation
    measured: FigureData
    verdict: FigureVerdict


class Mean(NamedTuple):
    """Of some runs, with its 95 % interval. One run has no interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}]"


class Held(NamedTuple):
    """In how many runs one statement holds, and where it does not."""

    what: str
    reading: str
    held: int
    of: int
    seen: str  # in the first run at our settings
    broken: tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    """The verdict on a figure."""

    word: str
    held: int  # of ``variations``, the runs that judge the claim: the sweep, or on the real engine the seeds
    variations: int
    seeds_held: int  # of ``seeds``, the runs at our settings
    seeds: int
    statements: tuple[Held, ...]
    value: Mean
    ours: dict[str, Mean]  # beside the numbers of the paper, by their name
    is_near: dict[str, bool]


def mean_of(values: Sequence[float]) -> Mean:
    middle = fmean(values)
    if len(values) < 2:
        return Mean(middle, middle, middle)
    free = len(values) - 1
    half = (STUDENT[free - 1] if free <= len(STUDENT) else 2.0) * stdev(values) / sqrt(len(values))
    return Mean(middle, middle - half, middle + half)


def judge(figure: Figure, runs: Sequence[FigureRun]) -> Outcome:
    """Judge a claim by its runs."""
    declared = [r for r in runs if not r.variation.changed]
    swept = [r for r in runs if r.variation.changed]
    judging = swept or declared
    held = sum(r.verdict.holds for r in judging)
    ours = {p.what: mean_of([r.verdict.ours[p.what] for r in declared]) for p in figure.paper}
    is_near = {p.what: figure.near(p, ours[p.what].value) for p in figure.paper}
    word = DIFFERS
    if held >= ENOUGH * len(judging):
        word = HOLDS if all(is_near.values()) else SHAPE
    return Outcome(
        word,
        held,
        len(judging),
        sum(r.verdict.holds for r in declared),
        len(declared),
        statements(declared, judging),
        mean_of([r.verdict.value for r in declared]),
        ours,
        is_near,
    )


def statements(declared: Sequence[FigureRun], judging: Sequence[FigureRun]) -> tuple[Held, ...]:
    """Count each statement of the claim by itself: a claim often breaks in one of them."""
    out = []
    for number, first in enumerate(declared[0].verdict.checks):
        broken = [r for r in judging if not r.verdict.checks[number].ok]
        places = tuple(f"{r.variation.words()} ({r.verdict.checks[number].seen})" for r in broken)
        of = len(judging)
        out.append(Held(first.what, first.reading, of - len(broken), of, first.seen, places))
    return tuple(out)


def mean_data(runs: Sequence[FigureData]) -> FigureData:
    """Average the curves of runs at the same settings, with the interval of each point."""
    panels = tuple(_mean_panel([r.panels[i] for r in runs]) for i in range(len(runs[0].panels)))
    shared = [name for name in runs[0].numbers if all(name in r.numbers for r in runs)]
    return FigureData(panels, {name: fmean(r.numbers[name] for r in runs) for name in shared})


def _mean_panel(panels: Sequence[Panel]) -> Panel:
    first = panels[0]
    curves, bands = {}, {}
    for name, curve in first.curves.items():
        of = [p.curves.get(name, ()) for p in panels]
        if any([x for x, _ in c] != [x for x, _ in curve] for c in of):
            curves[name] = curve  # the runs have points at other places: the first run stands for all
            continue
        means = [mean_of([c[i][1] for c in of]) for i in range(len(curve))]
        curves[name] = [(x, m.value) for (x, _), m in zip(curve, means, strict=True)]
        if len(panels) > 1 and name not in first.dashed:
            bands[name] = [(m.low, m.high) for m in means]
    return replace(first, curves=curves, bands=bands)
