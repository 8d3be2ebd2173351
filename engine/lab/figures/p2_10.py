"""P2, figure 10: the probability P of a broken pipeline at a join, by the closed form.

Two streams of the same rate lambda meet in a join that takes tuples in the order of time. O1 and O2 take one unit
each, the join and its successors n >> 1 units, all exponential. Chain runs the first segment first; its tuples are
stopped before the join while the second queue is not empty. Equations 3 and 4 both give E(W2) as a function of P, and
so P as a function of lambda n, which the figure draws.

The cubic that the paper prints as their solution is a misprint: it does not follow from them. With x = lambda n they
give x P^3 + (1-3x) P^2 + 2x^2 P - 2x^2 = 0; the paper's -3x stands with P where it belongs to P^2
(``p2_closed_forms.py``, held by tests). The verdict judges the statement of the figure: the P of the two equations is
the probability in the running system, and it rises quickly with the workload. The root of the printed cubic is drawn
beside it.

The simulation measures the share of time in which a tuple of the second stream is in the system, under the rule of
figure 9: the text equates it with P ("by PASTA"). Figure 12 counts the stopped tuples themselves.
"""

from __future__ import annotations

from engine.lab.figures.figure import Check, Figure, FigureData, FigureVerdict, Panel
from engine.lab.figures.lab import Lab
from engine.lab.figures.p2_closed_forms import broken_share, derived_cubic, printed_cubic
from engine.lab.figures.p2_systems import joined

FIGURE = Figure(
    title="Probability of a broken pipeline, by the closed form",
    claim=(
        "P, the solution of equations 3 and 4 for lambda1 = lambda2, rises quickly with the workload lambda n < 0.5; "
        "the experiments verify the model. (The cubic printed as their solution is a misprint.)"
    ),
    engines=("simulated",),
    parameters={
        "network": "two segments of 1 unit, a join of n = 20 units",
        "service times": "exponential",
        "arrivals": "Poisson, both streams at lambda",
        "policy": "chain with the rule of figure 9, one tuple at a time",
    },
)

JOIN_UNITS = 20.0  # n
RATES = (0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45)  # lambda n; at 0.5 the system is full
QUICK = (0.1, 0.25, 0.4)
TUPLES, FEW = 15_000, 1_500  # of each stream
NEAR = 0.12
QUICKLY = 1.2  # times the growth of the workload


def measure(lab: Lab) -> FigureData:
    rates = lab.choose(RATES, QUICK)
    seen = []
    for number, x in enumerate(rates):
        lab.progress(number / len(rates))
        seen.append((x, joined(x, JOIN_UNITS, lab.choose(TUPLES, FEW)).second_busy))
    points = [i / 100 for i in range(2, 50, 2)]
    curves = {
        "simulated": seen,
        "as printed": [(x, broken_share(printed_cubic(x))) for x in points],
        "from equations 3 and 4": [(x, broken_share(derived_cubic(x))) for x in points],
        "load of the system": [(x, 2 * x) for x in points],
    }
    dashed = ("as printed", "from equations 3 and 4", "load of the system")
    return FigureData((Panel("lambda n", "probability", curves, dashed=dashed),))


def verdict(measured: FigureData) -> FigureVerdict:
    seen = measured.curve("simulated")
    first, last = min(seen), max(seen)
    printed = {x: broken_share(printed_cubic(x)) for x in seen}
    derived = {x: broken_share(derived_cubic(x)) for x in seen}
    worst = max(seen, key=lambda x: abs(printed[x] - seen[x]))
    off = max(abs(derived[x] - seen[x]) for x in seen)
    steps = list(seen.values())
    misprint = (
        f"the cubic as printed is a misprint, whose root at {worst:g} is {printed[worst]:.2f} where the simulation has "
        f"{seen[worst]:.2f} and the load of the whole system is {2 * worst:.2f}"
    )
    return FigureVerdict(
        (
            Check(off <= NEAR, f"equations 3 and 4 are within {off:.2f} of the simulation; {misprint}"),
            Check(steps == sorted(steps), f"P rises from {steps[0]:.2f} to {steps[-1]:.2f}"),
            Check(
                steps[-1] / steps[0] > QUICKLY * last / first,
                f"and quickly: {steps[-1] / steps[0]:.1f} times for {last / first:.1f} times the workload",
            ),
        ),
        "broken_probability",
        seen[last],
        derived[last],
    )
