"""Strings as numbers of the box's own, forgotten when nothing refers to them.

A stream's pool is rotated and another stream has another one, so its codes cannot be state. Here a string has a number
for as long as it is retained; for each pool lately seen a table leads from its codes to those numbers, and a string is
looked up by its text only once per pool. Number 0 is NULL.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.expressions import Vector
from engine.windows.numbers import Free, Numbers, References, fitting_size, grown
from storage.strings import StringInterner, StringPool

_POOLS = 4  # tables kept: a stream that rotates its pool uses two at a time
NULL = 0


class _PoolTable:
    """Codes of one pool to numbers and back; -1 is unknown. Keeps the pool alive, so its id stays its own."""

    __slots__ = ("codes", "numbers", "pool")

    def __init__(self, pool: StringPool, size: int) -> None:
        self.pool = pool
        self.numbers = np.full(max(1, len(pool)), -1, np.int32)
        self.codes = np.full(size, -1, np.int32)

    def follow(self) -> None:
        """The pool may have grown."""
        if self.numbers.shape[0] < len(self.pool):
            self.numbers = grown(self.numbers, max(len(self.pool), 2 * self.numbers.shape[0]), -1)


class StringTable:
    """Owned by the worker that runs the box."""

    def __init__(self) -> None:
        self._reset(Free())
        self._out = StringInterner()

    def _reset(self, free: Free) -> None:
        self.free = free
        self.texts: list[str | None] = [None] * free.size
        self.references = References(free.size)
        self._numbers: dict[str, int] = {}
        self._tables: dict[int, _PoolTable] = {}
        self._out_codes = np.full(free.size, -1, np.int32)
        self.text_bytes = 0
        null = int(free.take(1)[0])
        assert null == NULL
        self.references.counts[NULL] = 1  # never forgotten

    @property
    def nbytes(self) -> int:
        tables = sum(t.numbers.nbytes + t.codes.nbytes for t in self._tables.values())
        return tables + 20 * self.free.size + 120 * len(self._numbers) + self.text_bytes

    def __len__(self) -> int:
        return len(self._numbers)

    def numbers(self, column: Vector) -> Numbers:
        """The number of each row's string; unknown strings get one, which lasts only if it is retained."""
        assert column.pool is not None
        table = self._table(column.pool)
        codes = column.values
        numbers = table.numbers.take(codes).astype(np.int64)
        if column.valid is not None:
            numbers[~column.valid] = NULL
        if numbers.shape[0] and numbers.min() < 0:
            self._learn(table, np.unique(codes[numbers < 0]))
            table = self._table(column.pool)
            numbers = np.where(numbers < 0, table.numbers.take(codes), numbers)
        return numbers

    def _table(self, pool: StringPool) -> _PoolTable:
        table = self._tables.get(id(pool))
        if table is None:
            if len(self._tables) >= _POOLS:
                del self._tables[next(iter(self._tables))]
            table = self._tables[id(pool)] = _PoolTable(pool, self.free.size)
        table.follow()
        return table

    def _learn(self, table: _PoolTable, codes: npt.NDArray[np.int32]) -> None:
        texts = table.pool.values
        numbers = self.numbers_of([texts[c] for c in codes.tolist()])
        table.numbers[codes] = numbers
        table.codes[numbers] = codes

    def numbers_of(self, texts: Iterable[str]) -> Numbers:
        """For distinct strings."""
        known = self._numbers
        texts = list(texts)
        fresh = [t for t in texts if t not in known]
        if size := self.free.lacks(len(fresh)):
            self._grow(size)
        for text, number in zip(fresh, self.free.take(len(fresh)).tolist(), strict=True):
            known[text] = number
            self.texts[number] = text
            self.text_bytes += len(text)
        return np.fromiter((known[t] for t in texts), np.int64, len(texts))

    def _grow(self, size: int) -> None:
        self.texts.extend([None] * (size - self.free.size))
        self.free.grow(size)
        self.references.grow(size)
        self._out_codes = grown(self._out_codes, size, -1)
        for table in self._tables.values():
            table.codes = grown(table.codes, size, -1)

    # -- keeping and forgetting --------------------------------------------------------------------------------------

    def forget(self, gone: Numbers) -> None:
        """These strings, to which nothing refers."""
        for number in gone.tolist():
            text = self.texts[number]
            assert text is not None
            del self._numbers[text]
            self.texts[number] = None
            self.text_bytes -= len(text)
        for table in self._tables.values():
            codes = table.codes.take(gone)
            table.numbers[codes[codes >= 0]] = -1
            table.codes[gone] = -1
        self._out_codes[gone] = -1
        self.free.give_back(gone)

    def renumber(self) -> Numbers:
        """Number the live strings anew, from 1; the new number by the old."""
        live = np.array(sorted(self._numbers.values()), np.int64)
        texts = [self.texts[n] for n in live.tolist()]
        references = self.references.counts.take(live)
        remap = np.full(self.free.size, -1, np.int64)
        self._reset(Free(fitting_size(len(texts) + 1)))
        self._out = StringInterner()  # the old one stays with the trains that were emitted
        numbers = self.numbers_of(t for t in texts if t is not None)
        self.references.counts[numbers] = references
        remap[live] = numbers
        remap[NULL] = NULL
        return remap

    # -- out again ---------------------------------------------------------------------------------------------------

    def vector(self, numbers: Numbers) -> Vector:
        """A string column for a result. Its pool belongs to this table, which is its only writer."""
        pool = self._out.pool
        if pool.is_full:
            pool = self._out.fresh()
            self._out_codes[:] = -1
        codes = self._out_codes.take(numbers)
        missing = np.unique(numbers[codes < 0])
        if missing.shape[0]:
            self._out_codes[missing] = [pool.code(self.texts[n] or "") for n in missing.tolist()]
            codes = self._out_codes.take(numbers)
        null = numbers == NULL
        return Vector(codes, ~null if null.any() else None, pool)

    def snapshot(self, numbers: Numbers) -> list[Any]:
        return [self.texts[n] for n in numbers.tolist()]
