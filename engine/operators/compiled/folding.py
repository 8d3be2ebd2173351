"""The loops that fold the rows of a train into the cells of their groups, and their kernels.

``slots`` is the group of each row. ``valid`` marks the rows with a value; an empty one stands for all rows. Rows are
folded in their order, as ``ufunc.at`` does, so that sums of floats are equal to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from storage.compiled.kernel import Kernel

Array = npt.NDArray[Any]
Integers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

ALL: Mask = np.empty(0, np.bool_)
"""The ``valid`` of a column without NULLs."""


# -- rows and times ----------------------------------------------------------------------------------------------------


def arrivals_loop(rows: Integers, newest_ns: Integers, slots: Integers, arrival_ns: Integers) -> None:
    """Count rows, and keep the newest arrival; an array of one arrival stands for all rows."""
    step = 1 if arrival_ns.shape[0] == slots.shape[0] else 0
    for i in range(slots.shape[0]):
        slot = slots[i]
        rows[slot] += 1
        newest_ns[slot] = max(newest_ns[slot], arrival_ns[i * step])


def _arrivals(rows: Integers, newest_ns: Integers, slots: Integers, arrival_ns: Integers) -> None:
    np.add.at(rows, slots, 1)
    np.maximum.at(newest_ns, slots, arrival_ns if arrival_ns.shape[0] != 1 else arrival_ns[0])


def bounds_loop(first_ns: Integers, last_ns: Integers, slots: Integers, times_ns: Integers) -> None:
    for i in range(slots.shape[0]):
        slot = slots[i]
        first_ns[slot] = min(first_ns[slot], times_ns[i])
        last_ns[slot] = max(last_ns[slot], times_ns[i])


def _bounds(first_ns: Integers, last_ns: Integers, slots: Integers, times_ns: Integers) -> None:
    np.minimum.at(first_ns, slots, times_ns)
    np.maximum.at(last_ns, slots, times_ns)


# -- values ------------------------------------------------------------------------------------------------------------


def count_loop(cell: Integers, slots: Integers, valid: Mask) -> None:
    for i in range(slots.shape[0]):
        if valid.shape[0] == 0 or valid[i]:
            cell[slots[i]] += 1


def _count(cell: Integers, slots: Integers, valid: Mask) -> None:
    np.add.at(cell, slots[valid] if valid.shape[0] else slots, 1)


def sum_loop(cell: Array, slots: Integers, values: Array, valid: Mask) -> None:
    for i in range(slots.shape[0]):
        if valid.shape[0] == 0 or valid[i]:
            cell[slots[i]] += values[i]


def _sum(cell: Array, slots: Integers, values: Array, valid: Mask) -> None:
    np.add.at(cell, *where(slots, values, valid))


def max_loop(cell: Array, slots: Integers, values: Array, valid: Mask) -> None:
    for i in range(slots.shape[0]):
        if (valid.shape[0] == 0 or valid[i]) and values[i] > cell[slots[i]]:
            cell[slots[i]] = values[i]


def _max(cell: Array, slots: Integers, values: Array, valid: Mask) -> None:
    np.maximum.at(cell, *where(slots, values, valid))


def min_loop(cell: Array, slots: Integers, values: Array, valid: Mask) -> None:
    for i in range(slots.shape[0]):
        if (valid.shape[0] == 0 or valid[i]) and values[i] < cell[slots[i]]:
            cell[slots[i]] = values[i]


def _min(cell: Array, slots: Integers, values: Array, valid: Mask) -> None:
    np.minimum.at(cell, *where(slots, values, valid))


def float_max_loop(cell: Array, slots: Integers, values: Array, valid: Mask) -> None:
    """NaN is the highest value, and 0.0 is above -0.0."""
    for i in range(slots.shape[0]):
        if valid.shape[0] == 0 or valid[i]:
            value, held = values[i], cell[slots[i]]
            both_zero = value == 0.0 and held == 0.0
            if value > held or value != value or (both_zero and not np.signbit(value)):
                cell[slots[i]] = value


def _float_max(cell: Array, slots: Integers, values: Array, valid: Mask) -> None:
    extreme_at(np.maximum, cell, *where(slots, values, valid))


def float_min_loop(cell: Array, nans: Integers, slots: Integers, values: Array, valid: Mask) -> None:
    """NaN is the highest value, and counted apart; -0.0 is below 0.0."""
    for i in range(slots.shape[0]):
        if valid.shape[0] == 0 or valid[i]:
            value, held = values[i], cell[slots[i]]
            if value != value:
                nans[slots[i]] += 1
            elif value < held or (value == 0.0 and held == 0.0 and np.signbit(value)):
                cell[slots[i]] = value


def _float_min(cell: Array, nans: Integers, slots: Integers, values: Array, valid: Mask) -> None:
    slots, values = where(slots, values, valid)
    if values.shape[0] and np.isnan(values.min()):
        nan = np.isnan(values)
        np.add.at(nans, slots[nan], 1)
        slots, values = slots[~nan], values[~nan]
    extreme_at(np.minimum, cell, slots, values)


def where(slots: Integers, values: Array, valid: Mask) -> tuple[Integers, Array]:
    """Return only the rows with a value."""
    if not valid.shape[0]:
        return slots, values
    index = np.flatnonzero(valid)
    return slots.take(index), values.take(index)


def extreme_at(ufunc: Any, cell: Array, slots: Integers, values: Array) -> None:
    """Do ``ufunc.at`` for a minimum or maximum of floats, with -0.0 below 0.0: numpy keeps any of the two."""
    zero = values == 0
    if not np.count_nonzero(zero):
        ufunc.at(cell, slots, values)
        return
    ufunc.at(cell, slots[~zero], values[~zero])
    negative = np.signbit(values)
    lower, upper = slots[zero & negative], slots[zero & ~negative]
    if ufunc is np.maximum:
        cell[lower[cell.take(lower) < 0]] = -0.0
        cell[upper[cell.take(upper) <= 0]] = 0.0
    else:
        cell[upper[cell.take(upper) > 0]] = 0.0
        cell[lower[cell.take(lower) >= 0]] = -0.0


# -- kernels -----------------------------------------------------------------------------------------------------------


def _with_integers(count: int) -> Callable[[Any], Sequence[tuple[Any, ...]]]:
    """Return the signature of cells, slots and times: integers, the last of them perhaps read-only."""
    return lambda types: [(*[types.int64[::1]] * count, read_only(types, types.int64))]


def _of_values(*dtypes: str, nans: bool = False) -> Callable[[Any], Sequence[tuple[Any, ...]]]:
    """Return a signature for each type of values: cell, slots, values and valid."""

    def signatures(types: Any) -> list[tuple[Any, ...]]:
        slots, valid = types.int64[::1], read_only(types, types.boolean)
        more = (slots,) if nans else ()
        of = [getattr(types, dtype) for dtype in dtypes]
        return [(dtype[::1], *more, slots, read_only(types, dtype), valid) for dtype in of]

    return signatures


def read_only(types: Any, dtype: Any) -> Any:
    """Return the type of a column that a sender's buffer may hold. Arrays that can be written to fit it too."""
    return types.Array(dtype, 1, "C", readonly=True)


ARRIVALS = Kernel("arrivals", _arrivals, arrivals_loop, _with_integers(3))
BOUNDS = Kernel("bounds", _bounds, bounds_loop, _with_integers(3))
COUNT = Kernel(
    "count", _count, count_loop, lambda types: [(types.int64[::1], types.int64[::1], read_only(types, types.boolean))]
)
SUM = Kernel("sum", _sum, sum_loop, _of_values("int64", "float64"))
MAX = Kernel("max", _max, max_loop, _of_values("int32", "int64", "boolean"))
MIN = Kernel("min", _min, min_loop, _of_values("int32", "int64", "boolean"))
FLOAT_MAX = Kernel("float_max", _float_max, float_max_loop, _of_values("float32", "float64"))
FLOAT_MIN = Kernel("float_min", _float_min, float_min_loop, _of_values("float32", "float64", nans=True))
KERNELS = (ARRIVALS, BOUNDS, COUNT, SUM, MAX, MIN, FLOAT_MAX, FLOAT_MIN)
