"""Numbers for keys: equal keys have one small number, in every train and on every input of a box.

A key is any number of fields. Each field becomes an int64 (``distinct.bits_of``; strings by their code among the
state's own), and one hash index finds the number of the whole. A key of one string needs no index, because its code is
its number; a key of one integer from a narrow range is found in a table by value.

NULL is a key like any other value of its field, or, for joins, a key with a NULL matches nothing and has the number -1.
NaNs are one key, and 0.0 and -0.0 are one.

Numbers are given out upwards. Only ``keep`` takes numbers back, all unused ones at once, and keeps the order of the
rest: sorted columns of numbers stay sorted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from catalog.schema import Field, Type
from engine.operators.expressions import Vector
from engine.operators.state.columns import START, Array, Numbers, grown, longer
from engine.operators.state.direct_table import DirectTable
from engine.operators.state.distinct import bits_of, distinct_rows, values_of
from engine.operators.state.hash_index import HashIndex
from engine.operators.state.plain import pack_columns, unpack_columns
from engine.operators.state.strings import StateStrings
from storage.strings import StringPool
from storage.train import Mask

_SPARE = 4_096  # unused numbers that may stay before it pays to take them back


def key_table(types: Sequence[Type], *, null_is_key: bool) -> KeyTable:
    """Make a table for keys of these types: those in which the parts of a key are compared."""
    if not types:
        return SingleKey(types, null_is_key=null_is_key)
    if tuple(types) == (Type.STRING,):
        return StringKeys(types, null_is_key=null_is_key)
    return ColumnKeys(types, null_is_key=null_is_key)


def group_keys(fields: Sequence[Field]) -> KeyTable:
    """Make a table for keys of these fields as in GROUP BY: NULL is a key."""
    return key_table([f.type for f in fields], null_is_key=any(f.nullable for f in fields))


class KeyTable(ABC):
    """Owned by the worker that runs the box."""

    count = 0  # numbers given out: all are below

    def __init__(self, types: Sequence[Type], *, null_is_key: bool) -> None:
        self.types = tuple(types)
        self.null_is_key = null_is_key

    @property
    @abstractmethod
    def nbytes(self) -> int: ...

    @abstractmethod
    def numbers(self, key: Sequence[Vector], rows: int) -> Numbers:
        """Return the number of each row's key; -1 for a key with a NULL where that is no key."""

    @abstractmethod
    def vectors(self, numbers: Numbers) -> list[Vector]:
        """Return the fields of these keys, for a result. They are as they came but for -0.0."""

    @abstractmethod
    def keep(self, live: Numbers) -> Numbers:
        """Forget all other keys; return the new number by the old, -1 for a key that is gone (and for number -1).

        ``live`` ascends. The rest keeps its order.
        """

    def is_wasteful(self, used: int, spare: int | None = None) -> bool:
        """Tell whether it pays to ``keep``, given at most how many keys are in use."""
        return self.count > used + used // 2 + (_SPARE if spare is None else spare)

    def snapshot(self, numbers: Numbers) -> dict[str, Any]:
        """Return these keys as plain data."""
        return pack_columns(self.vectors(numbers), numbers.shape[0])

    def restore(self, data: dict[str, Any]) -> Numbers:
        """Return numbers for the keys that ``snapshot`` gave, in its order."""
        vectors, rows = unpack_columns(self.types, data)
        return self.numbers(vectors, rows)


class SingleKey(KeyTable):
    """A key of no fields: all rows have it."""

    count = 1
    nbytes = 0

    def numbers(self, key: Sequence[Vector], rows: int) -> Numbers:
        return np.zeros(rows, np.int64)

    def vectors(self, numbers: Numbers) -> list[Vector]:
        return []

    def keep(self, live: Numbers) -> Numbers:
        return np.array([0, -1])


class StringKeys(KeyTable):
    """One string: its number is its code, one higher where number 0 is NULL."""

    def __init__(self, types: Sequence[Type], *, null_is_key: bool) -> None:
        super().__init__(types, null_is_key=null_is_key)
        self._strings = StateStrings()
        self._shift = int(null_is_key)
        self.count = self._shift

    @property
    def nbytes(self) -> int:
        return self._strings.nbytes

    def numbers(self, key: Sequence[Vector], rows: int) -> Numbers:
        vector = key[0]
        assert vector.pool is not None
        numbers = self._strings.codes(vector.values, vector.pool, vector.valid).astype(np.int64)
        if self._shift:
            numbers += self._shift
        if vector.valid is not None:
            numbers[~vector.valid] = self._shift - 1
        self.count = len(self._strings.pool) + self._shift
        return numbers

    def vectors(self, numbers: Numbers) -> list[Vector]:
        codes = numbers - self._shift if self._shift else numbers
        valid = codes >= 0
        return [_string_vector(self._strings, np.maximum(codes, 0), valid)]

    def keep(self, live: Numbers) -> Numbers:
        strings = live[live >= self._shift]
        remap = np.full(self.count + 1, -1, np.int64)
        self._strings.renumber(strings - self._shift)
        self.count = strings.shape[0] + self._shift  # number 0 stays NULL's, in use or not
        remap[live] = np.arange(self.count - live.shape[0], self.count)
        return remap


