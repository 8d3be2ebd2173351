"""Accumulators: a fixed number of cells for each group, into which rows are folded.

Functions share accumulators: ``avg(x)`` and ``sum(x)`` of doubles read one sum, and every function of an argument that
is never NULL reads the row count of the group. An accumulator has three verbs. ``add`` folds a column of a train in at
the slots of its rows. ``reduce`` puts the groups of each window together (rows sorted by window, ``starts`` where each
begins). ``merge`` adds such a result to other groups.

Numbers are added by kernels (``engine/operators/compiled/folding``). In numpy these are ``ufunc.at``, which takes
1.5 ns a row, as bincount does, but needs no sort and no table as long as there are groups.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from catalog.schema import Type
from engine.operators.compiled.folding import ALL, COUNT, FLOAT_MAX, FLOAT_MIN, MAX, MIN, SUM, Mask, extreme_at
from engine.operators.expressions import Expression, Vector
from engine.operators.state.columns import Array, Numbers
from engine.operators.windows.slotted import SlottedRows

Partial = list[Array]
"""The cells of some groups: one array for each cell, one row for each group."""


@dataclass(frozen=True, slots=True)
class AccumulatorCell:
    """One value of an accumulator in each group, or ``width`` values if that is above 0."""

    dtype: Any
    fill: Any
    width: int = 0

    def new(self, size: int) -> Array:
        return np.full((size, self.width) if self.width else size, self.fill, self.dtype)


class Accumulator(ABC):
    """Constant. The values are in the columns of ``Groups``."""

    cells: tuple[AccumulatorCell, ...] = ()
    logged = False  # True: keeps its values in a log, see logged.py

    def __init__(self, argument: Expression) -> None:
        self.argument = argument
        self.key = f"{type(self).__name__}({argument.key})"

    @abstractmethod
    def add(self, cells: Sequence[Array], rows: SlottedRows, column: Vector) -> None: ...

    @abstractmethod
    def reduce(self, partial: Partial, starts: Numbers) -> Partial: ...

    @abstractmethod
    def merge(self, cells: Sequence[Array], slots: Numbers, partial: Partial) -> None:
        """Add the partial to groups at distinct slots."""


class Reducible(Accumulator):
    """An accumulator that one ufunc for each cell defines."""

    ufuncs: tuple[Any, ...]

    def reduce(self, partial: Partial, starts: Numbers) -> Partial:
        return [u.reduceat(p, starts) for u, p in zip(self.ufuncs, partial, strict=True)]

    def merge(self, cells: Sequence[Array], slots: Numbers, partial: Partial) -> None:
        for ufunc, cell, part in zip(self.ufuncs, cells, partial, strict=True):
            cell[slots] = ufunc(cell[slots], part)


class Count(Reducible):
    """The number of values that are not NULL."""

    cells = (AccumulatorCell(np.int64, 0),)
    ufuncs = (np.add,)

    def add(self, cells: Sequence[Array], rows: SlottedRows, column: Vector) -> None:
        COUNT.run(cells[0], rows.slots, marks(column))


class FloatSum(Reducible):
    """The sum of floats, as a double."""

    cells = (AccumulatorCell(np.float64, 0.0),)
    ufuncs = (np.add,)

    def add(self, cells: Sequence[Array], rows: SlottedRows, column: Vector) -> None:
        SUM.run(cells[0], rows.slots, plain_column(column.values, np.float64), marks(column))


class IntSum(Reducible):
    """The sum of 32-bit integers: 2**31 of them fit into 64 bits."""

    cells = (AccumulatorCell(np.int64, 0),)
    ufuncs = (np.add,)

    def add(self, cells: Sequence[Array], rows: SlottedRows, column: Vector) -> None:
        SUM.run(cells[0], rows.slots, plain_column(column.values, np.int64), marks(column))


class BigintSum(Reducible):
    """The exact sum of 64-bit integers, as two halves of 32 bits: only the end shows whether the total fits."""

    cells = (AccumulatorCell(np.int64, 0), AccumulatorCell(np.int64, 0))
    ufuncs = (np.add, np.add)

    def add(self, cells: Sequence[Array], rows: SlottedRows, column: Vector) -> None:
        valid = marks(column)
        SUM.run(cells[0], rows.slots, column.values >> 32, valid)
        SUM.run(cells[1], rows.slots, column.values & 0xFFFFFFFF, valid)


class Max(Reducible):
    """The maximum of integers, timestamps and booleans."""

    ufuncs: tuple[Any, ...] = (np.maximum,)

    def __init__(self, argument: Expression) -> None:
        super().__init__(argument)
        self.cells = (AccumulatorCell(argument.type.dtype, _least(argument.type)),)

    def add(self, cells: Sequence[Array], rows: SlottedRows, column: Vector) -> None:
        MAX.run(cells[0], rows.slots, plain_column(column.values), marks(column))


class FloatMax(Max):
    """The maximum of floats. NaN is the highest value, as for ``np.maximum``, and 0.0 is above -0.0."""

    def add(self, cells: Sequence[Array], rows: SlottedRows, column: Vector) -> None:
        FLOAT_MAX.run(cells[0], rows.slots, plain_column(column.values), marks(column))

    def reduce(self, partial: Partial, starts: Numbers) -> Partial:
        return [extreme_of(np.maximum, partial[0], starts)]

    def merge(self, cells: Sequence[Array], slots: Numbers, partial: Partial) -> None:
        extreme_at(np.maximum, cells[0], slots, partial[0])


class Min(Reducible):
    """The minimum of integers, timestamps and booleans."""

    ufuncs: tuple[Any, ...] = (np.minimum,)

    def __init__(self, argument: Expression) -> None:
        super().__init__(argument)
        self.cells = (AccumulatorCell(argument.type.dtype, _greatest(argument.type)),)

    def add(self, cells: Sequence[Array], rows: SlottedRows, column: Vector) -> None:
        MIN.run(cells[0], rows.slots, plain_column(column.values), marks(column))


class FloatMin(Min):
    """The minimum of floats. NaN is the highest value, so it is the minimum only where there is no other value; -0.0 is
    below 0.0.

    The second cell counts NaNs. Refused: ``np.fmin``, which needs no count, because its ``at`` takes three times as
    long.
    """

    def __init__(self, argument: Expression) -> None:
        super().__init__(argument)
        self.cells = (*self.cells, AccumulatorCell(np.int64, 0))

    def add(self, cells: Sequence[Array], rows: SlottedRows, column: Vector) -> None:
        FLOAT_MIN.run(cells[0], cells[1], rows.slots, plain_column(column.values), marks(column))

    def reduce(self, partial: Partial, starts: Numbers) -> Partial:
        return [extreme_of(np.minimum, partial[0], starts), np.add.reduceat(partial[1], starts)]

    def merge(self, cells: Sequence[Array], slots: Numbers, partial: Partial) -> None:
        extreme_at(np.minimum, cells[0], slots, partial[0])
        cells[1][slots] += partial[1]


def plain_column(values: Array, dtype: Any = None) -> Array:
    """Return values as kernels take them: of this type, and in one piece."""
    return np.ascontiguousarray(values, dtype)


def marks(column: Vector) -> Mask:
    """Return which rows have a value, as kernels take it."""
    return ALL if column.valid is None else np.ascontiguousarray(column.valid)


def extreme_of(ufunc: Any, values: Array, starts: Numbers) -> Array:
    """Do ``ufunc.reduceat`` in the same way."""
    out: Array = ufunc.reduceat(values, starts)
    zero = out == 0
    if np.count_nonzero(zero):
        wins, loses = (0.0, -0.0) if ufunc is np.maximum else (-0.0, 0.0)
        winner = (values == 0) & (np.signbit(values) == np.signbit(wins))
        out[zero] = np.where(np.logical_or.reduceat(winner, starts)[zero], wins, loses)
    return out


class Moments(Accumulator):
    """Count, mean and sum of squared deviations, merged by Chan's formula: large squares do not cancel.

    Each mean is computed from the differences to one value of its group. So the mean of equal values is that value, and
    their variance is exactly 0, however they are divided into trains and panes.
    """

    cells: tuple[AccumulatorCell, ...] = (
        AccumulatorCell(np.int64, 0),
        AccumulatorCell(np.float64, 0.0),
        AccumulatorCell(np.float64, 0.0),
    )

    def add(self, cells: Sequence[Array], rows: SlottedRows, column: Vector) -> None:
        rows, values = rows.where(column.valid, column.values)
        unique, local = rows.distinct
        size = unique.shape[0]
        values = values.astype(np.float64, copy=False)
        counts = np.bincount(local, minlength=size)
        some = np.empty(size)
        some[local] = values  # any value of each group
        means = some + np.bincount(local, values - some.take(local), size) / counts
        deviations = values - means.take(local)
        self.merge(cells, unique, [counts, means, np.bincount(local, deviations * deviations, size)])

    def reduce(self, partial: Partial, starts: Numbers) -> Partial:
        counts, means, squares = partial
        size = counts.shape[0]
        total = np.add.reduceat(counts, starts)
        filled = np.minimum.reduceat(np.where(counts > 0, np.arange(size), size - 1), starts)
        some = means.take(filled)  # the mean of the first part that has values
        segment = np.repeat(np.arange(starts.shape[0]), np.diff(starts, append=size))
        differences = np.where(counts > 0, means - some.take(segment), 0.0)
        mean = np.where(total > 0, some + np.add.reduceat(counts * differences, starts) / np.maximum(total, 1), 0.0)
        deviations = np.where(counts > 0, means - mean.take(segment), 0.0)
        return [total, mean, np.add.reduceat(squares + counts * deviations * deviations, starts)]

    def merge(self, cells: Sequence[Array], slots: Numbers, partial: Partial) -> None:
        counts, means, squares = [c[slots] for c in cells]
        more, more_means, more_squares = partial
        total = counts + more
        delta = np.where(more > 0, more_means - means, 0.0)
        share = more / np.maximum(total, 1)
        cells[0][slots] = total
        cells[1][slots] = np.where(counts > 0, means + delta * share, more_means)
        cells[2][slots] = squares + more_squares + np.where(counts > 0, delta * delta * counts * share, 0.0)


class SkewedMoments(Moments):
    """Moments, and the sum of cubed deviations: how far the values lean to one side. Merged by Pebay's formula."""

    cells = (*Moments.cells, AccumulatorCell(np.float64, 0.0))

    def add(self, cells: Sequence[Array], rows: SlottedRows, column: Vector) -> None:
        rows, values = rows.where(column.valid, column.values)
        unique, local = rows.distinct
        size = unique.shape[0]
        values = values.astype(np.float64, copy=False)
        counts = np.bincount(local, minlength=size)
        some = np.empty(size)
        some[local] = values
        means = some + np.bincount(local, values - some.take(local), size) / counts
        deviations = values - means.take(local)
        squares = deviations * deviations
        powers = [np.bincount(local, power, size) for power in (squares, squares * deviations)]
        self.merge(cells, unique, [counts, means, *powers])

    def reduce(self, partial: Partial, starts: Numbers) -> Partial:
        counts, means, squares, cubes = partial
        total, mean, square = super().reduce([counts, means, squares], starts)
        segment = np.repeat(np.arange(starts.shape[0]), np.diff(starts, append=counts.shape[0]))
        deviations = np.where(counts > 0, means - mean.take(segment), 0.0)
        cube = np.add.reduceat(cubes + deviations * (3.0 * squares + counts * deviations * deviations), starts)
        return [total, mean, square, cube]

    def merge(self, cells: Sequence[Array], slots: Numbers, partial: Partial) -> None:
        counts, means, squares, cubes = [c[slots] for c in cells]
        more, more_means, more_squares, more_cubes = partial
        total = np.maximum(counts + more, 1)
        delta = np.where((more > 0) & (counts > 0), more_means - means, 0.0)
        apart = delta**3 * counts * more * (counts - more) / (total * total)
        leaning = 3.0 * delta * (counts * more_squares - more * squares) / total
        super().merge(cells[:3], slots, partial[:3])
        cells[3][slots] = cubes + more_cubes + apart + leaning


