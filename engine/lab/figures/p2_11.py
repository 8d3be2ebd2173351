"""P2, figure 11: response time of Chain and VPipe at a join that takes tuples in the order of time.

The system is that of figure 7: two streams of the same rate, segments O1 and O2 of one unit, a join with its
successors of n units, all service times exponential. Chain runs the first segment first and follows the rule of figure
9 at the join. VPipe is the engine's own policy: one line, so that the oldest tuple goes first and none is ever stopped.

The two queues of Chain are drawn as in the paper's analysis, E(W) + E(B): until the segment is done with a tuple, which
for a stopped tuple is before the join. The curve of all tuples counts until they leave the join. Under the paper's rule
a stopped tuple waits for the next arrival on the other stream; *released at once* is Chain without that wait: better
for Chain, and still above VPipe.
"""

from __future__ import annotations

from engine.lab.figures.figure import Check, Figure, FigureData, FigureVerdict, Panel
from engine.lab.figures.lab import Lab
from engine.lab.figures.p2_10 import FEW, JOIN_UNITS, QUICK, RATES, TUPLES
from engine.lab.figures.p2_systems import joined

FIGURE = Figure(
    title="Response time of Chain and VPipe at a join",
    claim=(
        "VPipe's response time lies between those of Chain's queues of high and low priority; over all tuples it is "
        "below Chain's at every arrival rate."
    ),
    engines=("simulated",),
    parameters={
        "network": "two segments of 1 unit, a join of n = 20 units",
        "service times": "exponential",
        "arrivals": "Poisson, both streams at lambda",
        "policies": "vpipe; chain with the rule of figure 9; one tuple at a time",
        "overheads": "none",
    },
)

CURVES = {
    "Chain, high priority": "chain_high",
    "Chain, low priority": "chain_low",
    "Chain": "chain",
    "Chain, released at once": "chain_at_once",
    "VPipe": "vpipe",
}


def measure(lab: Lab) -> FigureData:
    rates = lab.choose(RATES, QUICK)
    curves: dict[str, list[tuple[float, float]]] = {name: [] for name in CURVES}
    for number, x in enumerate(rates):
        lab.progress(number / len(rates))
        found = joined(x, JOIN_UNITS, lab.choose(TUPLES, FEW))
        for name, field in CURVES.items():
            curves[name].append((x, getattr(found, field)))
    return FigureData((Panel("lambda n", "mean response, units of service", curves, log_y=True),))


def verdict(measured: FigureData) -> FigureVerdict:
    high, low, chain, kind, vpipe = (measured.curve(name) for name in CURVES)
    gains = [chain[x] / vpipe[x] - 1 for x in vpipe]
    kind_gains = [kind[x] / vpipe[x] - 1 for x in vpipe]
    last = max(vpipe)
    return FigureVerdict(
        (
            Check(min(gains) > 0, f"Chain is {min(gains):.1%} to {max(gains):.1%} above VPipe over all tuples"),
            Check(min(kind_gains) > 0, f"released at once {min(kind_gains):.2%} to {max(kind_gains):.1%}"),
            Check(
                all(high[x] < vpipe[x] < low[x] for x in vpipe),
                f"VPipe between the queues: {high[last]:.0f} < {vpipe[last]:.0f} < {low[last]:.0f} at {last:g}",
            ),
        ),
        "mean_response_units",
        vpipe[last],
        chain[last],
    )
