"""P2, figure 10: the probability P of a broken pipeline at a join, by the closed form.

Two streams of one rate lambda meet in a join that takes tuples in the order of time; O1 and O2 take a unit each, the
join and what follows n >> 1 units, all exponential. Chain runs the first segment first; a tuple of it is stopped before
the join while the second queue is not empty. Equations 3 and 4 both give E(W2) by P, and so P by lambda n: the paper
prints a cubic, and draws its root.

Simulated: the share of time in which a tuple of the second stream is inside, which is what the text takes P for ("by
PASTA"), under the rule of figure 9. Figure 12 has the stopped tuples themselves.
"""

from __future__ import annotations

from engine.bench.figures.base import Check, Figure, Measured, Panel, Verdict
from engine.bench.figures.closed_forms import broken_share, derived_cubic, printed_cubic
from engine.bench.figures.lab import Lab
from engine.bench.figures.pipeline import joined

FIGURE = Figure(
    title="Probability of a broken pipeline, by the closed form",
    claim=(
        "P is the root of lambda n P^3 + P^2 + (2 lambda^2 n^2 - 3 lambda n) P - 2 lambda^2 n^2 = 0; it rises quickly "
        "with the workload."
    ),
    engines=("simulated",),
    parameters={
        "network": "two segments of 1 unit, a join of n = 20 units",
        "service times": "exponential",
        "arrivals": "Poisson, both streams at lambda",
        "policy": "chain with the rule of figure 9, one tuple at a time",
    },
    differs={
        "simulated": (
            "The printed cubic does not follow from equations 3 and 4. With rho1 = x(1-P), rho2 = x(1+P), E(R1) = "
            "n(1-P), E(R2) = n(1+P) and x = lambda n, setting them equal gives 2x^2(1+P^2)(1-P) = "
            "P^2(1-x(1-P))(1-2x), that is x P^3 + (1-3x) P^2 + 2x^2 P - 2x^2 = 0: the paper's -3 lambda n stands "
            "with P where it belongs to P^2. Its root even exceeds 2 lambda n, the load of the whole system, which "
            "the share of time with something in one of two queues cannot. The root of the right cubic follows the "
            "simulation, and both rise as the paper says."
        )
    },
)

JOIN_UNITS = 20.0  # n
RATES = (0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45)  # lambda n; at 0.5 the system is full
QUICK = (0.1, 0.25, 0.4)
TUPLES, FEW = 15_000, 1_500  # of each stream
NEAR = 0.12


def measure(lab: Lab) -> Measured:
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
    return Measured((Panel("lambda n", "probability", curves, dashed=dashed),))


def verdict(measured: Measured) -> Verdict:
    seen = measured.curve("simulated")
    printed = {x: broken_share(printed_cubic(x)) for x in seen}
    derived = {x: broken_share(derived_cubic(x)) for x in seen}
    worst = max(seen, key=lambda x: abs(printed[x] - seen[x]))
    off = max(abs(derived[x] - seen[x]) for x in seen)
    steps = list(seen.values())
    return Verdict(
        (
            Check(
                abs(printed[worst] - seen[worst]) <= NEAR,
                f"at {worst:g} the printed cubic gives {printed[worst]:.2f} and the simulation {seen[worst]:.2f}",
            ),
            Check(off <= NEAR, f"the cubic from equations 3 and 4 is within {off:.2f} of the simulation"),
            Check(steps == sorted(steps), f"P rises from {steps[0]:.2f} to {steps[-1]:.2f}"),
        ),
        "broken_probability",
        seen[worst],
        printed[worst],
    )
