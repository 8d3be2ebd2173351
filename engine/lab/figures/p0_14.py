"""P0, figure 14: the cost of a scheduling step, over the number of partitions.

The network is that of figure 13: 200 applications of five boxes. The daemon's scheduler runs by itself, without workers
and tuples: a train arrives, the policy decides, the train is claimed, the plan ends. The figure plots the time of such
a step in processor time, and that of slope-slack: computed and sorted for every box at every step, and from the heap of
the policy ``qos``. What runs is the real scheduler, so there is nothing to simulate.
"""

from __future__ import annotations

from engine.lab.figures import p0_13
from engine.lab.figures.figure import REAL, Check, Figure, FigureData, FigureVerdict, Panel, PaperPoint, Unprinted
from engine.lab.figures.lab import Lab
from engine.lab.figures.p0_13 import HEAP, SlopeSlack
from engine.simulate.steps import Stepper, step_ns

PARTITIONS = (1, 2, 5, 10, 20, 30, 50, 75, 100, 150, 200, 300)
RISES = "partitions from which a step costs more"
SORTED = "slope-slack, sorted at every step"
MORE = 1.25  # times the cheapest step
FIGURE = Figure(
    title="Bucketing overheads",
    claim="The overhead of the scheduler begins to increase past some moderate number of partitions, about 30.",
    engines=(REAL,),
    printed={"network": "200 chains of 5 boxes", "policy": "buckets on a calendar queue"},
    unprinted={**p0_13.FIGURE.unprinted, "busy": Unprinted(1_000, "boxes with tuples: all of them")},
    paper=(PaperPoint(RISES, 30, panel=0, is_x=True, within=0.5),),
    findings={
        REAL: "A step of ours finds the best bucket as the lowest bit of one number with a bit for each bucket. That "
        "costs about "
        "1.5 ns a bucket, so it is lost in the other 15 us of a step up to some 50 partitions (2,500 buckets), and "
        "then rises with "
        "the square of the partitions. The paper's buckets are lists that are walked, so its curve rises earlier. The "
        "shape is the "
        "same: flat, then bookkeeping takes over."
    },
)


def measure(lab: Lab) -> FigureData:
    network, busy = p0_13.network(lab), lab.count("busy")
    partitions = lab.choose(PARTITIONS, (1, 10, 20, 30, 100, 300))
    steppers = {str(n): Stepper(network, "qos_buckets", busy, n) for n in partitions}
    steppers["heap"] = Stepper(network, "qos", busy)
    found = step_ns(steppers, rounds=lab.choose(25, 10))
    slow = Stepper(network, "round_robin", busy)
    slow.loop.follow(SlopeSlack(placed=1))
    exact_us = min(slow.run(10) for _ in range(lab.choose(6, 2))) / 1e3
    curves = {
        "buckets": [(float(n), found[str(n)] / 1e3) for n in partitions],
        SORTED: [(float(n), exact_us) for n in partitions],
        HEAP: [(float(n), found["heap"] / 1e3) for n in partitions],
    }
    panel = Panel("partitions of each range", "a scheduling step, us", curves, log_y=True, dashed=(SORTED, HEAP))
    return FigureData((panel,))


def verdict(measured: FigureData) -> FigureVerdict:
    step_us = measured.curve("buckets")
    exact_us = next(iter(measured.curve(SORTED).values()))
    least = min(step_us.values())
    few = [us for n, us in step_us.items() if 1 < n <= 30]
    rising = [n for n in sorted(step_us) if all(step_us[m] > MORE * least for m in step_us if m >= n)]
    last = max(step_us)
    return FigureVerdict(
        (
            Check(
                "a step costs about the same up to 30 partitions",
                max(few) / min(few) < 1.5,
                f"{min(few):.0f} to {max(few):.0f} us",
            ),
            Check("and clearly more with many", step_us[last] > 2 * max(few), f"{step_us[last]:.0f} us at {last:g}"),
            Check("buckets cost less than sorting all boxes", min(few) < exact_us, f"which takes {exact_us:.0f} us"),
        ),
        f"step_at_{last:g}_partitions_us",
        step_us[last],
        min(few),
        {RISES: rising[0] if rising else last},
    )
