"""P0, figure 6: min-cost against min-latency traversal, as the cost of a tuple rises over that of a box call.

There are two experiments. The first uses the tree of the paper's figure 4 (b1 the root; b2 and b6 feed b1, b3 and b4
feed b2, b5 feeds b3; selectivity 1), for which the paper calculates by hand: one tuple on each queue, run as a superbox
again and again. The second is that of the figure: one application tree (depth five, fan-out three) at a capacity of
0.5, with whole queues as trains.

A box call costs 500 us in the first and 200 us in the second, plus the engine's own cost; the cost p of a tuple ranges
from a small part of that to several times it. In the paper's calculation each tuple of a call leaves as soon as it is
done (MC 12.5p + 6o, ML 7.17p + 7.17o: they cross at p/o = 0.22). Here a train leaves when its call ends, because it is
columnar; so MC has 15p + 6o and they cross at 0.15.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from math import exp, log
from statistics import mean

import numpy as np

from catalog.network import Network
from engine.lab.figures.figure import Check, Figure, FigureData, FigureVerdict, Panel
from engine.lab.figures.lab import Lab
from engine.lab.figures.p0_testbed import even, trees
from engine.simulate.arrivals import Trains
from engine.simulate.sketch import NetworkSketch
from scheduler.state import SchedulerSettings
from scheduler.trains import TrainRule

CALL_NS = 200_000  # of the large tree
DEAR_CALL_NS = 500_000  # of figure 4's tree: large beside what the engine adds to a call
PAPER_CROSSING = 0.22
FIGURE = Figure(
    title="Min-cost against min-latency traversals",
    claim=(
        "MC performs better than ML at small processing costs, where box calls dominate; ML is better over most of the "
        "range, as it is made for latency. For the tree of figure 4 the two cross at p/o = 0.22."
    ),
    parameters={
        "network": "figure 4's tree of six boxes; and one tree, depth 5, fan-out 3",
        "cost of a box call, o": "500 us (figure 4's tree) and 200 us, and the engine's own",
        "cost of a tuple, p": "25 us to 1.2 ms",
        "capacity": "0.5 (the large tree)",
        "policy": "round_robin, unit superbox",
    },
)
TRAVERSALS = {"MC": "min_cost", "ML": "min_latency"}
RATIOS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0)  # p/o on figure 4's tree
COSTS_US = (50, 100, 200, 400, 600, 800, 1_200)  # p on the large tree
STREAMS = 6


def figure_4(cost_ns: float) -> Network:
    """Make the tree; every box has a stream of its own beside its feeders."""
    sketch = NetworkSketch()
    own = [sketch.stream() for _ in range(STREAMS)]
    b5 = sketch.box(own[4], cost_ns=cost_ns, call_ns=DEAR_CALL_NS, name="b5")
    b3 = sketch.box(own[2], b5, cost_ns=cost_ns, call_ns=DEAR_CALL_NS, name="b3")
    b4 = sketch.box(own[3], cost_ns=cost_ns, call_ns=DEAR_CALL_NS, name="b4")
    b2 = sketch.box(own[1], b3, b4, cost_ns=cost_ns, call_ns=DEAR_CALL_NS, name="b2")
    b6 = sketch.box(own[5], cost_ns=cost_ns, call_ns=DEAR_CALL_NS, name="b6")
    sketch.output(sketch.box(own[0], b2, b6, cost_ns=cost_ns, call_ns=DEAR_CALL_NS, name="b1"))
    return sketch.network()


def measure(lab: Lab) -> FigureData:
    small = hand_calculated(lab)
    large = one_application(lab)
    return FigureData((small, large))


def hand_calculated(lab: Lab) -> Panel:
    runs = lab.choose(lab.by_engine(40, 20), 5)
    curves: dict[str, list[tuple[float, float]]] = {name: [] for name in TRAVERSALS}
    for number, ratio in enumerate(RATIOS):
        lab.progress(0.4 * number / len(RATIOS))
        network = figure_4(ratio * DEAR_CALL_NS)
        gap_ns = 2.5 * 15 * (1 + ratio) * DEAR_CALL_NS
        times = (np.arange(runs) * gap_ns).astype(np.int64)
        trains = {stream: (times, np.ones(runs, np.int64)) for stream in range(STREAMS)}
        found = compare(lab, network, trains)
        for name in TRAVERSALS:
            curves[name].append((ratio, found[name] / DEAR_CALL_NS))
    return Panel(
        "p/o, cost of a tuple over cost of a box call",
        "mean latency, in o",
        curves,
        title="the tree of figure 4, one tuple on each queue",
        log_x=True,
        log_y=True,
        marks_x={"the paper: 0.22": PAPER_CROSSING},
    )


def one_application(lab: Lab) -> Panel:
    costs_us = lab.choose(COSTS_US, (50, 400))
    curves: dict[str, list[tuple[float, float]]] = {name: [] for name in TRAVERSALS}
    for number, cost_us in enumerate(costs_us):
        lab.progress(0.4 + 0.6 * number / len(costs_us))
        network = trees(1, cost_ns=(cost_us * 1e3, cost_us * 1e3), call_ns=CALL_NS)
        trains = even(network, 0.5, lab.choose(lab.by_engine(1_200_000_000, 4_000_000_000), 500_000_000))
        found = compare(lab, network, trains)
        for name in TRAVERSALS:
            curves[name].append((cost_us / 1e3, found[name] / 1e6))
    return Panel(
        "cost of a tuple, ms",
        "mean latency, ms",
        curves,
        title="one application tree at a capacity of 0.5",
        log_x=True,
        log_y=True,
    )


def compare(lab: Lab, network: Network, trains: dict[int, Trains]) -> dict[str, float]:
    """Return the mean latency in ns by traversal."""
    return lab.repeat({name: partial(latency_ns, lab, network, trains, t) for name, t in TRAVERSALS.items()})


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
    dear = [x for x in cheap if x * 1e6 >= 2 * CALL_NS]
    gain = exp(mean([log(quick[x] / cheap[x]) for x in dear]))
    return FigureVerdict(
        (
            Check(PAPER_CROSSING / 2 <= at <= PAPER_CROSSING * 2, f"on figure 4's tree they cross at p/o = {at:.2g}"),
            Check(cheap[low] < quick[low], f"at {low:g} ms MC takes {cheap[low] / quick[low]:.2f} of ML's latency"),
            Check(gain < 1, f"from {min(dear):g} ms on ML takes {gain:.3f} of MC's, mean of {len(dear)}"),
        ),
        "crossing_p_over_o",
        at,
        PAPER_CROSSING,
    )
