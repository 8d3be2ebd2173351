"""A few tuples as the rows that they came in: columns are made when somebody looks.

At 10,000 tuples a second a read brings one or two, and most of them pass a few comparisons and go out again as text.
Columns are made for thousands: for two tuples they cost more than all the comparisons, there and back. So a train of a
few keeps its rows as Python values. Who knows how to use them does (the fused chain, the writer of ndjson); everyone
else reads ``columns`` and gets them, made once, at the price that they always had.

Never NULL, never a value outside its type: whoever makes one has checked. It holds rows only as long as nobody puts it
on a queue: what waits there is paid for by the bytes of its columns, and has nothing else (``at_rest``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from catalog.schema import Schema
from storage.train import NO_WATERMARK, Array, Pools, Train

Row = tuple[Any, ...]
Columns = tuple[tuple[Array, ...], Pools]
MakeColumns = Callable[[Sequence[Row]], Columns]
"""Rows to columns and their pools. Any thread."""


class RowTrain(Train):
    """Immutable like any train. Two threads that look at its columns at once make them twice, and equal."""

    __slots__ = ("_made", "_make", "rows")

    def __init__(
        self, schema: Schema, rows: Sequence[Row], arrival_ns: npt.NDArray[np.int64], make: MakeColumns
    ) -> None:
        self.schema = schema
        self.rows = rows
        self.arrival_ns = arrival_ns
        self.count = len(rows)
        self.valid = None
        self.watermark_ns = NO_WATERMARK
        self._make = make
        self._made: Columns | None = None

    @property
    def columns(self) -> tuple[Array, ...]:  # type: ignore[override]
        return (self._made or self._look())[0]

    @property
    def pools(self) -> Pools:  # type: ignore[override]
        return (self._made or self._look())[1]

    def _look(self) -> Columns:
        made = self._made = self._make(self.rows)
        return made

    def at_rest(self) -> Train:
        return Train(self.schema, self.columns, self.arrival_ns, pools=self.pools, watermark_ns=self.watermark_ns)

    def with_rows(self, rows: Sequence[Row]) -> RowTrain:
        """Some of its rows, in their order. All of them have one arrival: they were read together."""
        out = RowTrain(self.schema, rows, self.arrival_ns[: len(rows)], self._make)
        out.watermark_ns = self.watermark_ns
        return out

    def with_watermark(self, watermark_ns: int) -> RowTrain:
        out = RowTrain(self.schema, self.rows, self.arrival_ns, self._make)
        out._made = self._made
        out.watermark_ns = watermark_ns
        return out