class End(Accumulator):
    """first and last: the value of the lowest (highest) order; of equal orders the first (last) to arrive.

    Cells: value, whether there is one, whether it is not NULL, its order.
    """

    def __init__(self, argument: Expression, *, last: bool, ignore_nulls: bool) -> None:
        super().__init__(argument)
        self.last = last
        self.ignore_nulls = ignore_nulls
        self.key = f"{'last' if last else 'first'}({argument.key}, {ignore_nulls})"
        kind = argument.type
        value = AccumulatorCell(object, None) if kind is Type.STRING else AccumulatorCell(kind.dtype, 0)
        self.cells = (
            value,
            AccumulatorCell(np.bool_, False),
            AccumulatorCell(np.bool_, False),
            AccumulatorCell(np.int64, 0),
        )

    def add(self, cells: Sequence[Array], rows: SlottedRows, column: Vector) -> None:
        valid, values = column.valid, column.values
        if valid is not None and self.ignore_nulls:
            rows, values = rows.where(valid, values)
            valid = None
        slots, at = rows.ends(last=self.last)
        values = values.take(at)
        if column.pool is not None:
            values = decoded(Vector(values, None if valid is None else valid.take(at), column.pool))
        there = np.ones(slots.shape[0], np.bool_)
        self.merge(cells, slots, [values, there, there if valid is None else valid.take(at), rows.order.take(at)])

    def merge(self, cells: Sequence[Array], slots: Numbers, partial: Partial) -> None:
        old, new = cells[3].take(slots), partial[3]
        wins = new >= old if self.last else new < old
        better = np.flatnonzero((wins | ~cells[1].take(slots)) & partial[1])
        slots = slots.take(better)
        for cell, part in zip(cells, partial, strict=True):
            cell[slots] = part.take(better)

    def reduce(self, partial: Partial, starts: Numbers) -> Partial:
        _, there, _, order = partial
        count = order.shape[0]
        segment = np.repeat(np.arange(starts.shape[0]), np.diff(starts, append=count))
        # Groups without a value go to the other end. lexsort is stable: equal orders stay in the order of arrival.
        ranked = np.lexsort((order, there if self.last else ~there, segment))
        at = ranked.take(np.append(starts[1:], count) - 1 if self.last else starts)
        return [p.take(at) for p in partial]


