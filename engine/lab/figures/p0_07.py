"""P0, figure 7: memory over the time of one superbox run, for the three traversals.

An application tree (depth five, fan-out three) has boxes of different cost and selectivity and some tuples on the queue
of every box; no more arrive. Each traversal moves the same tuples through the same boxes in its own order. After every
box call the experiment counts the waiting tuples (all are of one size). The figure is the sum over six trees with costs
and selectivities of their own, each run alone: the order of the traversals depends on the tree, and the paper does not
print its own.

Real: the engine runs the plans, and its boxes record when they took and emitted how many tuples. Simulated: the same
plans, made by the same scheduler, with the same costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from statistics import mean
from time import process_time_ns
from typing import Any

import numpy as np

from catalog.network import Network
from engine.lab.figures.figure import REAL, SIMULATED, Check, Figure, FigureData, FigureVerdict, Panel, Unprinted
from engine.lab.figures.lab import Lab
from engine.operators.boxes.base import Emit, Tally
from engine.operators.boxes.universal import Universal
from engine.run.declared_costs import declared_costs
from engine.simulate.sketch import NetworkSketch, SketchInput
from scheduler.events import Enqueued
from scheduler.state import SchedulerSettings, SchedulerState
from scheduler.trains import TrainRule
from scheduler.traversal import expand
from storage.train import Train

DEPTH, FAN_OUT = 5, 3
TREES = 6
POINTS = 60
ALMOST_DONE = 0.02  # of the tuples at the start: too few to divide by
TRAVERSALS = {"MM": "min_memory", "MC": "min_cost", "ML": "min_latency"}
FIGURE = Figure(
    title="Memory requirements of the traversals",
    claim=(
        "ML uses most memory, then MC, and MM least; MM loses its advantage towards the end, where MC, whose run is "
        "the shortest, catches up with it."
    ),
    printed={"network": f"trees of depth {DEPTH} and fan-out {FAN_OUT}: 121 boxes"},
    unprinted={
        "cost_us": Unprinted(60.0, "mean cost of a tuple; costs are even from a third of it to five thirds"),
        "call_us": Unprinted(50.0, "cost of a box call: about that of a tuple, so that more calls take longer"),
        "selectivity": Unprinted(0.2, "the lowest; selectivities are even from it to 1", (0.1, 0.4)),
        "tuples": Unprinted(2, "on the queue of each box at the start"),
    },
    findings=dict.fromkeys(
        (REAL, SIMULATED),
        "MC always has the shortest run, as the paper says. The order of memory depends on what a box call costs. MM "
        "runs boxes "
        "again and again for few tuples; where a call costs more than a tuple (cost at half, calls at double, one "
        "tuple on each "
        "queue), that time outweighs its better order, and MC needs less memory on average. Where calls are cheap "
        "beside tuples "
        "(cost at double, calls at half), MC does not catch up before MM is done, and with high selectivities it "
        "needs even more "
        "memory than ML, because it empties the root last.",
    ),
)

Steps = list[tuple[float, float]]
"""Times in ns, and the tuples that wait from then on."""


def tree(lab: Lab, seed: int) -> Network:
    """Make a tree; every box has a stream of its own beside its feeders."""
    random, sketch = Random(seed), NetworkSketch()
    mean_ns, call_ns, least = lab.number("cost_us") * 1e3, lab.number("call_us") * 1e3, lab.number("selectivity")

    def grow(level: int) -> SketchInput:
        inputs = [grow(level - 1) for _ in range(FAN_OUT)] if level > 1 else []
        cost_ns, selectivity = random.uniform(mean_ns / 3, mean_ns * 5 / 3), random.uniform(least, 1.0)
        return sketch.box(sketch.stream(), *inputs, cost_ns=cost_ns, selectivity=selectivity, call_ns=call_ns)

    sketch.output(grow(DEPTH))
    return sketch.network()


def measure(lab: Lab) -> FigureData:
    found: dict[str, list[Steps]] = {name: [] for name in TRAVERSALS}
    for number in range(TREES):
        network = tree(lab, lab.seed * TREES + number)
        for name, steps in runs(lab, network).items():
            found[name].append(steps)
    times = np.linspace(0, max(s[-1][0] for of in found.values() for s in of), POINTS)
    waiting = {name: np.sum([at(s, times) for s in of], axis=0) for name, of in found.items()}
    ms, base = (times / 1e6).tolist(), waiting["MM"]
    curves = {name: list(zip(ms, values.tolist(), strict=True)) for name, values in waiting.items()}
    relative = {
        name: [(t, float(v / b)) for t, v, b in zip(ms, values, base, strict=True) if b >= ALMOST_DONE * base[0]]
        for name, values in waiting.items()
    }
    return FigureData(
        (
            Panel("time, ms", "memory, over that of MM", relative, title="as the paper plots it"),
            Panel("time, ms", "tuples that wait", curves, title="in tuples"),
        ),
        {f"mean run of {name}, ms": mean(s[-1][0] for s in of) / 1e6 for name, of in found.items()}
        | {f"mean memory of {name}, tuples": float(np.mean(v)) for name, v in waiting.items()},
    )


def runs(lab: Lab, network: Network) -> dict[str, Steps]:
    """Run the traversals in turn."""
    found, tuples = {}, lab.count("tuples")
    for name, traversal in TRAVERSALS.items():
        settings = SchedulerSettings(traversal=traversal, train=TrainRule("all"))
        run = run_engine if lab.is_real else reckon
        found[name] = run(network, settings, tuples)
    return found


def at(steps: Steps, times: Any) -> list[float]:
    places = np.searchsorted([t for t, _ in steps], times, side="right") - 1
    return [steps[i][1] for i in places]


# -- simulated --------------------------------------------------------------------------------------------------------


def plan_of(network: Network, settings: SchedulerSettings, tuples: int) -> tuple[int, ...]:
    state = SchedulerState(network, settings, declared_costs(network))
    for stream in network.streams:
        state.apply(Enqueued(stream.arcs, tuples, 0, 0, 8 * tuples))
    return expand(state, 0).boxes


def reckon(network: Network, settings: SchedulerSettings, at_start: int) -> Steps:
    statistics = declared_costs(network)
    queue = dict.fromkeys(range(len(network.boxes)), float(at_start))
    now_ns = 0.0
    steps = [(0.0, sum(queue.values()))]
    for box in plan_of(network, settings, at_start):
        tuples = queue[box]
        if not tuples:
            continue
        queue[box] = 0.0
        for consumer in network.fed[box]:
            queue[consumer] += tuples * float(statistics.selectivity[box])
        now_ns += float(statistics.cost_per_call_ns[box] + statistics.cost_per_tuple_ns[box] * tuples)
        steps.append((now_ns, sum(queue.values())))
    return steps


# -- on the engine ----------------------------------------------------------------------------------------------------


class RecordedBox(Universal):
    """A universal box that records when it took and emitted how many tuples."""

    log: list[tuple[int, int, int]]

    def run(self, state: list[int], port: int, train: Train, emit: Emit, tally: Tally) -> None:
        out = 0

        def count(out_port: int, emitted: Train) -> None:
            nonlocal out
            out += emitted.count
            emit(out_port, emitted)

        super().run(state, port, train, count, tally)
        self.log.append((process_time_ns(), train.count, out))


def recorded(network: Network) -> tuple[Network, list[tuple[int, int, int]], list[tuple[int, int, int]]]:
    """Replace the boxes by recording ones. The root has a log of its own, because its results do not wait."""
    inner: list[tuple[int, int, int]] = []
    root: list[tuple[int, int, int]] = []
    nodes = []
    for node in network.boxes:
        box = RecordedBox(node.box.parameters)
        box.log = inner if network.fed[node.number] else root
        nodes.append(replace(node, box=box))
    return replace(network, boxes=tuple(nodes)), inner, root


def run_engine(network: Network, settings: SchedulerSettings, tuples: int) -> Steps:
    from engine.lab.figures.real_engine import ProcessorClock, drive
    from engine.run.core import Engine

    network, inner, root = recorded(network)
    engine = Engine(network, [lambda train: None], workers=1, settings=settings, statistics=declared_costs(network))
    trains = {s.number: (np.zeros(1, np.int64), np.array([tuples])) for s in network.streams}
    drive(engine, trains, ProcessorClock())
    return from_log(
        sorted([(t, i, o) for t, i, o in inner] + [(t, i, 0) for t, i, _ in root]), tuples * len(network.boxes)
    )


def from_log(log: Sequence[tuple[int, int, int]], at_start: int) -> Steps:
    """Compute the waiting tuples over time. The first call began before its entry, by about the gap to the second."""
    waiting = float(at_start)
    begun_ns = log[0][0] - (log[1][0] - log[0][0])
    steps: Steps = [(0.0, waiting)]
    for when_ns, taken, given in log:
        waiting += given - taken
        steps.append((float(when_ns - begun_ns), waiting))
    return steps


def verdict(measured: FigureData) -> FigureVerdict:
    mm, mc, ml = (measured.numbers[f"mean memory of {name}, tuples"] for name in TRAVERSALS)
    length = {name: measured.numbers[f"mean run of {name}, ms"] for name in TRAVERSALS}
    relative = measured.curve("MC")
    left, left_mm = measured.curve("MC", 1), measured.curve("MM", 1)
    end = min(left, key=lambda t: abs(t - length["MM"]))
    return FigureVerdict(
        (
            Check(
                "MM needs least memory, ML most", mm < mc < ml, f"mean tuples: MM {mm:.0f}, MC {mc:.0f}, ML {ml:.0f}"
            ),
            Check(
                "MM's advantage shows",
                max(relative.values()) > 1.05,
                f"MC's memory is up to {max(relative.values()):.2f} times MM's",
            ),
            Check(
                "MC has the shortest run",
                min(length, key=length.__getitem__) == "MC",
                ", ".join(f"{name} {ms:.1f} ms" for name, ms in length.items()),
            ),
            Check(
                "MC catches up with MM at the end",
                left[end] <= left_mm[end] + ALMOST_DONE * left[0.0],
                f"when MM is done on average, MC has {left[end]:.0f} tuples left and MM {left_mm[end]:.0f}",
            ),
        ),
        "mean_memory_of_mc_tuples",
        mc,
        mm,
    )
