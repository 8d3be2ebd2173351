"""The worth of the tuples on an arc to the outputs behind it, from a sample: for drops by value in a simulation.

The daemon learns it from the tuples that pass. Here a sample (``sample_tuples``) runs through the network's own boxes
once, and the tuples on each arc where drops may go by value are valued as the daemon would. The same seed gives the
same distribution, whatever the workers do.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from catalog.loss import ValueCells
from catalog.network import Network
from engine.run.core import Engine
from engine.run.preference import CompiledPreference
from engine.simulate.samples import SEED, Samples
from load_shedder.decide.values import Valuation, Valuations, known_values
from storage.train import Train

SAMPLE = 2_000  # tuples of each stream: shares are then exact to a hundredth
CELLS = 256
WAIT_S = 120.0


def sampled_values(network: Network, seed: int = SEED) -> dict[int, ValueCells]:
    """Return the distribution of values, by arc where drops may go by value."""
    valuations = Valuations(network, CompiledPreference)
    wanted = {a: v for a in sorted(valuations.semantic_arcs) if (v := valuations.of_arc(a)) is not None}
    if not wanted or not any(s.overload == "shed" for s in network.streams):
        return {}
    seen = {arc: np.zeros(CELLS + 1) for arc in wanted}

    def watch(arc: int, valuation: Valuation) -> Callable[[Train], None]:
        def look(train: Train) -> None:
            cells = np.rint(valuation(train) * CELLS).astype(np.intp)
            seen[arc] += np.bincount(cells, minlength=CELLS + 1)

        return look

    engine = Engine(network, [lambda train: None] * len(network.outputs), workers=1)
    engine.expire(False)
    engine.taps.arcs |= {a: (watch(a, v),) for a, v in wanted.items() if network.arcs[a].source.box is not None}
    samples = Samples(network, seed)
    engine.start()
    try:
        for stream in network.streams:
            train = samples.train(stream.number, SAMPLE)
            for arc in set(stream.arcs) & wanted.keys():
                watch(arc, wanted[arc])(train)
            engine.ingress.admit(stream.number, train)
        if not engine.drain(WAIT_S):
            return {}
    finally:
        engine.stop()
    return known_values(network, {arc: _cells(counts) for arc, counts in seen.items() if counts.any()})


def _cells(counts: np.ndarray[tuple[int], np.dtype[np.float64]]) -> ValueCells:
    there = np.flatnonzero(counts)
    return ValueCells(tuple((counts[there] / counts.sum()).tolist()), tuple((there / CELLS).tolist()))
