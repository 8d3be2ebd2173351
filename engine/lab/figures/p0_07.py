"""P0, figure 7: memory over the time of one superbox run, for the three traversals.

An application tree (depth five, fan-out three) has boxes of different cost and selectivity and two tuples on the queue
of every box; no more arrive. Each traversal moves the same tuples through the same boxes in its own order. After every
box call the experiment counts the waiting tuples (all are of one size). A box call costs about as much as a tuple, so a
traversal with more calls takes longer. The figure is the sum over six trees with costs and selectivities of their own,
each run alone: the order of the traversals depends on the tree, and the paper does not print its own.

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
from engine.lab.figures.figure import Check, Figure, FigureData, FigureVerdict, Panel
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
TUPLES = 2  # on the queue of each box
COST_NS, CALL_NS = (20_000.0, 100_000.0), 50_000.0
SELECTIVITY = (0.2, 1.0)
POINTS = 60
ALMOST_DONE = 0.02  # of the tuples at the start: too few to divide by
TRAVERSALS = {"MM": "min_memory", "MC": "min_cost", "ML": "min_latency"}
FIGURE = Figure(
    title="Memory requirements of the traversals",
    claim=(
        "ML uses most memory, then MC, and MM least; MM loses its advantage towards the end, where MC, whose run is "
        "the shortest, catches up with it."
    ),
    parameters={
        "network": f"{TREES} trees, each run alone: depth {DEPTH}, fan-out {FAN_OUT}, 121 boxes",
        "cost of a box": "even in [20, 100] us a tuple, 50 us a call",
        "selectivity": "even in [0.2, 1]",
        "at the start": f"{TUPLES} tuples on the queue of each box",
    },
)

Steps = list[tuple[float, float]]
"""Times in ns, and the tuples that wait from then on."""


def tree(seed: int) -> Network:
    """Make a tree; every box has a stream of its own beside its feeders."""
    random, sketch = Random(seed), NetworkSketch()

    def grow(level: int) -> SketchInput:
        inputs = [grow(level - 1) for _ in range(FAN_OUT)] if level > 1 else []
        cost_ns, selectivity = random.uniform(*COST_NS), random.uniform(*SELECTIVITY)
        return sketch.box(sketch.stream(), *inputs, cost_ns=cost_ns, selectivity=selectivity, call_ns=CALL_NS)

    sketch.output(grow(DEPTH))
    return sketch.network()


def measure(lab: Lab) -> FigureData:
    found: dict[str, list[Steps]] = {name: [] for name in TRAVERSALS}
    for seed in range(TREES):
        lab.progress(seed / TREES)
        network = tree(seed)
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
    """Run the traversals in turn; return the shortest run of each, because other processes only make a run longer."""
    found: dict[str, list[Steps]] = {name: [] for name in TRAVERSALS}
    for _ in range(lab.choose(lab.by_engine(5, 1), 1)):
        for name, traversal in TRAVERSALS.items():
            settings = SchedulerSettings(traversal=traversal, train=TrainRule("all"))
            found[name].append(run_engine(network, settings) if lab.is_real else reckon(network, settings))
    return {name: min(of, key=lambda s: s[-1][0]) for name, of in found.items()}


def at(steps: Steps, times: Any) -> list[float]:
    places = np.searchsorted([t for t, _ in steps], times, side="right") - 1
    return [steps[i][1] for i in places]


# -- simulated --------------------------------------------------------------------------------------------------------


def plan_of(network: Network, settings: SchedulerSettings) -> tuple[int, ...]:
    state = SchedulerState(network, settings, declared_costs(network))
    for stream in network.streams:
        state.apply(Enqueued(stream.arcs, TUPLES, 0, 0, 8 * TUPLES))
    return expand(state, 0).boxes


def reckon(network: Network, settings: SchedulerSettings) -> Steps:
    statistics = declared_costs(network)
    queue = dict.fromkeys(range(len(network.boxes)), float(TUPLES))
    now_ns = 0.0
    steps = [(0.0, sum(queue.values()))]
    for box in plan_of(network, settings):
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


def run_engine(network: Network, settings: SchedulerSettings) -> Steps:
    from engine.lab.figures.real_engine import ProcessorClock, drive
    from engine.run.core import Engine

    network, inner, root = recorded(network)
    engine = Engine(network, [lambda train: None], workers=1, settings=settings, statistics=declared_costs(network))
    trains = {s.number: (np.zeros(1, np.int64), np.array([TUPLES])) for s in network.streams}
    drive(engine, trains, ProcessorClock())
    return from_log(sorted([(t, i, o) for t, i, o in inner] + [(t, i, 0) for t, i, _ in root]), len(network.boxes))


def from_log(log: Sequence[tuple[int, int, int]], boxes: int) -> Steps:
    """Compute the waiting tuples over time; the first call began CALL_NS before its entry."""
    waiting = float(TUPLES * boxes)
    begun_ns = log[0][0] - CALL_NS
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
            Check(mm < mc < ml, f"mean tuples that wait: MM {mm:.0f}, MC {mc:.0f}, ML {ml:.0f}"),
            Check(max(relative.values()) > 1.05, f"MC's memory is up to {max(relative.values()):.2f} times MM's"),
            Check(min(length, key=length.__getitem__) == "MC", f"MC is done first, in {length['MC']:.1f} ms"),
            Check(
                left[end] <= left_mm[end] + ALMOST_DONE * left[0.0],
                f"when MM is done on average, MC has {left[end]:.0f} tuples left and MM {left_mm[end]:.0f}",
            ),
        ),
        "mean_memory_of_mc_tuples",
        mc,
        mm,
    )
