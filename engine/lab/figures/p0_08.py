"""P0, figure 8: what trains save, for tuples that come in bursts.

One application tree of fan-out two and depth five runs box at a time, round robin. Instead of n tuples evenly spaced in
T, n tuples arrive at once and then none for T: the same rate, in bursts of 1, 2 and 4. A train takes a share of the
queue, from 0.2 to all of it.

The figure plots a tuple's total time less its own processing time, that is wait and overhead, as the mean over all
tuples. A box call costs much more than a tuple.
"""

from __future__ import annotations

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
from engine.lab.figures.p0_testbed import evenly, trees
from engine.simulate.arrivals import Trains
from scheduler.state import SchedulerSettings
from scheduler.trains import TrainRule

DEPTH = 5
BURSTS = (1, 2, 4)
SHARES = (0.2, 0.4, 0.6, 0.8, 1.0)
TIMES = "overhead of bursts of 4 over none, trains of 0.2"
FIGURE = Figure(
    title="Train scheduling effects",
    claim=(
        "Without bursts train size has no effect. With bursts of 4 and trains of a fifth of the queue the average "
        "overhead is four times as high; it falls as trains take more of the queue, and comes near that of no bursts "
        "without reaching it."
    ),
    printed={
        "network": "1 tree, depth 5, fan-out 2: 31 boxes, 16 streams",
        "arrivals": "even, in bursts of 1, 2 and 4 at the same rate",
        "train": "0.2 to 1 of the queue",
        "policy": "round robin, box at a time",
    },
    unprinted={
        "cost_us": Unprinted(10.0, "cost of a tuple: small beside a call, as the factor of four asks for"),
        "call_us": Unprinted(50.0, "cost of a box call: about what a step costs on our engine"),
        "rate": Unprinted(25.0, "tuples a second on each of 16 streams: the worker is busy for a fifth of the time"),
    },
    paper=(PaperPoint(TIMES, 4.0),),
    findings=dict.fromkeys(
        (REAL, SIMULATED),
        "The factor is that of the paper, and so is the way back as trains grow. One detail turns where calls are "
        "most of the "
        "load (100 us beside 5 to 10 us for a tuple, or at double the rate): there bursts in trains of the whole "
        "queue end up "
        "below the case without bursts, because four tuples share one call that single tuples each pay for.",
    ),
)


def measure(lab: Lab) -> FigureData:
    cost_ns, call_ns, rate = lab.number("cost_us") * 1e3, lab.number("call_us") * 1e3, lab.number("rate")
    network = trees(1, fan_out=2, depth=DEPTH, cost_ns=(cost_ns, cost_ns), call_ns=call_ns)
    duration_ns = int(lab.choose(lab.by_engine(40, 400), 25) / rate * 1e9)
    curves: dict[str, list[tuple[float, float]]] = {f"burst {n}": [] for n in BURSTS}
    for share in SHARES:
        for n in BURSTS:
            trains = evenly(network, rate, duration_ns, burst=n, seed=lab.seed)
            curves[f"burst {n}"].append((share, overhead_us(lab, network, trains, share, cost_ns)))
    return FigureData((Panel("train size, share of the queue", "average overhead, us", curves),))


def overhead_us(lab: Lab, network: Network, trains: dict[int, Trains], share: float, cost_ns: float) -> float:
    settings = SchedulerSettings(unit="box", train=TrainRule("fraction", share))
    return lab.run(network, trains, settings=settings).mean_ns / 1e3 - DEPTH * cost_ns / 1e3


def verdict(measured: FigureData) -> FigureVerdict:
    one, two, four = (measured.curve(f"burst {n}") for n in BURSTS)
    small, whole = min(one), max(one)
    flat = max(one.values()) / min(one.values())
    times, at_end = four[small] / one[small], four[whole] / one[whole]
    return FigureVerdict(
        (
            Check(
                "without bursts the curve is flat", flat <= 1.25, f"its highest point is {flat:.2f} times its lowest"
            ),
            Check(
                "the longer the burst the higher the overhead of small trains",
                one[small] < two[small] < four[small],
                f"{one[small]:.0f}, {two[small]:.0f}, {four[small]:.0f} us for bursts of 1, 2, 4",
            ),
            Check("a burst of 4 multiplies it", times >= 2, f"{times:.1f} times"),
            Check(
                "longer trains bring it near that of no bursts, and not below",
                1 < at_end < times,
                f"with the whole queue {at_end:.1f} times",
            ),
        ),
        "overhead_of_burst_4_us",
        four[small],
        one[small],
        {TIMES: times},
    )
