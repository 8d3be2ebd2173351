"""One test for many filters of a stream: a train goes only to those that have a tuple of it to keep.

Thousands of rules on one stream compare the same columns with constants (``device = 17 and heat > 80``). To hand each
train to each of them costs as much as there are rules. Here the constants of all filters are one sorted table for each
column, so a train costs one lookup, and then what it matches:

- Where a filter can be true only for one value of a column, its queue gets the tuples with that value.
- Where it can be true only above or below a constant, its queue gets the whole train if the least or the greatest
  value passes. To gather tuples here would cost what the filter itself costs.
- Any other filter, and any box that is no filter, gets every train.

The filter runs all the same, on fewer tuples: the lookup may let a tuple pass that it drops, and never the other way.
``skipped`` counts what a filter was spared; its readings count these tuples as taken in and filtered. Expressions that
may count an error are left out, because the error of a tuple that is not looked at would be missing.

Refused: fewer than ``FEWEST`` filters of one column, for which the lookup costs more than it saves.

Owner: the ingress, under its lock. Any thread reads the counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from catalog.schema import Schema, Type
from engine.operators.expressions import ColumnTest, Expression
from storage.strings import StringPool
from storage.train import NO_WATERMARK, Array, Mask, Train

FEWEST = 16
WIDEST_TABLE = 1 << 16
"""Integers whose least and greatest constant lie no further apart have a table with a place for each value."""


class IndexedFilter(NamedTuple):
    arc: int  # that leads to it
    predicate: Expression
    timed: bool  # the arc carries event time


class Part(NamedTuple):
    """A train for some arcs."""

    arcs: tuple[int, ...]
    train: Train


class ConstantIndex:
    """The filters behind one stream that are looked up."""

    def __init__(self, schema: Schema, filters: Sequence[IndexedFilter]) -> None:
        self.arcs = tuple([f.arc for f in filters])
        self._tuples = 0
        self._given = np.zeros(len(filters), np.int64)
        self._timed = [f.timed for f in filters]
        equal: dict[int, list[tuple[int, ColumnTest]]] = defaultdict(list)
        limits: dict[tuple[int, Any, bool], list[tuple[int, ColumnTest]]] = defaultdict(list)
        for slot, f in enumerate(filters):
            test = best_test(f.predicate)
            assert test is not None
            at = schema.index(test.field)
            if is_equality(test):
                equal[at].append((slot, test))
            else:
                limits[at, test.ufunc, test.flip].append((slot, test))
        self._equal = [EqualConstants(at, schema.fields[at].type, tests) for at, tests in equal.items()]
        self._limits = [LimitConstants(*key, tests) for key, tests in limits.items()]

    def skipped(self, slot: int) -> int:
        """Return how many tuples the filter was spared. Any thread."""
        return max(0, self._tuples - int(self._given[slot]))

    def split(self, train: Train) -> list[Part]:
        """Return what each arc gets of a train."""
        if not train.count:
            return [Part(self.arcs, train)]
        self._tuples += train.count
        parts: list[Part] = []
        whole = [limits.passing(train) for limits in self._limits]
        if slots := [slot for found in whole for slot in found]:
            self._given[slots] += train.count
            parts.append(Part(tuple([self.arcs[slot] for slot in slots]), train))
        for constants in self._equal:
            for found, part in constants.matching(train):
                self._given[found] += part.count
                parts.append(Part(tuple([self.arcs[slot] for slot in found]), part))
        if train.watermark_ns != NO_WATERMARK and (silent := self._without(parts)):
            parts.append(Part(silent, Train.empty(train.schema, train.watermark_ns)))
        return parts

    def _without(self, parts: Iterable[Part]) -> tuple[int, ...]:
        """Return the arcs that carry event time and get nothing of a train: they need its watermark."""
        got = {arc for part in parts for arc in part.arcs}
        return tuple([arc for arc, timed in zip(self.arcs, self._timed) if timed and arc not in got])


class EqualConstants:
    """Filters that keep one value of a column each."""

    def __init__(self, column: int, kind: Type, tests: Sequence[tuple[int, ColumnTest]]) -> None:
        self._column = column
        self._slots: list[list[int]] = []  # by constant
        by_value: dict[Any, int] = {}
        for slot, test in tests:
            value = test.value if kind is Type.STRING else test.value.item()
            if value not in by_value:
                by_value[value] = len(self._slots)
                self._slots.append([])
            self._slots[by_value[value]].append(slot)
        self._by_value = by_value
        self._table: Array | None = None  # by value less the least constant; -1 for no constant
        if kind is not Type.STRING:
            values = np.array(list(by_value), tests[0][1].value.dtype)
            self._order = np.argsort(values, kind="stable").astype(np.int32)
            self._sorted = values[self._order]
            is_narrow = values.dtype.kind == "i" and int(self._sorted[-1]) - int(self._sorted[0]) < WIDEST_TABLE
            if is_narrow:
                self._least = int(self._sorted[0])
                self._table = np.full(int(self._sorted[-1]) - self._least + 1, -1, np.int32)
                self._table[self._sorted - self._least] = self._order

    def matching(self, train: Train) -> list[tuple[list[int], Train]]:
        """Return the tuples of each constant that the train has, in their order."""
        found = self._numbers(train)
        flags = train.null_mask(self._column)
        rows = np.flatnonzero(found >= 0 if flags is None else (found >= 0) & flags)
        if not rows.shape[0]:
            return []
        numbers = found.take(rows)
        if rows.shape[0] == 1 or (numbers == numbers[0]).all():
            return [(self._slots[numbers[0]], train if rows.shape[0] == train.count else train.take(rows))]
        order = numbers.argsort(kind="stable")
        numbers = numbers.take(order)
        gathered = train.take(rows.take(order))
        ends = np.flatnonzero(numbers[1:] != numbers[:-1]) + 1
        bounds = [0, *ends.tolist(), rows.shape[0]]
        return [
            (self._slots[number], gathered.slice(first, last))
            for number, first, last in zip(numbers[bounds[:-1]].tolist(), bounds, bounds[1:])
        ]

    def _numbers(self, train: Train) -> Array:
        """Return for each tuple the number of its constant, -1 for none."""
        column, pool = train.columns[self._column], train.pools[self._column]
        if pool is not None:
            return self._of_pool(pool).take(column) if len(pool) else np.full(train.count, -1, np.int32)
        if self._table is not None:
            # A difference that overflows, or is negative, is a large unsigned number: it lies outside of the table.
            away = column.astype(np.int64, copy=False) - self._least
            inside = away.view(np.uint64) < self._table.shape[0]
            return np.where(inside, self._table.take(away, mode="clip"), np.int32(-1))
        places = np.searchsorted(self._sorted, column)
        np.minimum(places, self._sorted.shape[0] - 1, out=places)
        return np.where(self._sorted.take(places) == column, self._order.take(places), np.int32(-1))

    def _of_pool(self, pool: StringPool) -> Array:
        """Return the numbers of the entries of a pool, computed once for each entry."""
        find = self._by_value.get
        return pool.lookup(self, lambda texts: np.array([find(text, -1) for text in texts], np.int32))


class LimitConstants:
    """Filters that compare a column with a constant each, all by the same comparison."""

    def __init__(self, column: int, ufunc: Any, flip: bool, tests: Sequence[tuple[int, ColumnTest]]) -> None:
        self._column = column
        self._ufunc = ufunc
        self._flip = flip
        self._slots = [slot for slot, _ in tests]
        self._values = np.array([test.value for _, test in tests])

    def passing(self, train: Train) -> list[int]:
        """Return the filters that keep a tuple of the train: the least, the greatest or a NaN passes."""
        column = train.columns[self._column]
        flags = train.null_mask(self._column)
        if flags is not None:
            column = column[flags]
        passed: Mask | None = None
        for value in _extremes(column):
            here = self._ufunc(value, self._values)
            if self._flip:
                here = ~here
            passed = here if passed is None else passed | here
        if passed is None:
            return []
        return self._slots if passed.all() else [self._slots[i] for i in np.flatnonzero(passed).tolist()]


def _extremes(column: Array) -> list[Any]:
    """Return the least and the greatest value, and NaN if there is one."""
    if not column.shape[0]:
        return []
    extremes = [column.min(), column.max()]
    if column.dtype.kind == "f" and extremes[0] != extremes[0]:
        numbers = column[column == column]
        return [extremes[0], *([numbers.min(), numbers.max()] if numbers.shape[0] else [])]
    return extremes


def is_equality(test: ColumnTest) -> bool:
    return test.ufunc is np.equal and not test.flip


def best_test(predicate: Expression) -> ColumnTest | None:
    """Return the comparison by which a filter is looked up: an equality if there is one. None: it is not."""
    usable = [test for test in predicate.needs if isinstance(test.value, str) or test.value.dtype.kind in "if"]
    return next(filter(is_equality, usable), usable[0] if usable else None)


def are_many(found: Sequence[object]) -> bool:
    return len(found) >= FEWEST


def indexable(filters: Iterable[IndexedFilter]) -> list[IndexedFilter]:
    """Choose the filters that are looked up: those of columns that enough filters compare in the same way."""
    groups: dict[tuple[str, Any, bool], list[IndexedFilter]] = defaultdict(list)
    for f in filters:
        if (test := best_test(f.predicate)) is not None:
            groups[test.field, test.ufunc, test.flip].append(f)
    return [f for group in groups.values() if are_many(group) for f in group]
