"""P0, figure 6: min-cost against min-latency traversal, as the cost of a tuple rises over that of a box call.

There are two experiments. The first uses the tree of the paper's figure 4 (b1 the root; b2 and b6 feed b1, b3 and b4
feed b2, b5 feeds b3; selectivity 1), for which the paper calculates by hand: one tuple on each queue, run as a superbox
again and again. The second is that of the figure: one application tree (depth five, fan-out three) at a capacity of
0.5, with whole queues as trains.

A box call costs o: a declared cost, large beside what the engine adds. In the paper's calculation each tuple of a call
leaves as soon as it is done (MC 12.5p + 6o, ML 7.17p + 7.17o: they cross at p/o = 0.22). Here a train leaves when its
call ends, because it is columnar; so MC has 15p + 6o and they cross at 0.15.
"""

from __future__ import annotations

from itertools import pairwise
from math import exp, log

import numpy as np

from catalog.network import Network
from engine.lab.figures.figure import (
    REAL,
    SIMULATED,
    Check,
    Figure,
    FigureData,
    FigureVerdict,
    Panel,
    PaperPoint,
    Unprinted,
)
from engine.lab.figures.lab import Lab
from engine.lab.figures.p0_testbed import TESTBED, even, trees
from engine.simulate.arrivals import Trains
from engine.simulate.sketch import NetworkSketch
from scheduler.state import SchedulerSettings
from scheduler.trains import TrainRule

CROSSING = "p/o at which they cross on figure 4's tree"
FIGURE = Figure(
    title="Min-cost against min-latency traversals",
    claim=(
        "MC performs better than ML at small processing costs, where box calls dominate; ML is better over most of the "
        "range, as it is made for latency. For the tree of figure 4 the two cross at p/o = 0.22."
    ),
    printed={
        **TESTBED,
        "network": "figure 4's tree of six boxes; and one tree, depth 5, fan-out 3",
        "capacity": "0.5 (the large tree)",
        "policy": "round robin, superboxes",
    },
    unprinted={
        "call_us": Unprinted(300.0, "o, the cost of a box call: large beside the engine's own"),
        "low": Unprinted(0.5, "the smallest p/o that is shown: a call costs more than a tuple"),
        "high": Unprinted(8.0, "the largest p/o that is shown; costs are evenly spaced, as on the axis of the paper"),
    },
    paper=(PaperPoint(CROSSING, 0.22, panel=0, is_x=True),),
    findings=dict.fromkeys(
        (REAL, SIMULATED),
        "On figure 4's tree both sides are as calculated, and they cross near 0.15 instead of 0.22: a train of ours "
        "leaves a "
        "box as a whole, so MC's mean latency is 15p + 6o where the paper, whose tuples leave one by one, has 12.5p + "
        "6o. On "
        "the large tree at a capacity of 0.5 the two traversals differ only where two tuples meet in a plan, so ML's "
        "gain is "
        "small: some per cent.",
    ),
)
TRAVERSALS = {"MC": "min_cost", "ML": "min_latency"}
RATIOS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0)  # p/o on figure 4's tree
STREAMS = 6


def figure_4(cost_ns: float, call_ns: float) -> Network:
    """Make the tree; every box has a stream of its own beside its feeders."""
    sketch = NetworkSketch()
    own = [sketch.stream() for _ in range(STREAMS)]
    b5 = sketch.box(own[4], cost_ns=cost_ns, call_ns=call_ns, name="b5")
    b3 = sketch.box(own[2], b5, cost_ns=cost_ns, call_ns=call_ns, name="b3")
    b4 = sketch.box(own[3], cost_ns=cost_ns, call_ns=call_ns, name="b4")
    b2 = sketch.box(own[1], b3, b4, cost_ns=cost_ns, call_ns=call_ns, name="b2")
    b6 = sketch.box(own[5], cost_ns=cost_ns, call_ns=call_ns, name="b6")
    sketch.output(sketch.box(own[0], b2, b6, cost_ns=cost_ns, call_ns=call_ns, name="b1"))
    return sketch.network()


