"""P0, figure 5: box at a time against application at a time, as load rises.

Five application trees of depth five and fan-out three (121 boxes, 81 streams each), selectivity 1, round robin. Box at
a time (RR-BAAT) schedules every box by itself; MC-AAAT schedules a whole tree as a superbox, each box once, leaves
first. Tuples arrive evenly spaced at the same rate on all streams. Load is the share of a worker that the boxes need;
the rest is left for overhead.

Both take at most one tuple of each queue at a time, so that only the batching of operators differs. (With trains of the
whole queue even box at a time does not saturate below 1, because its trains grow with its queues.)
"""

from __future__ import annotations

from functools import partial

from catalog.network import Network
from engine.lab.figures.figure import Check, Figure, FigureData, FigureVerdict, Panel
from engine.lab.figures.lab import Lab
from engine.lab.figures.p0_testbed import SCALE, even, trees
from engine.simulate.arrivals import Trains
from scheduler.state import SchedulerSettings
from scheduler.trains import TrainRule

FIGURE = Figure(
    title="Box against application scheduling",
    claim=(
        "Box at a time saturates early, because its scheduling steals capacity; superboxes (MC) hold on at input "
        "rates of over 90 % of the theoretical capacity."
    ),
    parameters={
        "network": "5 trees, depth 5, fan-out 3: 605 boxes, 405 streams",
        "cost of a box": f"even in [0.1, 1] ms / {SCALE}",
        "selectivity": "1",
        "policy": "round_robin",
        "train": "1 tuple of each queue",
        "arrivals": "evenly spaced",
    },
)

LOADS = (0.1, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
UNITS = {"RR-BAAT": "box", "MC-AAAT": "superbox"}
SATURATED = 1 / 40  # of the run's length, as mean latency: then queues grow during the whole run


def measure(lab: Lab) -> FigureData:
    network = trees(lab.choose(5, 1))
    loads = lab.choose(LOADS, (0.2, 0.6, 0.9))
    duration_ns = lab.choose(lab.by_engine(1_500_000_000, 4_000_000_000), 1_000_000_000)
    curves: dict[str, list[tuple[float, float]]] = {name: [] for name in UNITS}
    for number, load in enumerate(loads):
        lab.progress(number / len(loads))
        trains = even(network, load, duration_ns)
        found = lab.repeat({name: partial(latency_ms, lab, network, trains, unit) for name, unit in UNITS.items()})
        for name in UNITS:
            curves[name].append((load, found[name]))
    panel = Panel("load (share of capacity)", "mean latency, ms", curves, log_y=True)
    return FigureData((panel,), {"length of a run, s": duration_ns / 1e9})


def latency_ms(lab: Lab, network: Network, trains: dict[int, Trains], unit: str) -> float:
    settings = SchedulerSettings(unit=unit, train=TrainRule("tuples", 1))
    return lab.run(network, trains, settings=settings).mean_ns / 1e6


def held_load(curve: dict[float, float], saturated_ms: float) -> float:
    """Return the highest load before saturation."""
    lost = [load for load in curve if curve[load] >= saturated_ms]
    return max([load for load in curve if not lost or load < min(lost)], default=0.0)


def verdict(measured: FigureData) -> FigureVerdict:
    saturated_ms = measured.numbers["length of a run, s"] * 1e3 * SATURATED
    boxes, superboxes = (held_load(measured.curve(name), saturated_ms) for name in UNITS)
    return FigureVerdict(
        (
            Check(boxes <= 0.8, f"box at a time holds up to a load of {boxes:g}"),
            Check(superboxes >= 0.9, f"superboxes hold up to {superboxes:g}"),
        ),
        "held_load",
        superboxes,
        boxes,
    )
