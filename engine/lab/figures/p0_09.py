"""P0, figure 9: the parts of the overhead for a tuple at a time, a train for a box, and a superbox.

Four application trees have depth five and fan-out three. TAAT runs a box on one tuple, BAAT on a train of its whole
queue, MC a whole application, each box once. The load is a closed backlog: some tuples on every stream, all at once;
when they are done, the next ones. So the time counts in which there is work, and nothing depends on a rate.

The figure compares the time for the same tuples, and the shares of scheduler, storage manager and workers in the time
outside boxes. The division is P0's: putting a train on a queue and taking it off is the storage manager's work on any
thread, a scheduling step is the scheduler's. On the real engine all parts are read from the same clock, the processor
time of a thread, and the workers have what is left of the processor time of the engine. The simulator counts steps,
claims, plans and calls; a step, a claim, a plan and a call cost the same under all three methods.
"""

from __future__ import annotations

import numpy as np

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
from engine.lab.figures.lab import Lab, LabRun
from engine.lab.figures.p0_testbed import costs_ns, trees
from engine.simulate.overheads import Overheads
from scheduler.state import SchedulerSettings
from scheduler.trains import TrainRule

METHODS = {
    "TAAT": SchedulerSettings(unit="tuple", train=TrainRule("tuples", 1)),
    "BAAT": SchedulerSettings(unit="box", train=TrainRule("all")),
    "MC": SchedulerSettings(unit="superbox", traversal="min_cost", train=TrainRule("all")),
}
PARTS = ("worker", "storage", "scheduler")
HALF = "time of MC over that of BAAT"
PERIOD_NS = 100_000_000_000  # from backlog to backlog: longer than any takes
FIGURE = Figure(
    title="Distribution of execution overheads",
    claim=(
        "TAAT is significantly worse than the other two; superboxes decrease the time of trains almost by half; from "
        "TAAT to BAAT to MC the shares of worker and storage decrease and that of the scheduler increases."
    ),
    printed={
        "network": "4 trees, depth 5, fan-out 3: 484 boxes, 324 streams",
        "policy": "round robin",
        "selectivity": "1",
    },
    unprinted={
        "speed": Unprinted(
            100.0, "the printed costs are divided by it: superboxes halve the time only if overhead is most of it"
        ),
        "backlog": Unprinted(4, "tuples that wait on each stream at once"),
        "step_us": Unprinted(12.0, "a scheduling step in the simulator, as measured on the engine"),
        "claim_us": Unprinted(8.0, "to take from a queue or to put on one, as measured; for the simulator"),
        "plan_us": Unprinted(7.0, "for a worker to take a plan and to report its end, as measured; for the simulator"),
        "call_us": Unprinted(1.5, "a box call, as measured; for the simulator"),
    },
    paper=(PaperPoint(HALF, 0.5),),
    findings={
        REAL: "Total times go as in the paper: superboxes halve the time of trains, and storage's share falls. The "
        "share of the scheduler falls, where the paper's rises, and the workers' rises. The paper explains a rising "
        "share by box executions that fall faster than scheduling steps. On a closed backlog BAAT and MC make the same "
        "number of box calls (below), while MC takes one step for a whole application and BAAT one for each box: steps "
        "fall fastest, and what is left is the calls. The simulator says the same.",
        SIMULATED: "Total times go as in the paper. The shares do not: the paper explains a rising share of the "
        "scheduler by box executions that fall faster than scheduling steps. On a closed backlog BAAT and MC make the "
        "same number of box calls (below), while MC needs one step for a whole application. With a step that costs the "
        "same for one box and for a hundred, the scheduler's share falls. So it does on the real engine.",
    },
)


def measure(lab: Lab) -> FigureData:
    network = trees(lab.choose(4, 2), cost_ns=costs_ns(lab.number("speed")), seed=lab.seed)
    backlog, rounds = lab.count("backlog"), lab.choose(lab.by_engine(2, 3), 1)
    times = np.arange(rounds) * PERIOD_NS
    trains = {s.number: (times, np.full(rounds, backlog, np.int64)) for s in network.streams}
    step_ns, claim_ns, plan_ns, call_ns = (lab.number(n) * 1e3 for n in ("step_us", "claim_us", "plan_us", "call_us"))
    overheads = Overheads(step_ns, claim_ns, plan_ns, call_ns)
    runs = {
        name: lab.run(network, trains, settings=settings, overheads=overheads, apart=True)
        for name, settings in METHODS.items()
    }
    shares = {
        part: [(float(i), 100 * getattr(r, f"{part}_ns") / r.overhead_ns) for i, r in enumerate(runs.values())]
        for part in PARTS
    }
    total = [(float(i), busy_ns(r) / 1e9) for i, r in enumerate(runs.values())]
    ticks = tuple(METHODS)
    return FigureData(
        (
            Panel("", "share of the overhead, %", shares, kind="stacked", title="where it goes", ticks=ticks),
            Panel("", "time for the same tuples, s", {"total": total}, kind="bars", title="in all", ticks=ticks),
        ),
        {"tuples": runs["MC"].tuples}
        | {f"box calls of {name}": run.calls for name, run in runs.items()}
        | {f"plans of {name}": run.plans for name, run in runs.items()},
    )


def busy_ns(run: LabRun) -> float:
    return run.box_ns + run.overhead_ns


def verdict(measured: FigureData) -> FigureVerdict:
    taat, baat, mc = (measured.curve("total", 1)[place] for place in range(3))
    scheduler, storage, worker = (list(measured.curve(p).values()) for p in ("scheduler", "storage", "worker"))
    return FigureVerdict(
        (
            Check("TAAT is significantly worse", taat > 1.3 * baat, f"{taat / baat:.1f} times BAAT's time"),
            Check("superboxes decrease the time", mc < baat, f"to {mc / baat:.2f} of BAAT's"),
            Check("the scheduler's share increases", scheduler[0] < scheduler[1] < scheduler[2], _row(scheduler)),
            Check("storage's share decreases", storage[0] > storage[1] > storage[2], _row(storage)),
            Check("the workers' share decreases", worker[0] > worker[1] > worker[2], _row(worker)),
        ),
        "mc_s",
        mc,
        baat,
        {HALF: mc / baat},
    )


def _row(values: list[float]) -> str:
    return ", ".join(f"{v:.0f} %" for v in values)
