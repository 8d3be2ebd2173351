"""Rows that wait in a box: columns that grow at their end, numbered in order of arrival.

A row is copied in once and gathered out when it is needed; what the indexes move about is only its number. Rows that
nothing refers to any more stay until they are half of what is held, then ``keep`` closes the gaps: a constant number of
copies a row, and numbers that keep their order.

A stream mostly has one pool for its strings, and then its codes are kept as they are. Only when a second pool appears
are strings held in a pool of the store's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from catalog.schema import Schema, Type
from engine.expressions import Vector
from engine.joins.strings import HeldStrings
from storage.strings import StringPool
from storage.train import Array, Mask, Train, tidy_valid

Rows = npt.NDArray[np.int64]

_START = 64
_SPARE = 4_096  # rows out of use that may stay before it pays to close the gaps


class RowStore:
    """Rows of one schema. Owned by the worker that runs the box."""

    __slots__ = ("_arrival_ns", "_columns", "_pools", "_strings", "_valid", "count", "flags", "schema")

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.count = 0
        self._columns: list[Array] = [np.zeros(_START, f.type.dtype) for f in schema]
        self._valid: list[Mask | None] = [None] * len(schema)
        self._arrival_ns = np.zeros(_START, np.int64)
        self.flags = np.zeros(_START, np.bool_)  # one mark a row, for its owner; False at first
        self._pools: list[StringPool | None] = [None] * len(schema)  # of the codes; a stream's, or our own
        self._strings: list[HeldStrings | None] = [None] * len(schema)  # where strings are our own

    @property
    def nbytes(self) -> int:
        total = self._arrival_ns.nbytes + self.flags.nbytes + sum(c.nbytes for c in self._columns)
        total += sum(v.nbytes for v in self._valid if v is not None)
        return total + sum(s.nbytes for s in self._strings if s is not None)

    # -- in ----------------------------------------------------------------------------------------------------------

    def append(self, train: Train) -> Rows:
        """Take in all rows of a train of this schema; their numbers."""
        begin, end = self.count, self.count + train.count
        if end > self._arrival_ns.shape[0]:
            self._resize(max(end, 2 * self._arrival_ns.shape[0]))
        for i, column in enumerate(train.columns):
            pool = train.pools[i]
            self._columns[i][begin:end] = column if pool is None else self._held(i, column, pool)
            self._append_valid(i, train.null_mask(i), begin, end)
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

    def _held(self, i: int, codes: Array, pool: StringPool) -> Array:
        """Codes as this store keeps them."""
        if self._pools[i] is pool:
            return codes
        if not self.count:
            self._pools[i], self._strings[i] = pool, None
            return codes
        strings = self._strings[i]
        if strings is None:  # a second pool: from now on strings are our own
            strings = self._strings[i] = HeldStrings()
            before = self._pools[i]
            assert before is not None
            self._columns[i][: self.count] = strings.codes(self._columns[i][: self.count], before)
        codes = strings.codes(codes, pool)
        self._pools[i] = strings.pool
        return codes

    # -- out ---------------------------------------------------------------------------------------------------------

    def vector(self, i: int, rows: Rows) -> Vector:
        """One column of these rows."""
        valid = self._valid[i]
        flags = None if valid is None else valid.take(rows)
        if flags is not None and flags.all():
            flags = None
        pool = self._pools[i]
        if pool is None and self.schema.fields[i].type is Type.STRING:
            pool = StringPool()
        return Vector(self._columns[i].take(rows), flags, pool)

    def nulls(self, i: int, count: int) -> Vector:
        """One column of rows that are not there."""
        type = self.schema.fields[i].type
        pool = StringPool() if type is Type.STRING else None
        return Vector(np.zeros(count, type.dtype), np.zeros(count, np.bool_), pool)

    def arrivals(self, rows: Rows) -> Rows:
        return self._arrival_ns.take(rows)

    def train(self, rows: Rows) -> Train:
        """These rows, in this order."""
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
        """Whether it pays to close the gaps, given how many rows are in use."""
        return self.count > 2 * used + _SPARE

    def keep(self, rows: Rows) -> None:
        """Only these rows stay (ascending): row ``rows[i]`` is ``i`` from now on."""
        self.count = rows.shape[0]
        size = max(_START, 2 * self.count)
        self._columns = [_resized(c.take(rows), size, self.count) for c in self._columns]
        self._valid = [None if v is None else self._kept_valid(v.take(rows), size) for v in self._valid]
        self._arrival_ns = _resized(self._arrival_ns.take(rows), size, self.count)
        self.flags = _resized(self.flags.take(rows), size, self.count)
        for i, strings in enumerate(self._strings):
            if strings is not None and strings.is_wasteful(self.count):
                column = self._columns[i][: self.count]
                column[:] = strings.renumber(np.unique(column)).take(column)
                self._pools[i] = strings.pool

    def _kept_valid(self, flags: Mask, size: int) -> Mask | None:
        return None if flags.all() else _resized(flags, size, self.count)


def _resized(column: Array, size: int, count: int) -> Array:
    out = np.zeros(size, column.dtype)
    out[:count] = column[:count]
    return out


# -- as plain data -----------------------------------------------------------------------------------------------------


def pack(train: Train) -> dict[str, Any]:
    """A train as plain data: arrays, and for strings the distinct texts with each row's place among them."""
    columns: list[Any] = []
    for values, pool in zip(train.columns, train.pools, strict=True):
        if pool is None:
            columns.append(values)
        else:
            used, places = np.unique(values, return_inverse=True)
            texts = [pool.values[c] for c in used.tolist()] if len(pool) else [""] * used.shape[0]
            columns.append({"texts": texts, "places": places.astype(np.int32)})
    valid = [None] * len(columns) if train.valid is None else list(train.valid)
    return {"columns": columns, "valid": valid, "arrival_ns": np.array(train.arrival_ns)}


def unpack(schema: Schema, data: dict[str, Any]) -> Train:
    """A train from what ``pack`` gave."""
    columns: list[Array] = []
    pools: list[StringPool | None] = []
    for field, column in zip(schema, data["columns"], strict=True):
        if field.type is Type.STRING:
            pool = StringPool()
            codes = pool.encode(column["texts"])
            places = np.asarray(column["places"], np.int64)
            columns.append(codes.take(places) if codes.shape[0] else np.zeros(places.shape[0], np.int32))
            pools.append(pool)
        else:
            columns.append(np.asarray(column, field.type.dtype))
            pools.append(None)
    valid: Sequence[Mask | None] = [None if v is None else np.asarray(v, np.bool_) for v in data["valid"]]
    return Train(
        schema,
        tuple(columns),
        np.asarray(data["arrival_ns"], np.int64),
        valid=tidy_valid(valid),
        pools=tuple(pools),
    )
