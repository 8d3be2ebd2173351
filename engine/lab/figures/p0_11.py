"""P0, figure 11: QoS-aware scheduling (the p-tuple) against round robin, as load rises.

Twenty applications of fan-out one and depth five run box at a time. Half of them, at random, have the tight graph
{(0, 1), (0.001, 1), (1, 0)}, half the loose one {(0, 1), (4, 1), (5, 0)}, in seconds. Costs and the times of the graphs
are a tenth of the paper's.

The paper does not say how its tuples are spaced. Evenly spaced tuples hardly ever wait below saturation, so a scheduler
would have no choice. Here each application gets twenty tuples at once, all applications at the same moment: these 400
tuples are about a second's work (in the paper's scale), as long as the tight graph falls.
"""

from __future__ import annotations

from functools import partial
from random import Random

import numpy as np

from catalog.network import Network
from catalog.qos import QoS, QoSGraph
from engine.lab.figures.figure import Check, Figure, FigureData, FigureVerdict, Panel
from engine.lab.figures.lab import Lab
from engine.lab.figures.p0_testbed import rate_at_capacity, trees
from engine.simulate.arrivals import Trains
from scheduler.state import SchedulerSettings
from scheduler.trains import TrainRule

APPLICATIONS, BURST = 20, 20
SCALE = 10
COST_NS = (100_000 / SCALE, 1_000_000 / SCALE)
S = 1e9 / SCALE  # a second of the paper, in ns
TIGHT = QoS(QoSGraph(((0.0, 1.0), (0.001 * S, 1.0), (S, 0.0))))
LOOSE = QoS(QoSGraph(((0.0, 1.0), (4 * S, 1.0), (5 * S, 0.0))))
LOADS = (0.1, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1)
POLICIES = {"p-tuple": "qos", "RR": "round_robin"}
FIGURE = Figure(
    title="QoS-aware scheduling",
    claim=(
        "The p-tuple gives clearly more QoS than round robin, by about as much at every load up to a capacity of 0.7; "
        "after that the system becomes overloaded and both decrease."
    ),
    parameters={
        "network": "20 chains of 5 boxes",
        "cost of a box": "even in [0.1, 1] ms / 10",
        "QoS": "tight or loose at random; times of the graphs / 10",
        "arrivals": "20 tuples at once for each application",
        "unit": "box; trains of 5 tuples at most",
    },
)


def network() -> Network:
    random = Random(1)
    graphs = [TIGHT, LOOSE] * (APPLICATIONS // 2)
    random.shuffle(graphs)
    return trees(APPLICATIONS, fan_out=1, cost_ns=COST_NS, qos=graphs, seed=1)


def bursts(chains: Network, load: float, duration_ns: int) -> dict[int, Trains]:
    """Make bursts at the same moments on all streams."""
    times = np.arange(0, duration_ns, BURST * 1e9 / (rate_at_capacity(chains) * load)).astype(np.int64)
    return {s.number: (times, np.full(len(times), BURST, np.int64)) for s in chains.streams}


def measure(lab: Lab) -> FigureData:
    chains = network()
    loads = lab.choose(LOADS, (0.3, 0.7, 1.1))
    duration_ns = lab.choose(lab.by_engine(1_500_000_000, 8_000_000_000), 2_000_000_000)
    curves: dict[str, list[tuple[float, float]]] = {name: [] for name in POLICIES}
    for number, load in enumerate(loads):
        lab.progress(number / len(loads))
        trains = bursts(chains, load, duration_ns)
        contenders = {name: partial(utility, lab, chains, trains, policy) for name, policy in POLICIES.items()}
        found = lab.repeat(contenders, best=max)
        for name in POLICIES:
            curves[name].append((load, found[name]))
    return FigureData((Panel("load (share of capacity)", "average QoS", curves),))


def utility(lab: Lab, chains: Network, trains: dict[int, Trains], policy: str) -> float:
    settings = SchedulerSettings(unit="box", train=TrainRule("tuples", 5))
    return lab.run(chains, trains, policy=policy, settings=settings).utility


def verdict(measured: FigureData) -> FigureVerdict:
    aware, plain = (measured.curve(name) for name in POLICIES)
    under = [load for load in sorted(aware) if load <= 0.7]
    gaps = [aware[load] - plain[load] for load in under]
    last, most = under[-1], max(aware)
    return FigureVerdict(
        (
            Check(min(gaps) > 0.05, f"up to {last:g} the p-tuple has {min(gaps):.2f} to {max(gaps):.2f} more QoS"),
            Check(max(gaps) < 3 * min(gaps), "and the difference is about stable"),
            Check(
                aware[most] < aware[last] - 0.03 and plain[most] < plain[last] - 0.03,
                f"at {most:g} both have fallen: to {aware[most]:.2f} and {plain[most]:.2f}",
            ),
        ),
        f"qos_at_{last:g}",
        aware[last],
        plain[last],
    )  # fmt: skip
