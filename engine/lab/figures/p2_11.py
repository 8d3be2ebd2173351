"""P2, figure 11: response time of Chain and VPipe at a join that takes tuples in the order of time.

The system is that of figure 7: two streams of the same rate, segments O1 and O2 of one unit, a join with its
successors of n units. Chain runs the first segment first and follows the rule of figure 9 at the join. VPipe is the
engine's own: ``unit: vpipe`` with ``policy: vpipe``, that is Chain on the line of the three boxes.

The two queues of Chain are drawn as in the paper's analysis, E(W) + E(B): until the segment is done with a tuple, which
for a stopped tuple is before the join (on the real engine until the tuple leaves the join). The curve of all tuples
counts until they leave the join. Under the paper's rule a stopped tuple waits for the next arrival on the other stream;
*released at once* is Chain without that wait: better for Chain, and the baseline that VPipe must beat.
"""

from __future__ import annotations

from engine.lab.figures.figure import REAL, SIMULATED, Check, Figure, FigureData, FigureVerdict, Panel
from engine.lab.figures.lab import Lab
from engine.lab.figures.p2_10 import SYSTEM, UNPRINTED, over_rates

FIGURE = Figure(
    title="Response time of Chain and VPipe at a join",
    claim=(
        "VPipe's response time lies between those of Chain's queues of high and low priority; over all tuples it is "
        "below Chain's at every arrival rate."
    ),
    printed={**SYSTEM, "policies": "chain with the rule of figure 9; vpipe on its line; one tuple at a time"},
    unprinted=UNPRINTED,
    findings={
        SIMULATED: "VPipe beats Chain under the rule that the paper prints at every rate. Part of that gain is the "
        "rule, which lets a "
        "stopped tuple wait for the next arrival on the other stream. Against Chain that releases a stopped tuple as "
        "soon as "
        "nothing older waits, the difference is small; both do the same work in another order.",
        REAL: "VPipe beats Chain under the printed rule. Against Chain that releases at once it is some per cent "
        "behind: in the "
        "simulator it is a per cent ahead, and on the engine a plan of the line, with its bitmaps, takes longer than "
        "a plan of "
        "two boxes. Chain's queues are counted here until a tuple leaves the join, so the high priority is the slower "
        "one: "
        "its tuples are those that are stopped.",
    },
    family="P2.join",
)

CURVES = {
    "Chain, high priority": "chain_high",
    "Chain, low priority": "chain_low",
    "Chain": "chain",
    "Chain, released at once": "chain_at_once",
    "VPipe": "vpipe",
}


def measure(lab: Lab) -> FigureData:
    curves: dict[str, list[tuple[float, float]]] = {name: [] for name in CURVES}
    for x, found in over_rates(lab).items():
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
            Check(
                "VPipe is below Chain over all tuples",
                min(gains) > 0,
                f"Chain {min(gains):.1%} to {max(gains):.1%} above",
            ),
            Check(
                "also below Chain that releases at once",
                min(kind_gains) > 0,
                f"{min(kind_gains):.2%} to {max(kind_gains):.2%} above",
            ),
            Check(
                "VPipe lies between Chain's queues",
                all(high[x] < vpipe[x] < low[x] for x in vpipe),
                f"{high[last]:.0f} < {vpipe[last]:.0f} < {low[last]:.0f} at {last:.2g}",
            ),
        ),
        "mean_response_units",
        vpipe[last],
        chain[last],
    )
