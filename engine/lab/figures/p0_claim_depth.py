"""P0, section 5.3: MC saves box calls over ML, and the saving grows with the depth of the tree.

The paper does not show these results ("due to space limitations") and states them: the difference increases as
applications become deeper; the difference in overhead between the two traversals is proportional to the depth of the
traversed tree. Here one tuple waits on every leaf of a tree, and the calls of both traversals are counted for each
tuple. By counting: a tree of depth d and fan-out f has f^(d-1) leaves; ML makes d calls for each, MC one for each box,
so the difference for a tuple is d - f/(f-1) (1 - f^-d): a line with an offset.
"""

from __future__ import annotations

import numpy as np

from engine.lab.figures.figure import REAL, SIMULATED, Check, Figure, FigureData, FigureVerdict, Panel, Unprinted
from engine.lab.figures.fits import fit
from engine.lab.figures.lab import Lab
from engine.lab.figures.p0_testbed import costs_ns, trees
from scheduler.state import SchedulerSettings
from scheduler.trains import TrainRule

PERIOD_NS = 10_000_000_000
FIGURE = Figure(
    title="What MC saves over ML, by depth",
    claim=(
        "MC incurs less box overhead than ML; the difference increases as applications become deeper, in proportion "
        "to the "
        "depth of the traversed tree."
    ),
    printed={"network": "application trees, fan-out 3, selectivity 1", "policy": "round robin, superboxes"},
    unprinted={
        "tuples": Unprinted(1, "that wait on every leaf", (2, 4)),
        "speed": Unprinted(100.0, "the printed costs are divided by it; calls do not depend on it"),
        "apart": Unprinted(0.0, "s by which leaves get their tuples one after the other", (0.001, 0.01)),
        "runs": Unprinted(3, "times that the tuples come"),
        "deepest": Unprinted(
            5,
            "levels of the deepest tree: the paper's depth; ML of a deeper one has more steps than a plan may have",
            (3, 4),
        ),
    },
    findings=dict.fromkeys(
        (REAL, SIMULATED),
        "Where the tuples of the leaves wait together, the saving is the one that we count by hand, and a line in the "
        "depth. Where they "
        "come one after the other (apart), a plan holds one tuple, and both traversals make the same calls: the "
        "saving of MC is a saving "
        "on what meets in one plan.",
    ),
)


def measure(lab: Lab) -> FigureData:
    tuples, runs = lab.count("tuples"), lab.count("runs")
    saved: list[tuple[float, float]] = []
    counted: list[tuple[float, float]] = []
    for depth in range(2, lab.count("deepest") + 1):
        network = trees(1, depth=depth, cost_ns=costs_ns(lab.number("speed")), seed=lab.seed)
        shift_ns = lab.number("apart") * 1e9 / len(network.streams)
        times = np.arange(runs) * PERIOD_NS
        trains = {
            s.number: ((times + s.number * shift_ns).astype(np.int64), np.full(runs, tuples)) for s in network.streams
        }
        calls = {}
        for traversal in ("min_cost", "min_latency"):
            settings = SchedulerSettings(traversal=traversal, train=TrainRule("all"))
            calls[traversal] = lab.run(network, trains, settings=settings).calls
        leaves = len(network.streams) * runs
        saved.append((depth, (calls["min_latency"] - calls["min_cost"]) / leaves))
        counted.append((depth, depth - len(network.boxes) / len(network.streams)))
    curves = {"measured": saved, "counted by hand": counted}
    return FigureData((Panel("depth", "calls that MC saves, for a leaf", curves, dashed=("counted by hand",)),))


def verdict(measured: FigureData) -> FigureVerdict:
    saved = measured.curve("measured")
    steps = list(saved.values())
    line = fit({x: y for x, y in saved.items() if y > 0}) if sum(y > 0 for y in steps) > 1 else None
    return FigureVerdict(
        (
            Check("MC makes fewer calls", all(y > 0 for y in steps), f"{steps[0]:.2f} to {steps[-1]:.2f} for a leaf"),
            Check("the difference increases with depth", steps == sorted(steps), "at every level"),
            Check(
                "in proportion to the depth",
                line is not None and line.line_r2 > 0.95,
                "no difference" if line is None else f"a line explains {line.line_r2:.1%}",
            ),
        ),
        "calls_saved_at_the_deepest",
        steps[-1],
        steps[0],
    )
