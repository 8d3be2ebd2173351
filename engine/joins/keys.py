"""Keys as small numbers, exactly: equal keys have one number, on both inputs of a box and in every train.

A key is any number of columns. Each part becomes an int64 (integers as they are, floats by their bits with -0.0 as
0.0 and one NaN, strings by their code among the box's own); one hash index finds the number of the whole. A key of
one string needs no index: its number is its code. NULL: in a join no key with a NULL has a number (-1), elsewhere
NULLs are alike, as in GROUP BY.

Numbers are given out upwards and only ``keep`` takes them back, all that are out of use at once, keeping the order of
the rest: sorted columns of numbers stay sorted. The owner calls it when more numbers were given out than it has rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from catalog.schema import Type
from engine.expressions import Vector
from engine.joins.strings import HeldStrings
from engine.windows.index import HashIndex
from storage.strings import StringPool

Numbers = npt.NDArray[np.int64]

_NAN_BITS = np.array([np.nan]).view(np.int64)[0]
_SPARE = 4_096  # numbers out of use that may stay before it pays to take them back


class KeyTable:
    """``types`` are those in which the parts are compared. Owned by the worker that runs the box."""

    __slots__ = ("_columns", "_direct", "_index", "_nulls_alike", "_strings", "_types", "count")

    def __init__(self, types: Sequence[Type], *, nulls_alike: bool) -> None:
        self._types = tuple(types)
        self._nulls_alike = nulls_alike
        self._strings = [HeldStrings() if t is Type.STRING else None for t in types]
        self._direct = self._types == (Type.STRING,)
        width = len(self._types) + nulls_alike  # one column more says which parts are NULL
        self._index = HashIndex(max(1, width))
        self._columns: tuple[Numbers, ...] = tuple(np.zeros(64, np.int64) for _ in range(max(1, width)))
        self.count = 0  # numbers given out

    @property
    def nbytes(self) -> int:
        strings = sum(s.nbytes for s in self._strings if s is not None)
        return strings + self._index.nbytes + sum(c.nbytes for c in self._columns)

    def numbers(self, key: Sequence[Vector], count: int) -> Numbers:
        """The number of each row's key; -1 for a key with a NULL where those match nothing."""
        if not self._types:
            self.count = 1
            return np.zeros(count, np.int64)
        if self._direct:
            return self._direct_numbers(key[0])
        valid = _all_valid(key)
        parts = [self._part(i, vector) for i, vector in enumerate(key)]
        if self._nulls_alike:
            parts.append(_null_bits(key, count))
            return self._find(parts)
        if valid is None:
            return self._find(parts)
        numbers = np.full(count, -1, np.int64)
        at = np.flatnonzero(valid)
        numbers[at] = self._find([part.take(at) for part in parts])
        return numbers

    def _direct_numbers(self, vector: Vector) -> Numbers:
        strings = self._strings[0]
        assert strings is not None and vector.pool is not None
        numbers = strings.codes(vector.values, vector.pool).astype(np.int64)
        shift = int(self._nulls_alike)  # number 0 is NULL where NULLs are alike
        numbers += shift
        if vector.valid is not None:
            numbers[~vector.valid] = shift - 1
        self.count = len(strings.pool) + shift
        return numbers

    def _part(self, i: int, vector: Vector) -> Numbers:
        strings, values = self._strings[i], vector.values
        if strings is not None:
            assert vector.pool is not None
            part = strings.codes(values, vector.pool).astype(np.int64)
        elif self._types[i] in (Type.FLOAT, Type.DOUBLE):
            wide = values.astype(self._types[i].dtype).astype(np.float64) + 0.0  # -0.0 + 0.0 is 0.0
            part = wide.view(np.int64)
            part[np.isnan(wide)] = _NAN_BITS
        else:
            part = values.astype(np.int64)
        if vector.valid is not None and self._nulls_alike:
            part[~vector.valid] = 0
        return part

    def _find(self, parts: Sequence[Numbers]) -> Numbers:
        probes = tuple(parts)
        numbers = self._index.find(probes, self._columns)
        missing = np.flatnonzero(numbers < 0)
        if missing.shape[0]:
            wanted = tuple(p.take(missing) for p in probes)
            first, inverse = _distinct(wanted)
            numbers[missing] = self._add(tuple(w.take(first) for w in wanted)).take(inverse)
        return numbers

    def _add(self, probes: tuple[Numbers, ...]) -> Numbers:
        more = probes[0].shape[0]
        begin, end = self.count, self.count + more
        if end >= self._columns[0].shape[0]:  # one row always stays unused: the index needs it
            self._columns = tuple(_lengthened(c, 2 * (end + 1)) for c in self._columns)
        for column, probe in zip(self._columns, probes, strict=True):
            column[begin:end] = probe
        self.count = end
        fresh = np.arange(begin, end)
        if self._index.is_full(more):
            every = np.arange(end)
            self._index.rebuild(tuple(c[:end] for c in self._columns), every, end)
        else:
            self._index.insert(probes, fresh)
        return fresh

    def vectors(self, numbers: Numbers) -> list[Vector]:
        """The parts of these keys, as they were but for -0.0; what ``numbers`` takes back."""
        if self._direct:
            strings = self._strings[0]
            assert strings is not None
            codes = numbers - int(self._nulls_alike)
            return [_vector(np.maximum(codes, 0).astype(np.int32), codes >= 0, strings.pool)]
        vectors = []
        for i, type in enumerate(self._types):
            part = self._columns[i].take(numbers)
            strings = self._strings[i]
            values = part.view(np.float64) if type in (Type.FLOAT, Type.DOUBLE) else part
            there = np.ones(numbers.shape[0], np.bool_)
            if self._nulls_alike:
                there = (self._columns[-1].take(numbers) >> i) & 1 == 0
            vectors.append(_vector(values.astype(type.dtype), there, None if strings is None else strings.pool))
        return vectors

    # -- forgetting --------------------------------------------------------------------------------------------------

    def is_wasteful(self, used: int) -> bool:
        """Whether it pays to take numbers back, given at most how many are in use."""
        return self.count > 2 * used + _SPARE

    def keep(self, numbers: Numbers) -> None:
        """Only these stay (ascending); ``remap`` says what they are called from now on."""
        if self._direct:
            strings = self._strings[0]
            assert strings is not None
            shift = int(self._nulls_alike)
            strings.renumber(numbers[numbers >= shift] - shift)
            self.count = len(strings.pool) + shift
            return
        count = numbers.shape[0]
        size = max(64, 2 * count + 1)
        self._columns = tuple(_lengthened(c.take(numbers), size) for c in self._columns)
        for i, strings in enumerate(self._strings):
            if strings is not None:
                column = self._columns[i]
                used = np.unique(column[:count])
                used = used[used < len(strings.pool)]  # a NULL's 0 is in no pool when there was never a string
                column[:count] = strings.renumber(used).take(column[:count])
        self.count = count
        self._index.rebuild(tuple(c[:count] for c in self._columns), np.arange(count), count)

    def remap(self, kept: Numbers, numbers: Numbers) -> Numbers:
        """Numbers (each of them kept, or -1) as they are after ``keep(kept)``."""
        if self._direct and self._nulls_alike:
            with_null = kept if kept.shape[0] and kept[0] == 0 else np.concatenate([[0], kept])
            return np.searchsorted(with_null, numbers)
        out = np.searchsorted(kept, numbers)
        out[numbers < 0] = -1
        return out


