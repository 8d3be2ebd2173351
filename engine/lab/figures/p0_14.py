"""P0, figure 14: the cost of a scheduling step, over the number of partitions.

The network is that of figure 13: 200 applications of five boxes, all of which have tuples. The daemon's scheduler runs
by itself, without workers and tuples: a train arrives, the policy decides, the train is claimed, the plan ends. The
figure plots the time of such a step, and that of slope-slack: over all boxes, and from the heap of the policy ``qos``.
"""

from __future__ import annotations

from engine.lab.figures import p0_13
from engine.lab.figures.figure import REAL, Check, Figure, FigureData, FigureVerdict, Panel
from engine.lab.figures.lab import Lab
from engine.lab.figures.p0_13 import straightforward
from engine.simulate.steps import Stepper, step_ns

BOXES = 1_000
PARTITIONS = (1, 2, 5, 10, 20, 30, 50, 75, 100, 150, 200, 300)
RISING = 30.0  # the paper: approximately
FIGURE = Figure(
    title="Bucketing overheads",
    claim="The overhead of the scheduler begins to increase past some moderate number of partitions, about 30.",
    engines=(REAL,),
    parameters={
        "network": "200 chains of 5 boxes, all with tuples",
        "what runs": "the scheduler alone: state, policy qos_buckets, claims",
        "taken": "the best of many rounds, all numbers of partitions taking turns",
    },
)


def measure(lab: Lab) -> FigureData:
    network = p0_13.network()
    partitions = lab.choose(PARTITIONS, (1, 10, 20, 100, 300))
    steppers = {str(n): Stepper(network, "qos_buckets", BOXES, n) for n in partitions}
    steppers["heap"] = Stepper(network, "qos", BOXES)
    found = step_ns(steppers, rounds=lab.choose(60, 10))
    lab.progress(0.9)
    slow = Stepper(network, "round_robin", BOXES)
    slow.loop.follow(straightforward)
    exact_us = min(slow.run(10) for _ in range(lab.choose(10, 2))) / 1e3
    curves = {
        "buckets": [(float(n), found[str(n)] / 1e3) for n in partitions],
        "slope-slack (all boxes, every step)": [(float(n), exact_us) for n in partitions],
        "slope-slack (our heap)": [(float(n), found["heap"] / 1e3) for n in partitions],
    }
    panel = Panel(
        "partitions of each range", "a scheduling step, us", curves, log_y=True, dashed=tuple(curves)[1:],
        marks_x={"the paper: about 30": RISING},
    )  # fmt: skip
    return FigureData((panel,))


def verdict(measured: FigureData) -> FigureVerdict:
    step_us = measured.curve("buckets")
    exact_us = next(iter(measured.curve("slope-slack (all boxes, every step)").values()))
    few = [us for n, us in step_us.items() if 1 < n <= RISING]
    many = {n: us for n, us in sorted(step_us.items()) if n > RISING}
    flat = max(few) / min(few)
    first, last = next(iter(many)), max(many)
    return FigureVerdict(
        (
            Check(flat < 1.5, f"up to {RISING:g} partitions a step costs {min(few):.0f} to {max(few):.0f} us"),
            Check(list(many.values()) == sorted(many.values()), f"it rises from {first:g} partitions on"),
            Check(many[last] > 2 * max(few), f"to {many[last]:.0f} us at {last:g}"),
            Check(min(few) < exact_us, f"slope-slack over all boxes costs {exact_us:.0f} us"),
        ),
        f"step_at_{last:g}_partitions_us",
        many[last],
        min(few),
    )
