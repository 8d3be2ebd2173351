"""Trains of a network's own streams, for measurements on its boxes: one sample of each stream, read over and over.

A train arrives now; that is also its event time, so that windows close. ``sample_tuples`` makes the tuples.
"""

from __future__ import annotations

from collections.abc import Callable
from time import time_ns
from typing import Any

import numpy as np
import numpy.typing as npt

from catalog.network import Network
from catalog.schema import Schema, Type
from engine.simulate.sample_tuples import as_train, sample
from router.event_time import EventTime
from storage.strings import StringPool
from storage.train import Train, constant_ns

SEED = 7
WORDS = tuple(f"w{i:02d}" for i in range(32))


class Samples:
    """The samples of all streams of a network, and where each is read next."""

    def __init__(self, network: Network, seed: int = SEED) -> None:
        self._network = network
        self._seed = seed
        self._whole: dict[int, Train] = {}
        self._at: dict[int, int] = {}

    def train(self, stream: int, count: int) -> Train:
        """Return the next tuples of a stream. A sample that ends begins again."""
        if stream not in self._whole:
            known = self._network.streams[stream]
            self._whole[stream] = as_train(known, sample(known, self._seed))
        whole, at = self._whole[stream], self._at.get(stream, 0)
        self._at[stream] = (at + count) % whole.count
        if at + count <= whole.count:
            return self._stamped(stream, whole.slice(at, at + count))
        return self._stamped(stream, whole.take(np.arange(at, at + count) % whole.count))

    def _stamped(self, stream: int, train: Train) -> Train:
        now_ns = time_ns()
        field = self._network.streams[stream].time_field
        columns = train.columns
        if field is not None:
            place = train.schema.index(field)
            columns = (*columns[:place], np.full(train.count, now_ns), *columns[place + 1 :])
        return Train(train.schema, columns, constant_ns(now_ns, train.count), valid=train.valid, pools=train.pools)

    def event_time(self) -> EventTime:
        """Return new clocks that set the watermarks of these trains."""
        return EventTime(self._network, time_ns)


def make_train(schema: Schema, count: int, seed: int, arrival_ns: int | None = None) -> Train:
    """Make random tuples: numbers from 0 to 1,000, a few words, half of the booleans true, times from now on."""
    random = np.random.default_rng([seed, count])
    pools = tuple(StringPool(WORDS) if f.type is Type.STRING else None for f in schema)
    columns = tuple(_MAKERS[f.type](random, count).astype(f.type.dtype) for f in schema)
    stamp = time_ns() if arrival_ns is None else arrival_ns
    return Train(schema, columns, constant_ns(stamp, count), pools=pools)


Maker = Callable[[np.random.Generator, int], npt.NDArray[Any]]
_MAKERS: dict[Type, Maker] = {
    Type.BOOLEAN: lambda random, n: random.integers(0, 2, n),
    Type.INT: lambda random, n: random.integers(0, 1_000, n),
    Type.BIGINT: lambda random, n: random.integers(0, 1_000, n),
    Type.FLOAT: lambda random, n: random.random(n) * 1_000,
    Type.DOUBLE: lambda random, n: random.random(n) * 1_000,
    Type.STRING: lambda random, n: random.integers(0, len(WORDS), n),
    Type.TIMESTAMP: lambda random, n: time_ns() + np.arange(n) * 1_000,
}
