"""P2, figure 12: the share of tuples that meet a broken pipeline, simulated.

The runs are those of figure 11. P is the share of tuples of the first stream that are stopped before the join, because
a tuple waits in the second queue when their turn comes (the rule of figure 9). The figure also plots the cost model's
substitute for P, the share of time in which the second stream has a tuple in the system (that includes a tuple in
service, which stops none), and the model itself: the root of equations 3 and 4 (see figure 10 for the printed cubic).
"""

from __future__ import annotations

from engine.lab.figures.figure import Check, Figure, FigureData, FigureVerdict, Panel
from engine.lab.figures.lab import Lab
from engine.lab.figures.p2_10 import FEW, JOIN_UNITS, NEAR, QUICK, RATES, TUPLES
from engine.lab.figures.p2_closed_forms import broken_share, derived_cubic
from engine.lab.figures.p2_systems import joined

FIGURE = Figure(
    title="Probability of a broken pipeline, simulated",
    claim="P rises sharply with the workload of the system, as the cost model says.",
    engines=("simulated",),
    parameters={
        "network": "two segments of 1 unit, a join of n = 20 units",
        "service times": "exponential",
        "arrivals": "Poisson, both streams at lambda",
        "policy": "chain with the rule of figure 9, one tuple at a time",
    },
)

STOPPED, BUSY, MODEL = "tuples stopped", "second stream inside", "equations 3 and 4"


def measure(lab: Lab) -> FigureData:
    rates = lab.choose(RATES, QUICK)
    curves: dict[str, list[tuple[float, float]]] = {STOPPED: [], BUSY: [], MODEL: []}
    for number, x in enumerate(rates):
        lab.progress(number / len(rates))
        found = joined(x, JOIN_UNITS, lab.choose(TUPLES, FEW))
        curves[STOPPED].append((x, found.broken))
        curves[BUSY].append((x, found.second_busy))
        curves[MODEL].append((x, broken_share(derived_cubic(x))))
    return FigureData((Panel("lambda n", "probability", curves, dashed=(MODEL,)),))


def verdict(measured: FigureData) -> FigureVerdict:
    stopped, busy, model = (list(measured.curve(name).values()) for name in (STOPPED, BUSY, MODEL))
    off = max(abs(b - m) for b, m in zip(busy, model, strict=True))
    gaps = [m - s for s, m in zip(stopped, model, strict=True)]
    return FigureVerdict(
        (
            Check(
                stopped == sorted(stopped) and stopped[-1] >= 10 * stopped[0],
                f"stopped tuples rise from {stopped[0]:.2f} to {stopped[-1]:.2f}",
            ),
            Check(off <= NEAR, f"the cost model is within {off:.2f} of the share of time that it stands for"),
            Check(
                gaps[-1] <= NEAR / 2,
                f"stopped tuples lie below the model ({max(gaps):.2f} at most) and reach it as load rises",
            ),
        ),
        "broken_probability",
        stopped[-1],
        model[-1],
    )
