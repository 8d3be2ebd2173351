"""Rows that wait in a box: columns that grow at their end, numbered in the order of arrival.

A row is copied in once and gathered out when it is needed; the indexes move only its number. Unused rows stay until
they are half of the store, then ``keep`` closes the gaps. That costs a constant number of copies a row, and rows keep
their order.

A stream mostly has one pool for its strings, and then the store keeps its codes as they are. Only when a second pool
appears does the store hold strings in a pool of its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from catalog.schema import Schema, Type
from engine.operators.expressions import Vector
from engine.operators.state.columns import START, Array, Numbers
from engine.operators.state.strings import StateStrings
from storage.strings import StringPool
from storage.train import Mask, Train, tidy_valid

_SPARE = 4_096  # unused rows that may stay before it pays to close the gaps


class RowStore:
    """Rows of one schema. Owned by the worker that runs the box."""

    __slots__ = ("_arrival_ns", "_columns", "_pools", "_strings", "_valid", "count", "flags", "schema")

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.count = 0
        self._columns: list[Array] = [np.zeros(START, f.type.dtype) for f in schema]
        self._valid: list[Mask | None] = [None] * len(schema)
        self._arrival_ns = np.zeros(START, np.int64)
        self.flags = np.zeros(START, np.bool_)  # one mark a row, for the owner of the store; False at first
        self._pools: list[StringPool | None] = [None] * len(schema)  # of the codes; a stream's, or our own
        self._strings: list[StateStrings | None] = [None] * len(schema)  # where strings are our own

    @property
    def nbytes(self) -> int:
        total = self._arrival_ns.nbytes + self.flags.nbytes + sum(c.nbytes for c in self._columns)
        total += sum(v.nbytes for v in self._valid if v is not None)
        total += sum(s.nbytes for s in self._strings if s is not None)
        # The pool of a stream counts too: the rows may be the last that hold it.
        return total + sum(p.nbytes for p, s in zip(self._pools, self._strings, strict=True) if p and s is None)

    # -- in ----------------------------------------------------------------------------------------------------------

    def append(self, train: Train) -> Numbers:
        """Take in all rows of a train of this schema; return their numbers."""
        begin, end = self.count, self.count + train.count
        if end > self._arrival_ns.shape[0]:
            self._resize(max(end, 2 * self._arrival_ns.shape[0]))
        for i, column in enumerate(train.columns):
            pool, valid = train.pools[i], train.null_mask(i)
            self._columns[i][begin:end] = column if pool is None else self._codes(i, column, pool, valid)
            self._append_valid(i, valid, begin, end)
        self._arrival_ns[begin:end] = train.arrival_ns
        self.flags[begin:end] = False
        self.count = end
        return np.arange(begin, end)

    def _resize(self, size: int) -> None:
        self._columns = [_resized(c, size, self.count) for c in self._columns]
        self._valid = [None if v is None else _resized(v, size, self.count) for v in self._valid]
        self._arrival_ns = _resized(self._arrival_ns, size, self.count)
        self.flags = _resized(self.flags, size, self.count)

    def _append_valid(self, i: int, flags: Mask | None, begin: int, end: int) -> None:
        valid = self._valid[i]
        if valid is None:
            if flags is None:
                return
            valid = self._valid[i] = np.ones(self._arrival_ns.shape[0], np.bool_)
        valid[begin:end] = True if flags is None else flags

    def _codes(self, i: int, codes: Array, pool: StringPool, valid: Mask | None) -> Array:
        """Return the codes of a string column as this store keeps them."""
        if self._pools[i] is pool:
            return codes
        if not self.count:
            self._pools[i], self._strings[i] = pool, None
            return codes
        strings = self._strings[i]
        if strings is None:  # a second pool: from now on strings are our own
            strings = self._strings[i] = StateStrings()
            before = self._pools[i]
            assert before is not None
            flags = self._valid[i]
            held = None if flags is None else flags[: self.count]
            self._columns[i][: self.count] = strings.codes(self._columns[i][: self.count], before, held)
        codes = strings.codes(codes, pool, valid)
        self._pools[i] = strings.pool
        return codes

    # -- out ---------------------------------------------------------------------------------------------------------

    def vector(self, i: int, rows: Numbers) -> Vector:
        """Return one column of these rows."""
        valid = self._valid[i]
        flags = None if valid is None else valid.take(rows)
        if flags is not None and flags.all():
            flags = None
        pool = self._pools[i]
        if pool is None and self.schema.fields[i].type is Type.STRING:
            pool = StringPool()
        return Vector(self._columns[i].take(rows), flags, pool)

    def nulls(self, i: int, count: int) -> Vector:
        """Return one column of rows that do not exist."""
        type = self.schema.fields[i].type
        pool = StringPool() if type is Type.STRING else None
        return Vector(np.zeros(count, type.dtype), np.zeros(count, np.bool_), pool)

    def arrivals(self, rows: Numbers) -> Numbers:
        return self._arrival_ns.take(rows)

    def train(self, rows: Numbers) -> Train:
        """Return these rows, in this order."""
        vectors = [self.vector(i, rows) for i in range(len(self.schema))]
        return Train(
            self.schema,
            tuple(v.values for v in vectors),
            self.arrivals(rows),
            valid=tidy_valid([v.valid for v in vectors]),
            pools=tuple(v.pool for v in vectors),
        )

    # -- forgetting --------------------------------------------------------------------------------------------------

    def is_wasteful(self, used: int) -> bool:
        """Tell whether it pays to close the gaps, given how many rows are in use."""
        return self.count > 2 * used + _SPARE

    def keep(self, rows: Numbers) -> None:
        """Keep only these rows (ascending): row ``rows[i]`` is ``i`` from now on."""
        self.count = rows.shape[0]
        size = max(START, 2 * self.count)
        self._columns = [_resized(c.take(rows), size, self.count) for c in self._columns]
        self._valid = [None if v is None else self._kept_valid(v.take(rows), size) for v in self._valid]
        self._arrival_ns = _resized(self._arrival_ns.take(rows), size, self.count)
        self.flags = _resized(self.flags.take(rows), size, self.count)
        for i, strings in enumerate(self._strings):
            if strings is not None and strings.is_wasteful(self.count):
                column = self._columns[i][: self.count]
                used = np.unique(column)
                used = used[used < len(strings.pool)]
                column[:] = strings.renumber(used).take(column)
                self._pools[i] = strings.pool

    def _kept_valid(self, flags: Mask, size: int) -> Mask | None:
        return None if flags.all() else _resized(flags, size, self.count)


def _resized(column: Any, size: int, count: int) -> Any:
    out = np.zeros(size, column.dtype)
    out[:count] = column[:count]
    return out
