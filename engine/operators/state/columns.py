"""Columns with room for more at their end, indexed by row or by number."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from engine.operators.expressions import Vector
from storage.train import Train

Array = npt.NDArray[Any]
Numbers = npt.NDArray[np.int64]

START = 64
"""Rows of a column at first."""

_LONG = 65_536


def longer(size: int) -> int:
    """Return the size to grow a column to: twice as long, or half as long again where that is much memory."""
    return 2 * size if size < _LONG else size + size // 2


def grown(column: Array, size: int, fill: Any) -> Array:
    """Copy a column into a longer one; the new rows hold ``fill``."""
    out = np.full((size, *column.shape[1:]), fill, column.dtype)
    out[: column.shape[0]] = column
    return out


def fitted(column: Array, count: int, fill: Any) -> Array:
    """Return the column if it has ``count`` rows, else a longer one."""
    return column if column.shape[0] >= count else grown(column, longer(count), fill)


def renumbered(column: Array, remap: Numbers, count: int, fill: Any) -> Array:
    """Move the values of a column to new numbers.

    ``remap`` gives the new number by the old, -1 for one that is gone; ``count`` numbers are in use now.
    """
    old = np.flatnonzero(remap[: column.shape[0]] >= 0)
    old = old[old < column.shape[0]]
    out = np.full(max(START, 2 * count), fill, column.dtype)
    out[remap.take(old)] = column.take(old)
    return out


def vector_at(train: Train, column: int) -> Vector:
    """Return one column of a train."""
    return Vector(train.columns[column], train.null_mask(column), train.pools[column])
