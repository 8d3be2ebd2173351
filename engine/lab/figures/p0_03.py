"""P0, figure 3: one scheduler for all boxes (state-based) against a thread for each box, as boxes grow in number.

Queries are chains of five boxes, each with a stream of its own at the same rate, so the work grows with the number of
operators, up to 500. State-based is the engine as it is: superboxes, round robin, one worker. Thread per box is
``thread_per_box.py``: the same boxes, a blocking queue and an OS thread for each, and the operating system decides
which one runs.

The simulator has no threads. There the baseline is their equivalent: one tuple a call, the longest wait first, and a
cost for handing a tuple to a sleeping thread.

Whether a curve is a line or an exponential is decided by a fit (``fits.py``).
"""

from __future__ import annotations

from random import Random

from catalog.network import Network
from engine.lab.figures.figure import REAL, SIMULATED, Check, Figure, FigureData, FigureVerdict, Panel, Unprinted
from engine.lab.figures.fits import fit
from engine.lab.figures.lab import Deliveries, Lab
from engine.lab.figures.p0_testbed import SPEED, TESTBED, costs_ns, evenly
from engine.run.declared_costs import declared_costs
from engine.simulate.arrivals import Trains
from engine.simulate.overheads import Overheads
from engine.simulate.sketch import NetworkSketch
from scheduler.state import SchedulerSettings
from scheduler.trains import TrainRule

CHAIN, MOST = 5, 500
STATE, THREADS = "state-based (aurorad)", "thread per box"
FIGURE = Figure(
    title="State-based execution against a thread per box",
    claim=(
        "As the number of operators grows, latency degrades almost linearly with one scheduler and exponentially with "
        "a thread per box."
    ),
    printed={**TESTBED, "network": "chains of five filters", "policy": "round robin, one worker"},
    unprinted={
        "speed": SPEED,
        "load": Unprinted(
            0.7, "of the boxes at 500 operators: where the paper's systems become overloaded", (0.35, 0.9)
        ),
        "hand_over_us": Unprinted(30.0, "to hand a tuple to a sleeping thread, as measured here; for the simulator"),
        "train": Unprinted("all", "tuples of a call of the state-based engine", ("1",)),
    },
    findings=dict.fromkeys(
        (REAL, SIMULATED),
        "Threads blow up as the paper says, because they saturate within the range; one scheduler does not. Whether "
        "its own "
        "curve is a line depends on where the range ends. Tuples that queue for one worker wait for rho / (2 (1 - "
        "rho)) "
        "services, which is nearly a line up to a load of about 0.7 and bends away from it beyond. So almost linear "
        "says "
        "that the paper's largest network was well below the capacity of its scheduler. Where the load is low, or "
        "boxes are "
        "dear beside a hand-over, threads do not saturate either, and the two curves grow alike.",
    ),
)
STRAIGHT = 0.1  # as the mean relative error of a line
OPERATORS = (5, 50, 100, 200, 300, 400, 500)


def chains(count: int, speed: float, seed: int) -> Network:
    sketch, random = NetworkSketch(), Random(seed)
    for _ in range(count):
        tap = sketch.stream()
        for _ in range(CHAIN):
            tap = sketch.box(tap, cost_ns=random.uniform(*costs_ns(speed)))
        sketch.output(tap)
    return sketch.network()


def measure(lab: Lab) -> FigureData:
    speed = lab.number("speed")
    work_ns = CHAIN * sum(costs_ns(speed)) / 2
    rate_per_s = lab.number("load") * 1e9 / (work_ns * MOST / CHAIN)
    duration_ns = int(lab.choose(lab.by_engine(10, 40), 6) * 1e9 / rate_per_s)
    curves: dict[str, list[tuple[float, float]]] = {STATE: [], THREADS: []}
    for operators in OPERATORS:
        network = chains(operators // CHAIN, speed, lab.seed)
        trains = evenly(network, rate_per_s, duration_ns, seed=lab.seed)
        curves[STATE].append((operators, state_based_ms(lab, network, trains)))
        curves[THREADS].append((operators, thread_per_box_ms(lab, network, trains)))
    return FigureData((Panel("operators", "mean latency, ms", curves, log_y=True),))


def state_based_ms(lab: Lab, network: Network, trains: dict[int, Trains]) -> float:
    rule = TrainRule("all") if lab.word("train") == "all" else TrainRule("tuples", 1)
    return lab.run(network, trains, settings=SchedulerSettings(train=rule)).mean_ns / 1e6


def thread_per_box_ms(lab: Lab, network: Network, trains: dict[int, Trains]) -> float:
    if lab.is_real:
        from engine.lab.figures.real_engine import ProcessorClock, drive, outcome
        from engine.lab.figures.thread_per_box import ThreadPerBox

        clock = ProcessorClock()
        deliveries = Deliveries(network, declared_costs(network), clock)
        engine = ThreadPerBox(network, deliveries.outlets, now_ns=clock)
        return outcome(engine, deliveries, drive(engine, trains, clock)).mean_ns / 1e6
    settings = SchedulerSettings(unit="tuple", train=TrainRule("tuples", 1))
    overheads = Overheads(step_ns=lab.number("hand_over_us") * 1e3)
    return lab.run(network, trains, policy="fcfs", settings=settings, overheads=overheads).mean_ns / 1e6


def verdict(measured: FigureData) -> FigureVerdict:
    state, threads = measured.curve(STATE), measured.curve(THREADS)
    ours, theirs = fit(state), fit(threads)
    few, most = min(state), max(state)
    state_growth, thread_growth = state[most] / state[few], threads[most] / threads[few]
    return FigureVerdict(
        (
            Check(
                "one scheduler degrades almost linearly",
                ours.line_off <= STRAIGHT,
                f"a line misses it by {ours.line_off:.1%} and explains {ours.line_r2:.1%}",
            ),
            Check(
                "threads degrade exponentially, or faster",
                theirs.bend >= 1,
                f"their logarithm rises {theirs.bend:.1f} times as fast in the second half; a line misses them by "
                f"{theirs.line_off:.0%}",
            ),
            Check(
                "threads degrade much more",
                thread_growth > 2 * state_growth,
                f"from {few:g} to {most:g} operators {thread_growth:.1f} times, one scheduler {state_growth:.1f} times",
            ),
        ),
        f"latency_at_{most:g}_operators_ms",
        state[most],
        threads[most],
    )