class StringExtreme(Accumulator):
    """min and max of strings, in the order of code points, which is that of their UTF-8 bytes."""

    cells = (AccumulatorCell(object, None),)

    def __init__(self, argument: Expression, *, largest: bool) -> None:
        super().__init__(argument)
        self.key = f"{'max' if largest else 'min'}({argument.key})"
        self.largest = largest

    def add(self, cells: Sequence[Array], rows: SlottedRows, column: Vector) -> None:
        assert column.pool is not None
        rows, codes = rows.where(column.valid, column.values)
        if not codes.shape[0]:
            return
        used, position = np.unique(codes, return_inverse=True)
        texts = np.array([column.pool.values[c] for c in used.tolist()], object)
        ranking = np.argsort(texts)
        rank = np.empty_like(ranking)
        rank[ranking] = np.arange(ranking.shape[0])
        unique, local = rows.distinct
        best = np.full(unique.shape[0], -1 if self.largest else rank.shape[0])
        (np.maximum if self.largest else np.minimum).at(best, local, rank.take(position))
        self.merge(cells, unique, [texts.take(ranking.take(best))])

    def merge(self, cells: Sequence[Array], slots: Numbers, partial: Partial) -> None:
        pairs = zip(cells[0].take(slots).tolist(), partial[0].tolist(), strict=True)
        cells[0][slots] = object_array([self._better(a, b) for a, b in pairs])

    def reduce(self, partial: Partial, starts: Numbers) -> Partial:
        texts, ends = partial[0].tolist(), np.append(starts[1:], partial[0].shape[0]).tolist()
        choose = max if self.largest else min
        parts = [[t for t in texts[a:b] if t is not None] for a, b in zip(starts.tolist(), ends, strict=True)]
        return [object_array([choose(p) if p else None for p in parts])]

    def _better(self, a: str | None, b: str | None) -> str | None:
        if a is None or b is None:
            return b if a is None else a
        return max(a, b) if self.largest else min(a, b)


def object_array(values: Sequence[Any]) -> Array:
    out = np.empty(len(values), object)
    out[:] = values
    return out


def decoded(column: Vector) -> Array:
    """Return a string column as Python strings, None for NULL. State must not hold on to the pool of a stream."""
    assert column.pool is not None
    if not len(column.pool):
        return np.full(column.values.shape[0], None, object)
    texts = column.pool.decode(column.values)
    if column.valid is not None:
        texts[~column.valid] = None
    return texts


def _least(type: Type) -> Any:
    if type in (Type.FLOAT, Type.DOUBLE):
        return -np.inf
    return False if type is Type.BOOLEAN else _integers(type).min


def _greatest(type: Type) -> Any:
    if type in (Type.FLOAT, Type.DOUBLE):
        return np.inf
    return True if type is Type.BOOLEAN else _integers(type).max


def _integers(type: Type) -> Any:
    return np.iinfo(np.int32 if type is Type.INT else np.int64)
