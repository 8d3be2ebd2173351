"""P0, figure 8: what trains save, for tuples that come in bursts.

One application tree of fan-out two and depth five runs box at a time, round robin. Instead of n tuples evenly spaced in
T, n tuples arrive at once and then none for T: the same rate, in bursts of 1, 2 and 4. A train takes a share of the
queue, from 0.2 to all of it.

The figure plots a tuple's total time less its own processing time, that is wait and overhead, as the mean over all
tuples. As in the paper (where the overhead of a burst of 4 is four times that of 1), a box call costs much more than a
tuple: 50 us plus the engine's own cost, against 10 us.
"""

from __future__ import annotations

from functools import partial

from catalog.network import Network
from engine.lab.figures.figure import Check, Figure, FigureData, FigureVerdict, Panel
from engine.lab.figures.lab import Lab
from engine.lab.figures.p0_testbed import evenly, trees
from engine.simulate.arrivals import Trains
from scheduler.state import SchedulerSettings
from scheduler.trains import TrainRule

COST_NS, CALL_NS, DEPTH = 10_000, 50_000, 5
RATE_PER_S = 25.0  # on each of 16 streams; the worker is then busy a fifth of the time
BURSTS = (1, 2, 4)
SHARES = (0.2, 0.4, 0.6, 0.8, 1.0)
FIGURE = Figure(
    title="Train scheduling effects",
    claim=(
        "Without bursts train size has no effect. With bursts of 4 and trains of a fifth of the queue the average "
        "overhead is four times as high; it falls as trains take more of the queue, and comes near that of no bursts "
        "without reaching it."
    ),
    parameters={
        "network": "1 tree, depth 5, fan-out 2: 31 boxes, 16 streams",
        "cost": "10 us a tuple, 50 us a box call",
        "arrivals": "25 tuples a second on each stream, in bursts of 1, 2, 4",
        "policy": "round_robin, unit box",
    },
)


def measure(lab: Lab) -> FigureData:
    network = trees(1, fan_out=2, depth=DEPTH, cost_ns=(COST_NS, COST_NS), call_ns=CALL_NS)
    duration_ns = lab.choose(lab.by_engine(1_500_000_000, 20_000_000_000), lab.by_engine(300_000_000, 1_000_000_000))
    curves: dict[str, list[tuple[float, float]]] = {f"burst {n}": [] for n in BURSTS}
    for number, share in enumerate(SHARES):
        lab.progress(number / len(SHARES))
        contenders = {
            f"burst {n}": partial(overhead_us, lab, network, evenly(network, RATE_PER_S, duration_ns, burst=n), share)
            for n in BURSTS
        }
        for name, value in lab.repeat(contenders).items():
            curves[name].append((share, value))
    return FigureData((Panel("train size, share of the queue", "average overhead, us", curves),))


def overhead_us(lab: Lab, network: Network, trains: dict[int, Trains], share: float) -> float:
    settings = SchedulerSettings(unit="box", train=TrainRule("fraction", share))
    return lab.run(network, trains, settings=settings).mean_ns / 1e3 - DEPTH * COST_NS / 1e3


def verdict(measured: FigureData) -> FigureVerdict:
    one, two, four = (measured.curve(f"burst {n}") for n in BURSTS)
    small, whole = min(one), max(one)
    flat = max(one.values()) / min(one.values())
    times, at_end = four[small] / one[small], four[whole] / one[whole]
    return FigureVerdict(
        (
            Check(flat <= 1.25, f"burst 1 is flat: its highest point is {flat:.2f} times its lowest"),
            Check(
                times >= 3, f"with trains of {small:g} of the queue, bursts of 4 have {times:.1f} times the overhead"
            ),
            Check(one[small] < two[small] < four[small], "and the longer the burst the higher"),
            Check(
                1 < at_end < times / 1.5,
                f"with the whole queue {at_end:.1f} times: nearer to no bursts, and still above it",
            ),
        ),
        "overhead_of_burst_4_us",
        four[small],
        one[small],
    )
