"""P0, figure 3: one scheduler for all boxes (state-based) against a thread for each box, as boxes grow in number.

Queries are chains of five boxes, each with a stream of its own at the same rate, so the work grows with the number of
operators, up to 400. There threads are saturated, and one scheduler with one worker is not (it would be at about 500).
State-based is the engine as it is: superboxes, round robin, one worker.
Thread per box is ``thread_per_box.py``: the same boxes, a blocking queue and an OS thread for each, and the operating
system decides which one runs.

The simulator has no threads. There the baseline is their equivalent: one tuple a call, the longest wait first, and
30 us (measured on this engine) for handing a tuple to a sleeping thread.
"""

from __future__ import annotations

from functools import partial

from catalog.network import Network
from engine.lab.figures.figure import REAL, Check, Figure, FigureData, FigureVerdict, Panel
from engine.lab.figures.lab import Deliveries, Lab
from engine.lab.figures.p0_testbed import evenly
from engine.run.declared_costs import declared_costs
from engine.simulate.arrivals import Trains
from engine.simulate.overheads import Overheads
from engine.simulate.sketch import NetworkSketch
from scheduler.state import SchedulerSettings
from scheduler.trains import TrainRule

COST_NS = 20_000
RATE_PER_S = 40.0
CHAIN = 5
HAND_OVER = Overheads(step_ns=30_000.0)
STATE, THREADS = "state-based (aurorad)", "thread per box"
FIGURE = Figure(
    title="State-based execution against a thread per box",
    claim=(
        "As the number of operators grows, latency degrades almost linearly with one scheduler and exponentially with "
        "a thread per box."
    ),
    parameters={
        "network": "1 to 80 chains of five boxes, a stream each",
        "cost of a box": "20 us a tuple",
        "arrivals": "40 tuples a second on each stream",
        "policy": "round_robin, superboxes, one worker",
    },
)
CHAINS = (1, 10, 20, 40, 60, 80)


def chains(count: int) -> Network:
    sketch = NetworkSketch()
    for _ in range(count):
        sketch.output(sketch.chain(sketch.stream(), CHAIN, cost_ns=COST_NS))
    return sketch.network()


def measure(lab: Lab) -> FigureData:
    counts = lab.choose(CHAINS, (1, 20, 40, 80))
    duration_ns = lab.choose(lab.by_engine(1_500_000_000, 5_000_000_000), 500_000_000)
    curves: dict[str, list[tuple[float, float]]] = {STATE: [], THREADS: []}
    for number, count in enumerate(counts):
        lab.progress(number / len(counts))
        network = chains(count)
        trains = evenly(network, RATE_PER_S, duration_ns)
        found = lab.repeat({
            STATE: partial(state_based_ms, lab, network, trains),
            THREADS: partial(thread_per_box_ms, lab, network, trains),
        })  # fmt: skip
        for name in curves:
            curves[name].append((count * CHAIN, found[name]))
    return FigureData((Panel("operators", "mean latency, ms", curves, log_y=True),))


def state_based_ms(lab: Lab, network: Network, trains: dict[int, Trains]) -> float:
    return lab.run(network, trains).mean_ns / 1e6


def thread_per_box_ms(lab: Lab, network: Network, trains: dict[int, Trains]) -> float:
    if lab.engine == REAL:
        from engine.lab.figures.real_engine import ProcessorClock, drive, outcome
        from engine.lab.figures.thread_per_box import ThreadPerBox

        clock = ProcessorClock()
        deliveries = Deliveries(network, declared_costs(network), clock)
        engine = ThreadPerBox(network, deliveries.outlets, now_ns=clock)
        return outcome(engine, deliveries, drive(engine, trains, clock)).mean_ns / 1e6
    settings = SchedulerSettings(unit="tuple", train=TrainRule("tuples", 1))
    return lab.run(network, trains, policy="fcfs", settings=settings, overheads=HAND_OVER).mean_ns / 1e6


def verdict(measured: FigureData) -> FigureVerdict:
    state, threads = measured.curve(STATE), measured.curve(THREADS)
    few, most = min(state), max(state)
    half = min(state, key=lambda n: abs(n - most / 2))
    doubled, linear = state[most] / state[half], most / half
    state_growth, thread_growth = state[most] / state[few], threads[most] / threads[few]
    span, slower = f"from {few:g} to {most:g} operators", threads[most] / state[most]
    return FigureVerdict(
        (
            Check(
                doubled <= 1.5 * linear,  # the factor is for noise
                f"from {half:g} to {most:g} operators one scheduler's latency grows {doubled:.1f} times",
            ),
            Check(
                thread_growth > 10 * state_growth,
                f"{span} that of threads grows {thread_growth:.0f} times, one scheduler's {state_growth:.1f} times",
            ),
            Check(slower > 5, f"at {most:g} operators threads take {slower:.0f} times as long"),
        ),
        f"latency_at_{most:g}_operators_ms",
        state[most],
        threads[most],
    )
