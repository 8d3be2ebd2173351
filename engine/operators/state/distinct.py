"""Equality as in GROUP BY: values as integers, and which rows are the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from secrets import randbits

import numpy as np

from catalog.schema import Type
from engine.operators.compiled.hashing import WIDEST, ByWidth, distinct_loop, distinct_signature, own
from engine.operators.state.columns import Array, Numbers

_DENSE = 65_536
_MULTIPLIERS = np.array([randbits(64) | 1 for _ in range(WIDEST)], np.uint64)  # keys must not choose their cells


def bits_of(values: Array) -> Numbers:
    """Return values as int64 that are equal exactly where GROUP BY takes the values as equal."""
    if values.dtype.kind != "f":
        return values.astype(np.int64, copy=False)
    wide = values.astype(np.float64) + 0.0  # -0.0 becomes 0.0
    nan = np.isnan(wide)
    if nan.any():
        wide[nan] = np.nan  # one NaN for all
    return wide.view(np.int64)


def values_of(bits: Numbers, type: Type) -> Array:
    """Return the values of which ``bits_of`` made these integers."""
    if type in (Type.FLOAT, Type.DOUBLE):
        return bits.view(np.float64).astype(type.dtype)
    return bits.astype(type.dtype)


def distinct_rows(columns: Sequence[Numbers]) -> tuple[Numbers, Numbers]:
    """Return the position of the first of each distinct row, ascending, and for each row its number among them."""
    if not columns[0].shape[0]:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    return DISTINCT[len(columns)].run(tuple(columns))


def _distinct(columns: tuple[Numbers, ...]) -> tuple[Numbers, Numbers]:
    count = columns[0].shape[0]
    code, span = _row_code(columns)
    if span <= max(_DENSE, 8 * count):
        return _distinct_dense(code, span)
    _, first, inverse = np.unique(code, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(order.shape[0])
    return first[order], rank.take(inverse)


def _row_code(columns: Sequence[Numbers]) -> tuple[Numbers, int]:
    """Return one integer for each row, equal where all columns are equal, and a bound above all of them."""
    code, span = np.zeros(columns[0].shape[0], np.int64), 1
    for column in columns:
        low, width = int(column.min()), int(column.max()) - int(column.min()) + 1
        if width == 1:
            continue
        position = column - low
        if span * width >= 2**62:  # make both dense first, so that the product never overflows
            distinct, position = np.unique(column, return_inverse=True)
            width = distinct.shape[0]
            code = np.unique(code, return_inverse=True)[1]
            span = int(code.max()) + 1
        code = code * width + position if span > 1 else position
        span *= width
    return code, span


def _distinct_dense(code: Numbers, span: int) -> tuple[Numbers, Numbers]:
    """Find distinct rows without a sort: each row writes its position at its code, the first row last."""
    place = np.empty(span, np.int64)  # only what was written is read
    positions = np.arange(code.shape[0])
    place[code[::-1]] = positions[::-1]
    first = np.flatnonzero(place.take(code) == positions)
    place[code.take(first)] = np.arange(first.shape[0])
    return first, place.take(code)


def _distinct_compiled(loop: Callable[..., None]) -> Callable[[tuple[Numbers, ...]], tuple[Numbers, Numbers]]:
    def distinct(columns: tuple[Numbers, ...]) -> tuple[Numbers, Numbers]:
        count = columns[0].shape[0]
        bits = (2 * count).bit_length()
        cells = np.full(1 << bits, -1, np.int32)
        first, inverse = np.empty(count + 1, np.int64), np.empty(count, np.int64)
        loop(cells, np.uint64(64 - bits), _MULTIPLIERS, own(columns), first, inverse)
        return first[: first[count]], inverse

    return distinct


DISTINCT = ByWidth("distinct", _distinct, distinct_loop, distinct_signature, _distinct_compiled)