def _vector(values: npt.NDArray[np.generic], there: npt.NDArray[np.bool_], pool: StringPool | None) -> Vector:
    return Vector(values, None if there.all() else there, pool)


def _all_valid(key: Sequence[Vector]) -> npt.NDArray[np.bool_] | None:
    valid: npt.NDArray[np.bool_] | None = None
    for vector in key:
        if vector.valid is not None:
            valid = vector.valid if valid is None else valid & vector.valid
    return valid


def _null_bits(key: Sequence[Vector], count: int) -> Numbers:
    bits = np.zeros(count, np.int64)
    for i, vector in enumerate(key):
        if vector.valid is not None:
            bits |= (~vector.valid).astype(np.int64) << i
    return bits


def _distinct(columns: tuple[Numbers, ...]) -> tuple[Numbers, Numbers]:
    """One position for each distinct row, in order of first sight, and for each row which of them it is."""
    if len(columns) == 1:
        _, first, inverse = np.unique(columns[0], return_index=True, return_inverse=True)
    else:
        order = np.lexsort(columns)
        differs = np.zeros(order.shape[0], np.bool_)
        for column in columns:
            sorted_column = column.take(order)
            differs[1:] |= sorted_column[1:] != sorted_column[:-1]
        group = np.cumsum(differs)
        inverse = np.empty_like(group)
        inverse[order] = group
        first = order[np.concatenate([[0], np.flatnonzero(differs)])]
    by_sight = np.argsort(first)
    rank = np.empty_like(by_sight)
    rank[by_sight] = np.arange(by_sight.shape[0])
    return first.take(by_sight), rank.take(inverse)


def _lengthened(column: Numbers, size: int) -> Numbers:
    out = np.zeros(size, np.int64)
    out[: column.shape[0]] = column
    return out
