"""Rows of several inputs that wait until no older row can come on any of them: the order of time over all inputs.

P2 calls the wait *input delay synchronization*: a tuple waits for the slower inputs, whatever it costs. A row leaves
when the lowest watermark of all inputs has passed its time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from catalog.schema import Schema
from engine.operators.state.chunk import Chunk
from engine.operators.state.columns import Numbers
from engine.operators.state.plain import pack, unpack
from engine.operators.state.timed_rows import TimedRows
from storage.train import Train


class OrderedInputs:
    """``inputs``: the schema of each input and the column of its event time, None where tuples go by their arrival.
    Owned by the worker that runs the box."""

    __slots__ = ("_inputs", "_sides")

    def __init__(self, inputs: Sequence[tuple[Schema, int | None]]) -> None:
        self._inputs = inputs
        self._sides = [TimedRows(schema) for schema, _ in inputs]

    def times(self, port: int, train: Train) -> Numbers:
        """Return the event time of each tuple."""
        column = self._inputs[port][1]
        return train.arrival_ns if column is None else train.columns[column]

    def put(self, port: int, train: Train) -> None:
        """Have the tuples of an input wait for their time."""
        if train.count:
            side = self._sides[port]
            side.index.insert(Chunk(np.array(self.times(port, train)), side.store.append(train)))

    def release(self, horizon_ns: int) -> list[tuple[int, Train, Numbers]]:
        """Take out the rows below the horizon: by input, each in the order of time, with their times."""
        out = []
        for port, side in enumerate(self._sides):
            gone = side.index.expire(horizon_ns)
            if gone is not None:
                out.append((port, side.store.train(gone.rows), gone.times))
                side.close_gaps()
        return out

    @property
    def tuples(self) -> int:
        return sum([side.index.live for side in self._sides])

    @property
    def nbytes(self) -> int:
        return sum([side.nbytes for side in self._sides])

    def snapshot(self) -> list[Any]:
        return [pack(side.store.train(side.index.rows())) for side in self._sides]

    def restore(self, data: Sequence[Any]) -> None:
        for port, saved in enumerate(data):
            self.put(port, unpack(self._inputs[port][0], saved))
