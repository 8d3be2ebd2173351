"""What flows between kernels: a ``Vector`` (one column of values), and the ``Scope`` of one train.

A kernel takes vectors and gives one. To make constants cost nothing and to spare every kernel a special case, a
constant is a vector of length 1: numpy broadcasts it against any length, zero included. Only ``Expression.evaluate``
stretches a result that stayed constant.
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
    """Values, which of them are not NULL (None: all), and for strings the pool of the codes. Immutable by rule."""

    __slots__ = ("pool", "valid", "values")

    def __init__(self, values: Array, valid: Mask | None = None, pool: StringPool | None = None) -> None:
        self.values = values
        self.valid = valid
        self.pool = pool

    def __repr__(self) -> str:
        return f"Vector({self.values!r}, {self.valid!r})"


class Scope:
    """The evaluation of expressions over one train; used by one thread and dropped with the train.

    ``columns`` holds vectors by field name; a caller may put results of its own there (the fields that a map made)
    for later expressions to read. ``memo`` holds subexpressions that ``share`` marked. A scope belongs to one schema:
    after a map, begin a new one.

    ``null_errors`` counts overflows and divisions by zero that became NULL. ``active``, when set, limits that count to
    the rows under it: a branch of CASE that a row does not take makes no error for it. (A caller may set it, too, to
    the rows that are still wanted.) While a shared subexpression runs, ``collected`` takes the failures instead, for it
    may be wanted again where other rows are active; ``failures`` keeps what of them nobody has counted yet.
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
        """A column by field name, wrapped once."""
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
        """Add the rows where an operation failed on values that were there."""
        self.book(bad if valid is None else bad & valid)

    def book(self, bad: Mask) -> None:
        """Count failures among the active rows, or hand them to whoever collects."""
        if self.active is not None:
            bad = bad & self.active
        if self.collected is not None:
            self.collected.append(bad)
            return
        found = int(np.count_nonzero(bad))
        self.null_errors += found * self.count if bad.shape[0] == 1 else found


def both_valid(left: Vector, right: Vector) -> Mask | None:
    """Where two vectors both have a value: the validity of every operator that NULL runs through."""
    if left.valid is None:
        return right.valid
    if right.valid is None:
        return left.valid
    return left.valid & right.valid


def stretch(values: Array, count: int) -> Array:
    """A constant as a column of ``count`` values; a column as it is."""
    return values if values.shape[0] == count else np.full(count, values[0], values.dtype)
