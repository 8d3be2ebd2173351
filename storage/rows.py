"""A train of a few tuples that keeps its rows, and makes columns only on demand.

At 10,000 tuples a second one read from a socket brings one or two tuples, and most of them pass a few comparisons and
leave again as text. Columns are made for thousands of tuples: for two they cost more than all the comparisons, on the
way in and on the way out. So a short train keeps its rows as Python values. The fused chain and the ndjson writer use
the rows. All other code reads ``columns``, which are made once, at their usual price.

The rows have no NULL and no value outside its type: the maker has checked them. A train holds rows only until it goes
on a queue: the memory budget counts the bytes of columns, so a queue holds columns only (``at_rest``).
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
"""Convert rows to columns and their pools. Any thread."""


class RowTrain(Train):
    """Immutable like any train. When two threads read its columns at once, both make them, with equal values."""

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
        return (self._made or self._make_columns())[0]

    @property
    def pools(self) -> Pools:  # type: ignore[override]
        return (self._made or self._make_columns())[1]

    def _make_columns(self) -> Columns:
        made = self._made = self._make(self.rows)
        return made

    def at_rest(self) -> Train:
        return Train(self.schema, self.columns, self.arrival_ns, pools=self.pools, watermark_ns=self.watermark_ns)

    def with_rows(self, rows: Sequence[Row]) -> RowTrain:
        """Keep some of the rows, in their order. All rows have one arrival, because they were read together."""
        out = RowTrain(self.schema, rows, self.arrival_ns[: len(rows)], self._make)
        out.watermark_ns = self.watermark_ns
        return out

    def with_watermark(self, watermark_ns: int) -> RowTrain:
        out = RowTrain(self.schema, self.rows, self.arrival_ns, self._make)
        out._made = self._made
        out.watermark_ns = watermark_ns
        return out
