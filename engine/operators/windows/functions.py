"""The aggregate functions: which accumulators each one reads, and how it computes its result when a window closes.

As in Spark: NULL arguments are skipped (by first and last only on request). A function of no values is NULL, and a
count of none is 0. The sum of integers is a bigint; if it overflows it is NULL, and counted. The sample deviation of
one value is NULL. NaN is above all numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from catalog.schema import Type
from engine.operators.expressions import Expression, Vector
from engine.operators.expressions.aggregates.split import AggregateCall
from engine.operators.expressions.kernels.text_values import WRITERS
from engine.operators.state.columns import Array, Numbers
from engine.operators.state.distinct import values_of
from engine.operators.windows.accumulators import (
    Accumulator,
    BigintSum,
    Count,
    End,
    FloatMax,
    FloatMin,
    FloatSum,
    IntSum,
    Max,
    Min,
    Moments,
    Partial,
    StringExtreme,
)
from engine.operators.windows.logged import (
    Distinct,
    DistinctSketch,
    LoggedValues,
    Ordered,
    estimate,
    nearest_rank,
    precision_for,
    quantile,
    unique_entries,
)
from storage.strings import StringPool

Finish = Callable[[list[Partial], Numbers], tuple[Vector, int]]
"""Compute the result from the partials and the row counts of the windows; with how many overflows there were."""


@dataclass(frozen=True, slots=True)
class WindowFunction:
    """A call of an aggregate function, compiled."""

    accumulators: tuple[Accumulator, ...]
    finish: Finish


def function_of(call: AggregateCall) -> WindowFunction:
    """Compile a call of an aggregate function."""
    argument = call.argument
    if argument is None:
        return WindowFunction((), lambda partials, rows: (Vector(rows), 0))
    if call.distinct:
        return _distinct(call, argument)
    return _MAKERS[call.function](call, argument)


# -- counts ----------------------------------------------------------------------------------------------------------


def _counted(argument: Expression) -> tuple[Accumulator, ...]:
    """Return the accumulator that counts the values of an argument; none if the argument is never NULL."""
    return (Count(argument),) if argument.nullable else ()


def _count_of(partials: list[Partial], at: int, rows: Numbers) -> Numbers:
    return partials[at][0] if len(partials) > at else rows


def _where(values: Array, present: Array) -> Vector:
    return Vector(values, None if present.all() else present)


def _count(call: AggregateCall, argument: Expression) -> WindowFunction:
    return WindowFunction((Count(argument),), lambda partials, rows: (Vector(partials[0][0]), 0))


# -- sums --------------------------------------------------------------------------------------------------------------


def _sum(call: AggregateCall, argument: Expression) -> WindowFunction:
    if argument.type is Type.BIGINT:
        return WindowFunction((BigintSum(argument), *_counted(argument)), _bigint_total)
    accumulator = IntSum(argument) if argument.type is Type.INT else FloatSum(argument)
    return WindowFunction(
        (accumulator, *_counted(argument)), lambda p, rows: (_where(p[0][0], _count_of(p, 1, rows) > 0), 0)
    )


def _bigint_total(partials: list[Partial], rows: Numbers) -> tuple[Vector, int]:
    total, fits = joined_halves(*partials[0])
    present = _count_of(partials, 1, rows) > 0
    return _where(total, present & fits), int(np.count_nonzero(present & ~fits))


def joined_halves(high: Numbers, low: Numbers) -> tuple[Numbers, Array]:
    """Return the 64-bit total of the sums of upper and lower halves, and where it does not overflow."""
    high = high + (low >> 32)
    return (high << 32) | (low & 0xFFFFFFFF), (high >= -(2**31)) & (high < 2**31)


def _avg(call: AggregateCall, argument: Expression) -> WindowFunction:
    def finish(partials: list[Partial], rows: Numbers) -> tuple[Vector, int]:
        counts = _count_of(partials, 1, rows)
        return _where(partials[0][0] / np.maximum(counts, 1), counts > 0), 0

    return WindowFunction((FloatSum(argument), *_counted(argument)), finish)


def _spread(call: AggregateCall, argument: Expression) -> WindowFunction:
    sample = call.function.endswith("samp")
    root = call.function.startswith("stddev")

    def finish(partials: list[Partial], rows: Numbers) -> tuple[Vector, int]:
        counts, _, squares = partials[0]
        value = squares / np.maximum(counts - sample, 1)
        return _where(np.sqrt(value) if root else value, counts > int(sample)), 0

    return WindowFunction((Moments(argument),), finish)


# -- minimum, maximum, first, last -------------------------------------------------------------------------------------


def _extreme(call: AggregateCall, argument: Expression) -> WindowFunction:
    largest = call.function in ("max", "bool_or")
    if argument.type is Type.STRING:
        return WindowFunction((StringExtreme(argument, largest=largest),), lambda p, rows: (_texts(p[0][0]), 0))
    is_float = argument.type in (Type.FLOAT, Type.DOUBLE)
    if largest or not is_float:
        accumulator = (FloatMax if is_float else Max)(argument) if largest else Min(argument)
        return WindowFunction(
            (accumulator, *_counted(argument)), lambda p, rows: (_where(p[0][0], _count_of(p, 1, rows) > 0), 0)
        )

    def finish(partials: list[Partial], rows: Numbers) -> tuple[Vector, int]:
        counts = _count_of(partials, 1, rows)
        values, nans = partials[0]
        return _where(np.where(nans == counts, np.nan, values).astype(values.dtype), counts > 0), 0

    return WindowFunction((FloatMin(argument), *_counted(argument)), finish)


def _end(call: AggregateCall, argument: Expression) -> WindowFunction:
    accumulator = End(argument, last=call.function == "last", ignore_nulls=bool(call.parameters[0]))

    def finish(partials: list[Partial], rows: Numbers) -> tuple[Vector, int]:
        values, there, valid, _ = partials[0]
        present = there & valid
        if values.dtype == object:
            values = values.copy()
            values[~present] = None
            return _texts(values), 0
        return _where(values, present), 0

    return WindowFunction((accumulator,), finish)


# -- all values --------------------------------------------------------------------------------------------------------


def _percentile(call: AggregateCall, argument: Expression) -> WindowFunction:
    share = 0.5 if call.function == "median" else call.parameters[0]

    def finish(partials: list[Partial], rows: Numbers) -> tuple[Vector, int]:
        values, counts = quantile(partials[0][0], partials[0][1], rows.shape[0], share)
        return _where(values, counts > 0), 0

    return WindowFunction((LoggedValues(argument),), finish)


def _percentile_approx(call: AggregateCall, argument: Expression) -> WindowFunction:
    """Compute the exact percentile. It is a value of the argument, as in Spark."""

    def finish(partials: list[Partial], rows: Numbers) -> tuple[Vector, int]:
        values, counts = nearest_rank(partials[0][0], partials[0][1], rows.shape[0], call.parameters[0])
        return _where(values.astype(argument.type.dtype), counts > 0), 0

    return WindowFunction((LoggedValues(argument),), finish)


def _approx_distinct(call: AggregateCall, argument: Expression) -> WindowFunction:
    precision = precision_for(float(call.parameters[0]) if call.parameters else 0.05)
    return WindowFunction(
        (DistinctSketch(argument, precision),), lambda p, rows: (Vector(estimate(p[0][0], precision)), 0)
    )


def _distinct(call: AggregateCall, argument: Expression) -> WindowFunction:
    def finish(partials: list[Partial], rows: Numbers) -> tuple[Vector, int]:
        segments, values = unique_entries(*partials[0])
        counts = np.bincount(segments, minlength=rows.shape[0])
        if call.function == "count":
            return Vector(counts), 0
        numbers = values_of(values.astype(np.int64), argument.type)
        if call.function == "sum" and call.type is Type.BIGINT:
            halves = [np.zeros(rows.shape[0], np.int64) for _ in range(2)]
            np.add.at(halves[0], segments, numbers.astype(np.int64) >> 32)
            np.add.at(halves[1], segments, numbers.astype(np.int64) & 0xFFFFFFFF)
            total, fits = joined_halves(*halves)
            return _where(total, (counts > 0) & fits), int(np.count_nonzero(~fits))
        sums = np.bincount(segments, numbers.astype(np.float64), rows.shape[0])
        return _where(sums / np.maximum(counts, 1) if call.function == "avg" else sums, counts > 0), 0

    return WindowFunction((Distinct(argument),), finish)


def _collect(call: AggregateCall, argument: Expression) -> WindowFunction:
    """Join the values by the separator, written as a cast to string does, in the order of their event time."""
    separator = call.parameters[0]
    write = _WRITERS.get(argument.type, str)

    def finish(partials: list[Partial], rows: Numbers) -> tuple[Vector, int]:
        segments, values, order = partials[0]
        at = np.lexsort((order, segments))  # stable: equal times stay in the order of arrival
        counts = np.bincount(segments, minlength=rows.shape[0])
        parts = [write(v) for v in values.take(at).tolist()]
        ends = np.cumsum(counts)
        spans = zip((ends - counts).tolist(), ends.tolist(), strict=True)
        return _texts(np.array([separator.join(parts[a:b]) if b > a else None for a, b in spans], object)), 0

    return WindowFunction((Ordered(argument),), finish)


def _texts(values: Array) -> Vector:
    """Return Python strings and Nones as a column with a pool of its own."""
    pool = StringPool()
    codes = np.array([pool.code(t if t is not None else "") for t in values.tolist()], np.int32)
    present = np.array([t is not None for t in values.tolist()], np.bool_)
    return Vector(codes, None if present.all() else present, pool)


_WRITERS: dict[Type, Callable[[Any], str]] = {**WRITERS, Type.BOOLEAN: lambda value: "true" if value else "false"}

_MAKERS: dict[str, Callable[[AggregateCall, Expression], WindowFunction]] = {
    "count": _count,
    "sum": _sum,
    "avg": _avg,
    "min": _extreme,
    "max": _extreme,
    "bool_and": _extreme,
    "bool_or": _extreme,
    "first": _end,
    "last": _end,
    "stddev_samp": _spread,
    "stddev_pop": _spread,
    "var_samp": _spread,
    "var_pop": _spread,
    "median": _percentile,
    "percentile": _percentile,
    "percentile_approx": _percentile_approx,
    "approx_count_distinct": _approx_distinct,
    "collect_list": _collect,
}