class ColumnKeys(KeyTable):
    """Any fields, as int64 columns by number; where NULL is a key, one more column says which fields are NULL."""

    def __init__(self, types: Sequence[Type], *, null_is_key: bool) -> None:
        super().__init__(types, null_is_key=null_is_key)
        self._strings = [StateStrings() if t is Type.STRING else None for t in types]
        width = len(self.types) + null_is_key
        self._index = HashIndex(width)
        self._columns: tuple[Numbers, ...] = tuple(np.zeros(START, np.int64) for _ in range(width))
        one_integer = len(self.types) == 1 and self.types[0] not in (Type.FLOAT, Type.DOUBLE)
        self._direct = DirectTable() if one_integer else None

    @property
    def nbytes(self) -> int:
        strings = sum(s.nbytes for s in self._strings if s is not None)
        direct = 0 if self._direct is None else self._direct.nbytes
        return strings + direct + self._index.nbytes + sum(c.nbytes for c in self._columns)

    # -- numbers for keys ----------------------------------------------------------------------------------------------

    def numbers(self, key: Sequence[Vector], rows: int) -> Numbers:
        parts = [self._part(i, vector) for i, vector in enumerate(key)]
        valid = _all_valid(key)
        if valid is None:
            if self._direct is not None and self._direct.covers(parts[0]):
                return self._find_direct(self._direct, parts[0])
            return self._find([_NO_NULLS, *parts] if self.null_is_key else parts, rows)
        if self.null_is_key:
            return self._find([_null_bits(key, rows), *parts], rows)
        numbers = np.full(rows, -1, np.int64)
        at = np.flatnonzero(valid)
        numbers[at] = self._find([part.take(at) for part in parts], at.shape[0])
        return numbers

    def _part(self, i: int, vector: Vector) -> Numbers:
        """Return one field as integers, 0 where it is NULL."""
        strings = self._strings[i]
        if strings is not None:
            assert vector.pool is not None
            return strings.codes(vector.values, vector.pool, vector.valid).astype(np.int64)
        bits = bits_of(vector.values.astype(self.types[i].dtype, copy=False))
        return bits if vector.valid is None else np.where(vector.valid, bits, 0)

    def _find_direct(self, table: DirectTable, bits: Numbers) -> Numbers:
        numbers = table.get(bits)
        if numbers.min() < 0:
            missing = np.flatnonzero(numbers < 0)
            wanted = bits.take(missing)
            found = self._find([_NO_NULLS, wanted] if self.null_is_key else [wanted], missing.shape[0])
            numbers[missing] = found
            table.put(wanted, found)
        return numbers

    def _find(self, parts: Sequence[Numbers], rows: int) -> Numbers:
        """Look these keys up and add those that are new. A part of one row stands for all rows."""
        numbers = self._index.find(tuple(parts), self._columns)
        if numbers.shape[0] and numbers.min() < 0:
            missing = np.flatnonzero(numbers < 0)
            wanted = [p.take(missing) if p.shape[0] == rows else p.repeat(missing.shape[0]) for p in parts]
            first, inverse = distinct_rows(wanted)
            numbers[missing] = self._add(tuple([w.take(first) for w in wanted])).take(inverse)
        return numbers

    def _add(self, parts: tuple[Numbers, ...]) -> Numbers:
        more = parts[0].shape[0]
        begin, end = self.count, self.count + more
        if end >= self._columns[0].shape[0]:  # one row always stays unused: the index needs it
            self._columns = tuple([grown(c, longer(end + 1), 0) for c in self._columns])
        for column, part in zip(self._columns, parts, strict=True):
            column[begin:end] = part
        self.count = end
        fresh = np.arange(begin, end)
        if self._index.is_full(more):
            self._index.rebuild(tuple([c[:end] for c in self._columns]), np.arange(end), 0)
        else:
            self._index.insert(parts, fresh)
        return fresh

    # -- and back ------------------------------------------------------------------------------------------------------

    def vectors(self, numbers: Numbers) -> list[Vector]:
        out: list[Vector] = []
        nulls = self._columns[0].take(numbers) if self.null_is_key else None
        for i, (type, strings) in enumerate(zip(self.types, self._strings, strict=True)):
            bits = self._columns[i + self.null_is_key].take(numbers)
            valid = np.ones(numbers.shape[0], np.bool_) if nulls is None else (nulls >> i) & 1 == 0
            if strings is None:
                out.append(_vector(values_of(bits, type), valid, None))
            else:
                out.append(_string_vector(strings, bits, valid))
        return out

    def keep(self, live: Numbers) -> Numbers:
        count = live.shape[0]
        remap = np.full(self.count + 1, -1, np.int64)
        remap[live] = np.arange(count)
        columns = [c.take(live) for c in self._columns]
        for i, strings in enumerate(self._strings):
            if strings is not None:
                at = i + self.null_is_key
                used = np.unique(columns[at])
                used = used[used < len(strings.pool)]  # a NULL's 0 is in no pool when there was never a string
                columns[at] = strings.renumber(used).take(columns[at]).astype(np.int64)
        size = max(START, 2 * count + 1)
        self._columns = tuple([grown(c, size, 0) for c in columns])
        self.count = count
        self._index.rebuild(tuple(columns), np.arange(count), count)
        if self._direct is not None:
            self._direct = DirectTable()
        return remap


_NO_NULLS = np.zeros(1, np.int64)


def _all_valid(key: Sequence[Vector]) -> Mask | None:
    valid: Mask | None = None
    for vector in key:
        if vector.valid is not None:
            valid = vector.valid if valid is None else valid & vector.valid
    return valid


def _null_bits(key: Sequence[Vector], rows: int) -> Numbers:
    """Return a bit for each field of each row that is NULL."""
    bits = np.zeros(rows, np.int64)
    for i, vector in enumerate(key):
        if vector.valid is not None:
            bits |= (~vector.valid).astype(np.int64) << i
    return bits


def _vector(values: Array, valid: Mask, pool: StringPool | None) -> Vector:
    return Vector(values, None if valid.all() else valid, pool)


def _string_vector(strings: StateStrings, codes: Numbers, valid: Mask) -> Vector:
    ours, pool = strings.result(codes.astype(np.int32))
    return _vector(ours, valid, pool)
