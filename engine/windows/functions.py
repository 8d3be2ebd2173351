"""The aggregate functions: which accumulators each one reads, and what it makes of them when a window closes.

As in Spark: NULL arguments are skipped (by first and last only when told), a function of nothing is NULL and a count
of nothing is 0; the sum of integers is a bigint, and NULL where it does not fit, which is counted; sample deviations
of one value are NULL; NaN is greater than any number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from catalog.schema import Type
from engine.expressions import Expression, Vector
from engine.expressions.aggregates import AggregateCall
from engine.expressions.text_values import WRITERS
from engine.windows.accumulators import (
    Accumulator,
    BigintSum,
    Count,
    End,
    FloatMin,
    FloatSum,
    IntSum,
    Max,
    Min,
    Moments,
    Partial,
    StringExtreme,
)
from engine.windows.distinct import values_of
from engine.windows.logged import (
    Distinct,
    Ordered,
    Sketch,
    Values,
    estimate,
    nearest_rank,
    precision_for,
    quantile,
    unique_entries,
)
from engine.windows.numbers import Array, Numbers
from storage.strings import StringPool

Finish = Callable[[list[Partial], Numbers], tuple[Vector, int]]
"""From the accumulators' values and the row counts of the groups to the result, and how many overflowed."""


@dataclass(frozen=True, slots=True)
class Function:
    accumulators: tuple[Accumulator, ...]
    finish: Finish


def function_of(call: AggregateCall) -> Function:
    argument = call.argument
    if argument is None:
        return Function((), lambda partials, rows: (Vector(rows), 0))
    if call.distinct:
        return _distinct(call, argument)
    return _MAKERS[call.function](call, argument)


# -- how many ---------------------------------------------------------------------------------------------------------


def _counted(argument: Expression) -> tuple[Accumulator, ...]:
    """What counts the values of an argument; nothing when every row has one."""
    return (Count(argument),) if argument.nullable else ()


def _count_of(partials: list[Partial], at: int, rows: Numbers) -> Numbers:
    return partials[at][0] if len(partials) > at else rows


def _where(values: Array, present: Array) -> Vector:
    return Vector(values, None if present.all() else present)


def _count(call: AggregateCall, argument: Expression) -> Function:
    return Function((Count(argument),), lambda partials, rows: (Vector(partials[0][0]), 0))


# -- sums --------------------------------------------------------------------------------------------------------------


def _sum(call: AggregateCall, argument: Expression) -> Function:
    if argument.type is Type.BIGINT:
        return Function((BigintSum(argument), *_counted(argument)), _bigint_total)
    accumulator = IntSum(argument) if argument.type is Type.INT else FloatSum(argument)
    return Function((accumulator, *_counted(argument)), lambda p, rows: (_where(p[0][0], _count_of(p, 1, rows) > 0), 0))


def _bigint_total(partials: list[Partial], rows: Numbers) -> tuple[Vector, int]:
    total, fits = joined_halves(*partials[0])
    present = _count_of(partials, 1, rows) > 0
    return _where(total, present & fits), int(np.count_nonzero(present & ~fits))


def joined_halves(high: Numbers, low: Numbers) -> tuple[Numbers, Array]:
    """The 64-bit total of sums of upper and lower halves, and where it fits."""
    high = high + (low >> 32)
    return (high << 32) | (low & 0xFFFFFFFF), (high >= -(2**31)) & (high < 2**31)


def _avg(call: AggregateCall, argument: Expression) -> Function:
    def finish(partials: list[Partial], rows: Numbers) -> tuple[Vector, int]:
        counts = _count_of(partials, 1, rows)
        return _where(partials[0][0] / np.maximum(counts, 1), counts > 0), 0

    return Function((FloatSum(argument), *_counted(argument)), finish)


def _spread(call: AggregateCall, argument: Expression) -> Function:
    sample = call.function.endswith("samp")
    root = call.function.startswith("stddev")

    def finish(partials: list[Partial], rows: Numbers) -> tuple[Vector, int]:
        counts, _, squares = partials[0]
        value = squares / np.maximum(counts - sample, 1)
        return _where(np.sqrt(value) if root else value, counts > int(sample)), 0

    return Function((Moments(argument),), finish)


