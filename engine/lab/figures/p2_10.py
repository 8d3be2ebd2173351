"""P2, figure 10: the probability P of a broken pipeline at a join, by the closed form.

Two streams of the same rate lambda meet in a join that takes tuples in the order of time. O1 and O2 take one unit
each, the join and its successors n >> 1 units, all exponential. Chain runs the first segment first; its tuples are
stopped before the join while the second queue is not empty. Equations 3 and 4 both give E(W2) as a function of P, and
so P as a function of lambda n, which the figure draws.

The experiment measures the share of time in which a tuple of the second stream is in the system, under the rule of
figure 9: the text equates it with P ("by PASTA"). Figure 12 counts the stopped tuples themselves.
"""

from __future__ import annotations

from engine.lab.figures.figure import Check, Figure, FigureData, FigureVerdict, Panel, PaperPoint, Unprinted
from engine.lab.figures.lab import Lab
from engine.lab.figures.p2_closed_forms import broken_share, derived_cubic, printed_cubic
from engine.lab.figures.p2_systems import JoinTimes, joined

AGREES = "P, measured over equations 3 and 4"
SYSTEM = {
    "network": "figure 7: two segments of 1 unit, a join of n units",
    "service times": "exponential",
    "arrivals": "Poisson, both streams at lambda",
    "policy": "chain with the rule of figure 9, one tuple at a time",
}
UNPRINTED = {
    "n": Unprinted(20.0, "units of the join and its successors: much more than 1"),
    "tuples": Unprinted(6_000, "of each stream"),
    "variation": Unprinted(
        1.0,
        "coefficient of variation of the services: exponential by the model; the engine's are nearer to fixed",
        (0.0, 0.5),
    ),
    "highest": Unprinted(0.45, "the largest lambda n that is shown: at 0.5 the system is full", (0.35, 0.4)),
    "lowest": Unprinted(0.1, "the smallest lambda n that is shown"),
}
FIGURE = Figure(
    title="Probability of a broken pipeline, by the closed form",
    claim="P, the solution of equations 3 and 4 for lambda1 = lambda2, rises quickly with the workload lambda n < 0.5.",
    printed=SYSTEM,
    unprinted=UNPRINTED,
    paper=(PaperPoint(AGREES, 1.0),),
    findings={
        "real": "On the engine a step adds to each service, so the load is higher than lambda n says.",
        "simulated": "The model treats the second queue as an M/G/1 system of its own and estimates its variance.",
    },
    erratum=(
        "The cubic that the paper prints as the solution of equations 3 and 4 does not follow from them. With x = "
        "lambda n they give "
        "x P^3 + (1-3x) P^2 + 2x^2 P - 2x^2 = 0; the paper prints x P^3 + P^2 + (2x^2-3x) P - 2x^2 = 0: the -3x "
        "stands with P where it "
        "belongs to P^2. Its root lies above the load of the whole system, which no share of time can. The drawn "
        "curve is that of "
        "the equations; the root of the printed cubic is drawn beside it."
    ),
    family="P2.join",
)
QUICKLY = 1.2  # times the growth of the workload


def rates(lab: Lab) -> list[float]:
    low, high = lab.number("lowest"), lab.number("highest") * lab.by_engine(0.8, 1.0)  # room for steps
    count = lab.choose(lab.by_engine(3, 6), 3)
    return [low + i / (count - 1) * (high - low) for i in range(count)]


def over_rates(lab: Lab) -> dict[float, JoinTimes]:
    """Run the join at all rates. The figures of the family share these runs."""
    tuples = round(lab.number("tuples") * lab.choose(lab.by_engine(0.05, 1.0), 0.25))
    return {x: joined(lab, x, lab.number("n"), lab.number("variation"), tuples) for x in rates(lab)}


def measure(lab: Lab) -> FigureData:
    seen = [(x, found.second_busy) for x, found in over_rates(lab).items()]
    points = [i / 100 for i in range(2, 50, 2)]
    curves = {
        "measured": seen,
        "as printed": [(x, broken_share(printed_cubic(x))) for x in points],
        "from equations 3 and 4": [(x, broken_share(derived_cubic(x))) for x in points],
        "load of the system": [(x, 2 * x) for x in points],
    }
    dashed = ("as printed", "from equations 3 and 4", "load of the system")
    return FigureData((Panel("lambda n", "probability", curves, dashed=dashed),))


def verdict(measured: FigureData) -> FigureVerdict:
    seen = measured.curve("measured")
    first, last = min(seen), max(seen)
    derived = {x: broken_share(derived_cubic(x)) for x in seen}
    printed = {x: broken_share(printed_cubic(x)) for x in seen}
    steps = [seen[x] for x in sorted(seen)]
    times = sum(seen[x] / derived[x] for x in seen) / len(seen)
    return FigureVerdict(
        (
            Check("P rises with the workload", steps == sorted(steps), f"from {steps[0]:.2f} to {steps[-1]:.2f}"),
            Check(
                "and quickly",
                steps[-1] / steps[0] > QUICKLY * last / first,
                f"{steps[-1] / steps[0]:.1f} times for {last / first:.1f} times the workload",
            ),
            Check(
                "equations 3 and 4 are nearer than the printed cubic",
                all(abs(derived[x] - seen[x]) < abs(printed[x] - seen[x]) for x in seen),
                f"at {last:.2g}: measured {seen[last]:.2f}, equations {derived[last]:.2f}, printed cubic "
                f"{printed[last]:.2f}",
            ),
        ),
        "broken_probability",
        seen[last],
        derived[last],
        {AGREES: times},
    )
