"""The data of kernels: a ``Vector`` is one column of values, a ``Scope`` holds the columns of one train.

A kernel takes vectors and returns one. A constant is a vector of length 1, which numpy broadcasts to any length, zero
included: so constants cost nothing, and no kernel needs a special case for them. Only ``Expression.evaluate`` stretches
a result that is still constant.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from storage.strings import StringPool
from storage.train import Train

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]


class Vector:
    """Values, a mask of those that are not NULL (None: all), and for strings the pool of the codes. Immutable."""

    __slots__ = ("pool", "valid", "values")

    def __init__(self, values: Array, valid: Mask | None = None, pool: StringPool | None = None) -> None:
        self.values = values
        self.valid = valid
        self.pool = pool

    def __repr__(self) -> str:
        return f"Vector({self.values!r}, {self.valid!r})"


class Scope:
    """The evaluation of expressions over one train; used by one thread and dropped with the train.

    ``columns`` holds vectors by field name. A caller may add results there (the fields that a map has computed) for
    later expressions to read. ``memo`` holds the values of subexpressions that ``share`` marked. A scope belongs to one
    schema: after a map, make a new one.

    ``null_errors`` counts overflows and divisions by zero that became NULL. ``active`` limits that count to the rows of
    a mask: a branch of CASE counts no error for the rows that do not take it. (A caller may also set it, to the rows
    that it still needs.) While a shared subexpression runs, its failures go to ``collected`` instead, because it may be
    used again where other rows are active. ``failures`` keeps those that are not counted yet.
    """

    __slots__ = ("active", "collected", "columns", "count", "failures", "memo", "null_errors", "train")

    def __init__(
        self, train: Train | None, *, count: int | None = None, columns: Mapping[str, Vector] | None = None
    ) -> None:
        assert train is not None or count is not None, "a scope needs a train or a count"
        self.train = train
        self.count: int = train.count if train is not None else count or 0
        self.columns: dict[str, Vector] = dict(columns) if columns else {}
        self.memo: dict[str, Vector] = {}
        self.null_errors = 0
        self.active: Mask | None = None
        self.collected: list[Mask] | None = None
        self.failures: dict[str, list[Mask]] = {}

    def column(self, name: str) -> Vector:
        """Return the column of a field; it is wrapped once."""
        found = self.columns.get(name)
        return found if found is not None else self._wrap(name)

    def _wrap(self, name: str) -> Vector:
        train = self.train
        assert train is not None, f"no column {name} in this scope"
        at = train.schema.index(name)
        valid = train.valid
        made = self.columns[name] = Vector(train.columns[at], None if valid is None else valid[at], train.pools[at])
        return made

    def count_errors(self, bad: Mask, valid: Mask | None) -> None:
        """Count the rows where an operation failed on values that are not NULL."""
        self.add_failures(bad if valid is None else bad & valid)

    def add_failures(self, bad: Mask) -> None:
        """Count failures among the active rows, or collect them while a shared subexpression runs."""
        if self.active is not None:
            bad = bad & self.active
        if self.collected is not None:
            self.collected.append(bad)
            return
        found = int(np.count_nonzero(bad))
        self.null_errors += found * self.count if bad.shape[0] == 1 else found


def both_valid(left: Vector, right: Vector) -> Mask | None:
    """Return where both vectors have a value: the validity of every operator that is NULL for a NULL operand."""
    if left.valid is None:
        return right.valid
    if right.valid is None:
        return left.valid
    return left.valid & right.valid


def stretch(values: Array, count: int) -> Array:
    """Repeat a constant ``count`` times; return a column unchanged."""
    return values if values.shape[0] == count else np.full(count, values[0], values.dtype)
