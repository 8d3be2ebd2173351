"""Rows that wait until their time has passed: a row store together with its time index."""

from __future__ import annotations

from catalog.schema import Schema
from engine.operators.state.rows import RowStore
from engine.operators.state.time_index import TimeIndex


class TimedRows:
    """Owned by the worker that runs the box."""

    __slots__ = ("index", "store")

    def __init__(self, schema: Schema) -> None:
        self.store = RowStore(schema)
        self.index = TimeIndex()  # by rows of the store

    @property
    def nbytes(self) -> int:
        return self.store.nbytes + self.index.nbytes

    def close_gaps(self) -> None:
        """Drop rows that are in the index no more, if it pays."""
        if self.store.is_wasteful(self.index.live):
            rows = self.index.rows()
            self.store.keep(rows)
            self.index.renumber_rows(rows)
