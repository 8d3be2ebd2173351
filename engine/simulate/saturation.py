"""The rate at which a simulated engine is full: the most that it takes in without a queue that grows.

``experiment.knee_rates`` looks at seven tenths of the knee and divides by how busy the workers are there. That is right
where the work of a row does not depend on the load. A box with dear calls does less work for each row when trains are
longer, and trains get longer until the engine is full; a join makes pairs, so it does more. Here the rate is searched
for: rows come in reads of ten milliseconds, as ``bench promise`` sends them, and a rate fits if the queues hold no more
at the end than in the middle.
"""

from __future__ import annotations

import numpy as np

from engine.simulate.arrivals import Trains
from engine.simulate.edge_limits import most_at_the_edge
from engine.simulate.experiment import Experiment, Floats, build, knee_rates

READ_NS = 10_000_000
MIDDLE_NS, END_NS = 500_000_000, 1_500_000_000
GROWS = 0.02  # of the rows of that time
STEP, LOOKS = 1.5, 9  # the first steps up or down; runs at most


def saturation_rates(experiment: Experiment) -> Floats:
    """Return the rows a second by stream at which the engine is full. The mix is that of the measured rates."""
    rough = knee_rates(experiment)
    low, high, factor = 0.0, 0.0, 1.0
    for _ in range(LOOKS if rough.any() else 0):
        if _fits(experiment, rough * factor):
            low = factor
        else:
            high = factor
        factor = (low * high) ** 0.5 if low and high else low * STEP if low else high / STEP
    rates: Floats = rough * (low or factor)
    return rates * min(1.0, most_at_the_edge(rates, experiment.decode_ns))


def _fits(experiment: Experiment, rates: Floats) -> bool:
    """Return whether the queues do not grow at these rates."""
    trains = {stream: _reads(rate) for stream, rate in enumerate(rates.tolist())}
    simulation, _ = build(experiment, experiment.policies[0], trains)
    simulation.run(MIDDLE_NS)
    before = sum(simulation.storage.waiting) + sum(simulation.storage.expired)
    simulation.run(END_NS)
    grown = sum(simulation.storage.waiting) + sum(simulation.storage.expired) - before
    return grown <= GROWS * float(rates.sum()) * (END_NS - MIDDLE_NS) / 1e9


def _reads(per_s: float) -> Trains:
    times = np.arange(0, END_NS, READ_NS, dtype=np.int64)
    counts = np.diff(np.floor(per_s * (times + READ_NS) / 1e9), prepend=0.0).astype(np.int64)
    return times[counts > 0], counts[counts > 0]
