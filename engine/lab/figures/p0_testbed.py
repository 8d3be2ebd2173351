"""The testbed of P0 5.1: applications as trees of universal boxes, load as a share of capacity.

Costs are those of the paper divided by ``SCALE``. The paper does not print the cost of a scheduling step on its machine
(a 2 GHz Pentium, with a storage manager on disk). We chose the scale so that a step for a single box is about a quarter
of the box's work: then the cost of scheduling box by box is visible.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np

from catalog.load import LoadModel
from catalog.network import Network
from catalog.qos import QoS
from catalog.stats import Statistics
from engine.simulate.arrivals import Trains
from engine.simulate.sketch import NetworkSketch, SketchInput

SCALE = 3
COST_NS = (100_000 / SCALE, 1_000_000 / SCALE)  # the paper: 0.0001 to 0.001 s a tuple
FAN_OUT, DEPTH = 3, 5


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
