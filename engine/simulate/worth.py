"""What the tuples on an arc are worth to the outputs behind it, from a sample: for drops by value in a simulation.

The daemon learns it from what passes by. Here a sample (``engine/demo/sample``) runs through the network's own boxes
once, and what passes each arc on which drops may go by value is judged as the daemon would. The same seed gives the
same distribution, whatever the workers do.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from catalog.network import Network
from catalog.shed import Values
from engine.core import Engine
from engine.overload import known_values
from engine.shed.values import Judge, Judges
from engine.simulate.samples import SEED, Samples
from storage.train import Train

SAMPLE = 2_000  # tuples of each stream: a share is off by a hundredth
CELLS = 256
WAIT_S = 120.0


def sampled_values(network: Network, seed: int = SEED) -> dict[int, Values]:
    """By arc on which drops may go by value."""
    judges = Judges(network)
    wanted = {a: judge for a in sorted(judges.semantic_arcs) if (judge := judges.judge(a)) is not None}
    if not wanted or not any(s.overload == "shed" for s in network.streams):
        return {}
    seen = {arc: np.zeros(CELLS + 1) for arc in wanted}

    def watch(arc: int, judge: Judge) -> Callable[[Train], None]:
        def look(train: Train) -> None:
            cells = np.rint(judge(train) * CELLS).astype(np.intp)
            seen[arc] += np.bincount(cells, minlength=CELLS + 1)

        return look

    engine = Engine(network, [lambda train: None] * len(network.outputs), workers=1)
    engine.expire(False)
    engine.taps.arcs |= {a: (watch(a, j),) for a, j in wanted.items() if network.arcs[a].source.box is not None}
    samples = Samples(network, seed)
    engine.start()
    try:
        for stream in network.streams:
            train = samples.train(stream.number, SAMPLE)
            for arc in set(stream.arcs) & wanted.keys():
                watch(arc, wanted[arc])(train)
            engine.feed(stream.number, train)
        if not engine.drain(WAIT_S):
            return {}
    finally:
        engine.stop()
    return known_values(network, {arc: _cells(counts) for arc, counts in seen.items() if counts.any()})


def _cells(counts: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Values:
    there = np.flatnonzero(counts)
    return Values(tuple((counts[there] / counts.sum()).tolist()), tuple((there / CELLS).tolist()))
