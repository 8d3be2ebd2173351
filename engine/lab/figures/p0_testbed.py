"""The testbed of P0 5.1: applications as trees of universal boxes, load as a share of capacity.

The paper prints the cost of a tuple (0.1 to 1 ms, uniform) and not that of a scheduling step or a box call on its
machine. What counts is their ratio, so the one setting ``speed`` divides the printed costs (and the printed times of
QoS graphs).
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np

from catalog.load import LoadModel
from catalog.network import Network
from catalog.qos import QoS
from catalog.stats import Statistics
from engine.lab.figures.figure import Unprinted
from engine.simulate.arrivals import Trains
from engine.simulate.sketch import NetworkSketch, SketchInput
from scheduler.trains import TrainRule

COST_NS = (100_000.0, 1_000_000.0)  # of a tuple
FAN_OUT, DEPTH = 3, 5
SPEED = Unprinted(
    5.0,
    "costs are divided by it: the paper's machine saturates at a load of 0.7 in figure 11, so a step for one box took "
    "0.43 of "
    "a box's mean cost of 550 us; ours takes about 50 us, which is 0.43 of 550 us / 5",
)
TRAIN = Unprinted(
    "all", "tuples of a call: the whole queue, as in 4.2; otherwise a count or a share of the queue", ("1", "0.2")
)
TESTBED = {"cost of a tuple": "even in [0.1, 1] ms, over speed", "selectivity": "1", "arrivals": "evenly spaced"}


def costs_ns(speed: float) -> tuple[float, float]:
    return COST_NS[0] / speed, COST_NS[1] / speed


def train_rule(word: str) -> TrainRule:
    """Read the setting TRAIN."""
    if word == "all":
        return TrainRule("all")
    return TrainRule("tuples", int(word)) if word.isdigit() else TrainRule("fraction", float(word))


def trees(
    count: int,
    *,
    fan_out: int = FAN_OUT,
    depth: int = DEPTH,
    cost_ns: tuple[float, float] = COST_NS,
    selectivity: float = 1.0,
    call_ns: float = 0.0,
    qos: Sequence[QoS] = (),
    seed: int = 0,
) -> Network:
    """Make applications: trees rooted at an output box, a stream for each leaf, costs uniform in a range."""
    random, sketch = Random(seed), NetworkSketch()

    def grow(level: int) -> SketchInput:
        inputs = [grow(level - 1) for _ in range(fan_out)] if level > 1 else [sketch.stream()]
        return sketch.box(*inputs, cost_ns=random.uniform(*cost_ns), selectivity=selectivity, call_ns=call_ns)

    for number in range(count):
        sketch.output(grow(depth), qos[number] if qos else None)
    return sketch.network()


def rate_at_capacity(network: Network) -> float:
    """Compute the tuples a second on each stream that keep one worker busy with the boxes alone."""
    statistics = Statistics(network)
    costs = LoadModel(network).coefficients(statistics.cost_per_tuple_ns, statistics.port_selectivity)
    return 1e9 / float(np.sum(costs.streams))


def even(network: Network, load: float, duration_ns: int, *, burst: int = 1, seed: int = 0) -> dict[int, Trains]:
    """Make evenly spaced arrivals at this share of capacity, the same on all streams."""
    return evenly(network, rate_at_capacity(network) * load, duration_ns, burst=burst, seed=seed)


def evenly(
    network: Network, rate_per_s: float, duration_ns: int, *, burst: int = 1, seed: int = 0
) -> dict[int, Trains]:
    """Make evenly spaced arrivals on each stream from a random start; ``burst`` tuples come together."""
    gap_ns = burst * 1e9 / rate_per_s
    random = np.random.default_rng(seed)
    out: dict[int, Trains] = {}
    for stream in network.streams:
        times = np.arange(random.random() * gap_ns, duration_ns, gap_ns).astype(np.int64)
        out[stream.number] = times, np.full(len(times), burst, np.int64)
    return out
