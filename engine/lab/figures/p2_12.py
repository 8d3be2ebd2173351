"""P2, figure 12: the share of tuples that meet a broken pipeline.

The runs are those of figure 11. P is the share of tuples of the first stream that are stopped before the join, because
a tuple waits in the second queue when their turn comes (the rule of figure 9). The figure also plots the cost model's
substitute for P, the share of time in which the second stream has a tuple in the system (that includes a tuple in
service, which stops none), and the model itself: the root of equations 3 and 4 (see figure 10 for the printed cubic).
"""

from __future__ import annotations

from engine.lab.figures.figure import Check, Figure, FigureData, FigureVerdict, Panel, PaperPoint
from engine.lab.figures.lab import Lab
from engine.lab.figures.p2_10 import SYSTEM, UNPRINTED, over_rates
from engine.lab.figures.p2_closed_forms import broken_share, derived_cubic

STOPPED, BUSY, MODEL = "tuples stopped", "second stream inside", "equations 3 and 4"
AGREES = "share of tuples stopped, over the model's P"
FIGURE = Figure(
    title="Probability of a broken pipeline, counted",
    claim="P rises sharply with the workload of the system, which exactly verifies the cost model.",
    printed=SYSTEM,
    unprinted=UNPRINTED,
    paper=(PaperPoint(AGREES, 1.0),),
    findings=dict.fromkeys(
        ("real", "simulated"),
        "P rises sharply, and the model does not give the share of tuples that are stopped: it gives the share of "
        "time in which the "
        "second stream has a tuple in the system. That includes a tuple in service, which stops nobody, since the "
        "server is not free "
        "then. So the model is above the count at every load.",
    ),
    family="P2.join",
)


def measure(lab: Lab) -> FigureData:
    curves: dict[str, list[tuple[float, float]]] = {STOPPED: [], BUSY: [], MODEL: []}
    for x, found in over_rates(lab).items():
        curves[STOPPED].append((x, found.broken))
        curves[BUSY].append((x, found.second_busy))
        curves[MODEL].append((x, broken_share(derived_cubic(x))))
    return FigureData((Panel("lambda n", "probability", curves, dashed=(MODEL,)),))


def verdict(measured: FigureData) -> FigureVerdict:
    stopped, model = measured.curve(STOPPED), measured.curve(MODEL)
    xs = sorted(stopped)
    values = [stopped[x] for x in xs]
    growth = values[-1] / max(values[0], 1e-9)
    times = sum(stopped[x] / model[x] for x in xs) / len(xs)
    return FigureVerdict(
        (
            Check("P rises with the workload", values == sorted(values), f"from {values[0]:.2f} to {values[-1]:.2f}"),
            Check(
                "and sharply",
                growth > 1.2 * xs[-1] / xs[0],
                f"{growth:.1f} times for {xs[-1] / xs[0]:.1f} times the workload",
            ),
        ),
        "broken_probability",
        values[-1],
        model[xs[-1]],
        {AGREES: times},
    )