def measure(lab: Lab) -> FigureData:
    return FigureData((hand_calculated(lab), one_application(lab)))


def hand_calculated(lab: Lab) -> Panel:
    call_ns = lab.number("call_us") * 1e3
    runs = lab.choose(lab.by_engine(10, 20), 5)
    curves: dict[str, list[tuple[float, float]]] = {name: [] for name in TRAVERSALS}
    for ratio in RATIOS:
        network = figure_4(ratio * call_ns, call_ns)
        gap_ns = 2.5 * 15 * (1 + ratio) * call_ns
        times = (np.arange(runs) * gap_ns).astype(np.int64)
        trains = {stream: (times, np.ones(runs, np.int64)) for stream in range(STREAMS)}
        for name, traversal in TRAVERSALS.items():
            curves[name].append((ratio, latency_ns(lab, network, trains, traversal) / call_ns))
    return Panel(
        "p/o, cost of a tuple over cost of a box call",
        "mean latency, in o",
        curves,
        title="the tree of figure 4, one tuple on each queue",
        log_x=True,
        log_y=True,
    )


def one_application(lab: Lab) -> Panel:
    call_ns = lab.number("call_us") * 1e3
    ratios = np.linspace(lab.number("low"), lab.number("high"), lab.choose(lab.by_engine(5, 7), 5)).tolist()
    curves: dict[str, list[tuple[float, float]]] = {name: [] for name in TRAVERSALS}
    for ratio in ratios:
        network = trees(1, cost_ns=(ratio * call_ns, ratio * call_ns), call_ns=call_ns)
        duration_ns = lab.choose(lab.by_engine(1_000, 4_000), 1_000) * 1_000_000
        trains = even(network, 0.5, duration_ns, seed=lab.seed)  # of the tuples' work alone, as the paper counts
        for name, traversal in TRAVERSALS.items():
            curves[name].append((ratio, latency_ns(lab, network, trains, traversal) / call_ns))
    return Panel(
        "p/o, cost of a tuple over cost of a box call",
        "mean latency, in o",
        curves,
        title="one application tree at a capacity of 0.5",
        log_x=True,
        log_y=True,
    )


def latency_ns(lab: Lab, network: Network, trains: dict[int, Trains], traversal: str) -> float:
    settings = SchedulerSettings(traversal=traversal, train=TrainRule("all"))
    return lab.run(network, trains, settings=settings).mean_ns


def crossing(measured: FigureData) -> float:
    """Find where the ratio of ML to MC passes 1, interpolated on a log scale; 0 if it does not."""
    cheap, quick = measured.curve("MC"), measured.curve("ML")
    gain = {x: log(quick[x] / cheap[x]) for x in sorted(cheap)}
    for a, b in pairwise(gain):
        if gain[a] > 0 >= gain[b]:
            return exp(log(a) + (log(b) - log(a)) * gain[a] / (gain[a] - gain[b]))
    return 0.0


def verdict(measured: FigureData) -> FigureVerdict:
    at = crossing(measured)
    cheap, quick = measured.curve("MC", 1), measured.curve("ML", 1)
    low = min(cheap)
    ahead = [x for x in cheap if quick[x] < cheap[x]]
    best = min(quick[x] / cheap[x] for x in cheap)
    return FigureVerdict(
        (
            Check("on figure 4's tree MC wins below a ratio and ML above it", at > 0, f"they cross at p/o = {at:.2g}"),
            Check(
                "on the application MC wins at the smallest cost",
                cheap[low] < quick[low],
                f"at p/o = {low:.2g} MC takes {cheap[low] / quick[low]:.3f} of ML's latency",
            ),
            Check(
                "and ML over most of the range",
                2 * len(ahead) > len(cheap),
                f"at {len(ahead)} of {len(cheap)} costs, with {best:.3f} of MC's latency at best",
            ),
        ),
        "crossing_p_over_o",
        at,
        0.22,
        {CROSSING: at},
    )
