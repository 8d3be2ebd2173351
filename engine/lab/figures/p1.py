"""P1: each policy is best at what it is for, on queries that differ in cost and selectivity.

Our excerpt of the paper ends before its figures, so the queries are of the kind that its text describes: many queries
on one stream, each with two filters and a last box of the same cost, costs of five classes (1, 2, 4, 8, 16),
selectivities uniform from 0.1 to 1; tuples come in bursts. A query runs for one tuple at a time, through all its boxes,
and nothing but the boxes takes time: policies differ only in the order.

The figure plots four measures over load, for the four policies and for first come, first served: mean response time,
and mean, maximum and l2 norm of the slowdown (response time over the ideal time of the query that emits the tuple). BSD
is the clustered version that the engine runs; its priorities are wrong by at most a factor of two.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from catalog.network import Network
from catalog.stats import Statistics
from engine.lab.figures.figure import Check, Curve, Figure, FigureData, FigureVerdict, Panel
from engine.lab.figures.lab import Lab
from engine.simulate.arrivals import arrivals
from engine.simulate.experiment import capacity_rates
from engine.simulate.overheads import Overheads
from engine.simulate.sketch import NetworkSketch
from scheduler.state import SchedulerSettings
from scheduler.trains import TrainRule

FIGURE = Figure(
    title="Response time and slowdown of heterogeneous queries",
    claim=(
        "HR has the least mean response time, HNR the least mean slowdown, LSF the least maximum slowdown, and BSD the "
        "least l2 norm of slowdowns."
    ),
    engines=("simulated",),
    parameters={
        "queries": "40 on one stream; two filters and a last box each",
        "cost of a box": "1, 2, 4, 8 or 16 units, of equal chance",
        "selectivity of a filter": "even in [0.1, 1]",
        "arrivals": "bursts: 0.2 s on at five times the rate, 0.8 s off",
        "train": "1 tuple, through the whole query",
        "overheads": "none",
    },
)

LOADS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.97)
BEST = {"mean response, ms": "hr", "mean slowdown": "hnr", "maximum slowdown": "lsf", "l2 norm of slowdowns": "bsd"}
POLICIES = ("hr", "hnr", "lsf", "bsd", "fcfs")
WORK_NS = 60_000_000.0  # of a tuple over all queries, about: a burst then has some twenty tuples
FREE = Overheads(0.0, 0.0, 0.0, 0.0)
SEED = 1


def queries(count: int) -> Network:
    random, sketch = Random(SEED), NetworkSketch()
    stream = sketch.stream()
    for _ in range(count):
        cost_ns = 2 ** random.randrange(5) * WORK_NS / count / 12
        filtered = sketch.chain(stream, 2, cost_ns, random.uniform(0.1, 1.0))
        sketch.output(sketch.box(filtered, cost_ns=cost_ns))
    return sketch.network()


def measure(lab: Lab) -> FigureData:
    network = queries(lab.choose(40, 24))
    loads = lab.choose(LOADS, (0.9,))
    statistics = Statistics(network)
    statistics.cost_per_call_ns[:] = 0.0
    at_capacity = float(capacity_rates(network, statistics, 1, FREE)[0])
    settings = SchedulerSettings(train=TrainRule("tuples", 1))
    curves: dict[str, dict[str, list[tuple[float, float]]]] = {y: {p: [] for p in POLICIES} for y in BEST}
    for number, load in enumerate(loads):
        trains = {0: arrivals("bursty", SEED, 0, at_capacity * load, lab.choose(60, 10) * 1_000_000_000)}
        for at, policy in enumerate(POLICIES):
            lab.progress((number + at / len(POLICIES)) / len(loads))
            run = lab.run(network, trains, policy=policy, settings=settings, overheads=FREE, statistics=statistics)
            seen = (run.mean_ns / 1e6, run.slowdown_mean, run.slowdown_max, run.slowdown_l2)
            for y, value in zip(BEST, seen, strict=True):
                curves[y][policy].append((load, value))
    panels = [Panel("load (share of capacity)", y, curves[y], log_y=True) for y in BEST]
    return FigureData(tuple(panels))


def verdict(measured: FigureData) -> FigureVerdict:
    checks = [least(panel.curves, BEST[panel.y], panel.y) for panel in measured.panels]
    hnr, hr = (measured.curve(p, 1) for p in ("hnr", "hr"))
    load = max(hnr)
    return FigureVerdict(tuple(checks), "slowdown_mean", hnr[load], hr[load])


def least(curves: Mapping[str, Curve], best: str, what: str) -> Check:
    """Check that one policy is below all others at every load; report its smallest margin."""
    margins = []
    for number, (load, value) in enumerate(curves[best]):
        others = {name: curve[number][1] for name, curve in curves.items() if name != best}
        second = min(others, key=lambda name: others[name])
        margins.append((others[second] / value - 1, load, second))
    margin, load, second = min(margins)
    word = "ahead of" if margin >= 0 else "behind"
    return Check(margin >= 0, f"{what}: {best} {word} {second} by {abs(margin):.1%} (load {load:g}, the nearest)")