# -- least, greatest, first, last --------------------------------------------------------------------------------------


def _extreme(call: AggregateCall, argument: Expression) -> Function:
    largest = call.function in ("max", "bool_or")
    if argument.type is Type.STRING:
        return Function((StringExtreme(argument, largest=largest),), lambda p, rows: (_texts(p[0][0]), 0))
    if largest or argument.type not in (Type.FLOAT, Type.DOUBLE):
        accumulator = Max(argument) if largest else Min(argument)
        return Function(
            (accumulator, *_counted(argument)), lambda p, rows: (_where(p[0][0], _count_of(p, 1, rows) > 0), 0)
        )

    def finish(partials: list[Partial], rows: Numbers) -> tuple[Vector, int]:
        counts = _count_of(partials, 1, rows)
        values, nans = partials[0]
        return _where(np.where(nans == counts, np.nan, values).astype(values.dtype), counts > 0), 0

    return Function((FloatMin(argument), *_counted(argument)), finish)


def _end(call: AggregateCall, argument: Expression) -> Function:
    accumulator = End(argument, last=call.function == "last", ignore_nulls=bool(call.parameters[0]))

    def finish(partials: list[Partial], rows: Numbers) -> tuple[Vector, int]:
        values, there, valid, _ = partials[0]
        present = there & valid
        if values.dtype == object:
            values = values.copy()
            values[~present] = None
            return _texts(values), 0
        return _where(values, present), 0

    return Function((accumulator,), finish)


# -- all values --------------------------------------------------------------------------------------------------------


def _percentile(call: AggregateCall, argument: Expression) -> Function:
    share = 0.5 if call.function == "median" else call.parameters[0]

    def finish(partials: list[Partial], rows: Numbers) -> tuple[Vector, int]:
        values, counts = quantile(partials[0][0], partials[0][1], rows.shape[0], share)
        return _where(values, counts > 0), 0

    return Function((Values(argument),), finish)


def _percentile_approx(call: AggregateCall, argument: Expression) -> Function:
    """Exact, in fact: a value of the argument, as Spark's is."""

    def finish(partials: list[Partial], rows: Numbers) -> tuple[Vector, int]:
        values, counts = nearest_rank(partials[0][0], partials[0][1], rows.shape[0], call.parameters[0])
        return _where(values.astype(argument.type.dtype), counts > 0), 0

    return Function((Values(argument),), finish)


def _approx_distinct(call: AggregateCall, argument: Expression) -> Function:
    precision = precision_for(float(call.parameters[0]) if call.parameters else 0.05)
    return Function((Sketch(argument, precision),), lambda p, rows: (Vector(estimate(p[0][0], precision)), 0))


def _distinct(call: AggregateCall, argument: Expression) -> Function:
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

    return Function((Distinct(argument),), finish)


def _collect(call: AggregateCall, argument: Expression) -> Function:
    """Values as a cast to string writes them, joined by the separator, in the order of their event time."""
    separator = call.parameters[0]
    write = _WRITERS.get(argument.type, str)

    def finish(partials: list[Partial], rows: Numbers) -> tuple[Vector, int]:
        segments, values, order = partials[0]
        at = np.lexsort((order, segments))  # stable: equal times stay as they came
        counts = np.bincount(segments, minlength=rows.shape[0])
        parts = [write(v) for v in values.take(at).tolist()]
        ends = np.cumsum(counts)
        spans = zip((ends - counts).tolist(), ends.tolist(), strict=True)
        return _texts(np.array([separator.join(parts[a:b]) if b > a else None for a, b in spans], object)), 0

    return Function((Ordered(argument),), finish)


def _texts(values: Array) -> Vector:
    """Python strings and Nones as a column with a pool of its own."""
    pool = StringPool()
    codes = np.array([pool.code(t if t is not None else "") for t in values.tolist()], np.int32)
    present = np.array([t is not None for t in values.tolist()], np.bool_)
    return Vector(codes, None if present.all() else present, pool)


_WRITERS: dict[Type, Callable[[Any], str]] = {**WRITERS, Type.BOOLEAN: lambda value: "true" if value else "false"}

_MAKERS: dict[str, Callable[[AggregateCall, Expression], Function]] = {
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
