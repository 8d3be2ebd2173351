"""Keys as small numbers: the columns of ``by``, any number of them, in one integer per row.

SQL's GROUP BY decides what is one key: NULL is one key (as any other value of its column), NaN is one, 0.0 and -0.0 are
one. A number is retained by each group that has the key, and forgotten with the last of them.

One string column needs no table beside the string's own number. Everything else goes by the bits of its values (for
strings their numbers) through a hash index.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from catalog.schema import Field, Type
from engine.expressions import Vector
from engine.windows.distinct import bits_of, distinct_rows, values_of
from engine.windows.index import HashIndex
from engine.windows.near import NearTable
from engine.windows.numbers import Free, Numbers, References, fitting_size, grown
from engine.windows.strings import StringTable

_DEAD = -1  # in the mask of a number that is not in use: no probe has it


class Keys(ABC):
    """Owned by the worker that runs the box."""

    @abstractmethod
    def numbers(self, columns: Sequence[Vector], count: int) -> Numbers:
        """The key of each row. A new one lasts only if it is retained."""

    @property
    @abstractmethod
    def size(self) -> int:
        """All numbers are below."""

    @property
    @abstractmethod
    def live(self) -> int: ...

    @abstractmethod
    def retain(self, numbers: Numbers) -> None: ...

    @abstractmethod
    def release(self, numbers: Numbers) -> None:
        """Give up references. A key without any is not forgotten yet: its next window may begin in the next train."""

    @abstractmethod
    def sweep(self) -> None:
        """Forget the keys that have been without references since before the last releases."""

    @abstractmethod
    def vectors(self, numbers: Numbers) -> list[Vector]:
        """The columns of these keys, for a result."""

    @property
    @abstractmethod
    def is_roomy(self) -> bool: ...

    @abstractmethod
    def renumber(self) -> Numbers:
        """Number the live keys anew; the new number by the old."""

    @property
    @abstractmethod
    def nbytes(self) -> int: ...

    @abstractmethod
    def snapshot(self, numbers: Numbers) -> list[Any]:
        """These keys as plain data."""

    @abstractmethod
    def restore(self, data: Any, count: int) -> Numbers:
        """Numbers for what ``snapshot`` gave; not retained yet."""


class NoKeys(Keys):
    """``by`` names nothing: one key."""

    size = 1
    live = 1
    is_roomy = False
    nbytes = 0

    def numbers(self, columns: Sequence[Vector], count: int) -> Numbers:
        return np.zeros(count, np.int64)

    def retain(self, numbers: Numbers) -> None: ...

    def release(self, numbers: Numbers) -> None: ...

    def sweep(self) -> None: ...

    def vectors(self, numbers: Numbers) -> list[Vector]:
        return []

    def renumber(self) -> Numbers:
        return np.zeros(1, np.int64)

    def snapshot(self, numbers: Numbers) -> list[Any]:
        return []

    def restore(self, data: Any, count: int) -> Numbers:
        return np.zeros(count, np.int64)


class StringKeys(Keys):
    """One string column: the string's number is the key's."""

    def __init__(self) -> None:
        self._table = StringTable()

    @property
    def size(self) -> int:
        return self._table.free.size

    @property
    def live(self) -> int:
        return len(self._table)

    @property
    def is_roomy(self) -> bool:
        return self._table.free.is_roomy

    @property
    def nbytes(self) -> int:
        return self._table.nbytes

    def numbers(self, columns: Sequence[Vector], count: int) -> Numbers:
        return self._table.numbers(columns[0])

    def retain(self, numbers: Numbers) -> None:
        self._table.references.retain(numbers)

    def release(self, numbers: Numbers) -> None:
        if self._table.references.release(numbers):
            self.sweep()

    def sweep(self) -> None:
        self._table.forget(self._table.references.unused())

    def vectors(self, numbers: Numbers) -> list[Vector]:
        return [self._table.vector(numbers)]

    def renumber(self) -> Numbers:
        self.sweep()
        return self._table.renumber()

    def snapshot(self, numbers: Numbers) -> list[Any]:
        return [self._table.snapshot(numbers)]

    def restore(self, data: Any, count: int) -> Numbers:
        return restore_strings(self._table, data[0])


class BitKeys(Keys):
    """Any columns, by their bits. Column 0 of the index is a mask of which of the others are NULL."""

    def __init__(self, fields: Sequence[Field]) -> None:
        self._fields = tuple(fields)
        self._strings = [StringTable() if f.type is Type.STRING else None for f in fields]
        self._reset(Free())

    def _reset(self, free: Free) -> None:
        self._free = free
        self._references = References(free.size)
        self._index = HashIndex(len(self._fields) + 1)
        self._mask = np.full(free.size, _DEAD, np.int64)
        self._bits = [np.zeros(free.size, np.int64) for _ in self._fields]
        self._near = NearTable()

    @property
    def _columns(self) -> tuple[Numbers, ...]:
        return (self._mask, *self._bits)

    @property
    def size(self) -> int:
        return self._free.size

    @property
    def live(self) -> int:
        return self._free.live

    @property
    def is_roomy(self) -> bool:
        return self._free.is_roomy

    @property
    def nbytes(self) -> int:
        strings = sum(t.nbytes for t in self._strings if t is not None)
        return strings + self._index.nbytes + 8 * self._free.size * (len(self._fields) + 3)

    def numbers(self, columns: Sequence[Vector], count: int) -> Numbers:
        probes = self._probes(columns)
        if len(probes) == 2 and columns[0].valid is None and self._near.covers(probes[1]):
            return self._near_numbers(probes[1])
        return self._find(probes, count)

    def _near_numbers(self, bits: Numbers) -> Numbers:
        numbers = self._near.get(bits)
        if numbers.min() < 0:
            missing = np.flatnonzero(numbers < 0)
            wanted = bits.take(missing)
            numbers[missing] = found = self._find((np.zeros(1, np.int64), wanted), missing.shape[0])
            self._near.put(wanted, found)
        return numbers

    def _find(self, probes: tuple[Numbers, ...], count: int) -> Numbers:
        numbers = self._index.find(probes, self._columns)
        if numbers.shape[0] and numbers.min() < 0:
            missing = np.flatnonzero(numbers < 0)
            wanted = tuple([p.take(missing) if p.shape[0] == count else np.repeat(p, len(missing)) for p in probes])
            first, inverse = distinct_rows(wanted)
            numbers[missing] = self._add(tuple([w.take(first) for w in wanted])).take(inverse)
        return numbers

    def _probes(self, columns: Sequence[Vector]) -> tuple[Numbers, ...]:
        mask = np.zeros(1, np.int64)
        bits: list[Numbers] = []
        for at, (column, strings) in enumerate(zip(columns, self._strings, strict=True)):
            if strings is not None:
                bits.append(strings.numbers(column))
                continue
            values = bits_of(column.values)
            if column.valid is not None:
                values = np.where(column.valid, values, 0)
                mask = mask | np.where(column.valid, 0, 1 << at)
            bits.append(values)
        return (mask, *bits)

    def _add(self, probes: tuple[Numbers, ...]) -> Numbers:
        count = probes[0].shape[0]
        if size := self._free.lacks(count):
            self._free.grow(size)
            self._references.grow(size)
            self._mask = grown(self._mask, size, _DEAD)
            self._bits = [grown(b, size, 0) for b in self._bits]
        if self._index.is_full(count):
            live = np.flatnonzero(self._mask != _DEAD)
            self._index.rebuild(tuple([c.take(live) for c in self._columns]), live, count)
        numbers = self._free.take(count)
        self._index.insert(probes, numbers)
        self._mask[numbers] = probes[0]
        for column, probe, strings in zip(self._bits, probes[1:], self._strings, strict=True):
            column[numbers] = probe
            if strings is not None:
                strings.references.retain(probe)
        return numbers

    def retain(self, numbers: Numbers) -> None:
        self._references.retain(numbers)

    def release(self, numbers: Numbers) -> None:
        if self._references.release(numbers):
            self.sweep()

    def sweep(self) -> None:
        gone = self._references.unused()
        if not gone.shape[0]:
            return
        self._near.put(self._bits[0].take(gone), np.full(gone.shape[0], -1))
        self._mask[gone] = _DEAD
        self._free.give_back(gone)
        for column, strings in zip(self._bits, self._strings, strict=True):
            if strings is not None:
                strings.references.release(column.take(gone))
                strings.forget(strings.references.unused())

    def vectors(self, numbers: Numbers) -> list[Vector]:
        mask = self._mask.take(numbers)
        out: list[Vector] = []
        for at, (f, column, strings) in enumerate(zip(self._fields, self._bits, self._strings, strict=True)):
            bits = column.take(numbers)
            if strings is not None:
                out.append(strings.vector(bits))
                continue
            null = (mask >> at) & 1 != 0
            out.append(Vector(values_of(bits, f.type), ~null if null.any() else None))
        return out

    def renumber(self) -> Numbers:
        self.sweep()
        live = np.flatnonzero(self._mask != _DEAD)
        remap = np.full(self._free.size, -1, np.int64)
        columns = [c.take(live) for c in self._columns]
        references = self._references.counts.take(live)
        for at, strings in enumerate(self._strings, 1):
            if strings is not None:
                columns[at] = strings.renumber().take(columns[at])
        self._reset(Free(fitting_size(live.shape[0])))
        remap[live] = numbers = self._free.take(live.shape[0])
        self._references.counts[numbers] = references
        for column, values in zip(self._columns, columns, strict=True):
            column[numbers] = values
        self._index.rebuild(tuple(columns), numbers, 0)
        return remap

    def snapshot(self, numbers: Numbers) -> list[Any]:
        data: list[Any] = [self._mask.take(numbers)]
        for column, strings in zip(self._bits, self._strings, strict=True):
            bits = column.take(numbers)
            data.append(bits if strings is None else strings.snapshot(bits))
        return data

    def restore(self, data: Any, count: int) -> Numbers:
        probes = [np.asarray(data[0], np.int64)]
        for values, strings in zip(data[1:], self._strings, strict=True):
            probes.append(np.asarray(values, np.int64) if strings is None else restore_strings(strings, values))
        return self._add(tuple(probes))


def make_keys(fields: Sequence[Field]) -> Keys:
    if not fields:
        return NoKeys()
    if len(fields) == 1 and fields[0].type is Type.STRING:
        return StringKeys()
    return BitKeys(fields)


def restore_strings(table: StringTable, texts: Sequence[str | None]) -> Numbers:
    distinct = list(dict.fromkeys(t for t in texts if t is not None))
    known: dict[str | None, int] = dict(zip(distinct, table.numbers_of(distinct).tolist(), strict=True))
    known[None] = 0
    return np.array([known[t] for t in texts], np.int64)
