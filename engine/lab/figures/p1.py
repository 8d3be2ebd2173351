"""P1: each policy is best at what it is for, on queries that differ in cost and selectivity.

Our excerpt of the paper ends before its figures and prints no numbers, so the queries are of the kind that its text
describes: many queries on one stream, each with two filters and a last box of the same cost; tuples come in bursts. A
query runs for one tuple at a time, through all its boxes.

The figure plots four measures over load, for the four policies and for first come, first served: mean response time,
and mean, maximum and l2 norm of the slowdown (response time over the ideal time of the query that emits the tuple). BSD
is the clustered version that the engine runs; its priorities are wrong by at most a factor of two.

In the simulator nothing but the boxes takes time: policies differ only in the order. On the real engine a step costs
what it costs, so the loads are lower.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from catalog.network import Network
from catalog.stats import Statistics
from engine.lab.figures.figure import REAL, SIMULATED, Check, Curve, Figure, FigureData, FigureVerdict, Panel, Unprinted
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
    printed={"queries": "heterogeneous in cost and selectivity, on one stream", "train": "1 tuple, through the query"},
    unprinted={
        "queries": Unprinted(40, "on the stream"),
        "classes": Unprinted(5, "of cost: 1, 2, 4 ... units, of equal chance", (3, 7)),
        "selectivity": Unprinted(0.1, "the lowest of a filter; even from it to 1"),
        "work_ms": Unprinted(60.0, "of one tuple over all queries: a burst then has some twenty tuples"),
        "load": Unprinted(0.9, "of the boxes alone: queues are long, so that the order matters", (0.7, 0.95)),
        "arrivals": Unprinted("bursty", "0.2 s on at five times the rate, 0.8 s off", ("poisson", "zipf")),
    },
    findings={
        SIMULATED: "HNR, HR and BSD are optimal for expected values, one decision at a time. Where the order breaks, "
        "two policies are "
        "within a few per cent of each other: HNR and BSD in the l2 norm (with Poisson arrivals, too, where queues "
        "are short), "
        "LSF and BSD in the maximum, which is one tuple of the whole run.",
        REAL: "HR and HNR preempt between operators, as the paper asks; BSD and LSF go by the wait, which is 0 for a "
        "new tuple, and do not. On the engine a segment that is interrupted needs another plan, and with boxes of some "
        "hundred microseconds a plan costs more than the better order brings (in the simulator, where a plan is "
        "free, it does): compare the plans of each policy below. LSF and BSD are best at what they are for.",
    },
)

LOADS = (0.6, 0.8, 1.0, 1.05)  # of the setting
BEST = {"mean response, ms": "hr", "mean slowdown": "hnr", "maximum slowdown": "lsf", "l2 norm of slowdowns": "bsd"}
POLICIES = ("hr", "hnr", "lsf", "bsd", "fcfs")
FREE = Overheads(0.0, 0.0, 0.0, 0.0)
REAL_WORK = 0.25  # of the work of a tuple: a run then takes seconds
REAL_LOAD = 0.85  # of the load: the rest is left for the engine's steps


def queries(lab: Lab) -> Network:
    random, sketch = Random(lab.seed), NetworkSketch()
    stream, count, classes = sketch.stream(), lab.count("queries"), lab.count("classes")
    mean_units = 3 * (2**classes - 1) / classes * 0.65  # of a query, roughly: filters pass half
    unit_ns = lab.number("work_ms") * 1e6 * lab.by_engine(REAL_WORK, 1.0) / count / mean_units
    for _ in range(count):
        cost_ns = 2 ** random.randrange(classes) * unit_ns
        filtered = sketch.chain(stream, 2, cost_ns, random.uniform(lab.number("selectivity"), 1.0))
        sketch.output(sketch.box(filtered, cost_ns=cost_ns))
    return sketch.network()


def measure(lab: Lab) -> FigureData:
    network = queries(lab)
    shares = lab.choose(lab.by_engine((REAL_LOAD,), LOADS), (1.0,))
    statistics = Statistics(network)
    statistics.cost_per_call_ns[:] = 0.0
    at_capacity = float(capacity_rates(network, statistics, 1, FREE)[0])
    settings = SchedulerSettings(train=TrainRule("tuples", 1))
    curves: dict[str, dict[str, list[tuple[float, float]]]] = {y: {p: [] for p in POLICIES} for y in BEST}
    plans: dict[str, float] = {}  # at the last load
    for share in shares:
        load = lab.number("load") * share
        duration_ns = int(lab.choose(lab.by_engine(150, 600), 150) / at_capacity * 1e9)
        trains = {0: arrivals(lab.word("arrivals"), lab.seed, 0, at_capacity * load, duration_ns)}
        for policy in POLICIES:
            run = lab.run(network, trains, policy=policy, settings=settings, overheads=FREE, statistics=statistics)
            seen = (run.mean_ns / 1e6, run.slowdown_mean, run.slowdown_max, run.slowdown_l2)
            plans[f"plans of {policy}"] = run.plans
            for y, value in zip(BEST, seen, strict=True):
                curves[y][policy].append((load, value))
    panels = [Panel("load (share of capacity)", y, curves[y], log_y=True) for y in BEST]
    return FigureData(tuple(panels), plans)


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
    seen = f"{word} {second} by {abs(margin):.1%} (load {load:.2g}, the nearest)"
    return Check(f"{best} has the least {what}", margin >= 0, seen)
