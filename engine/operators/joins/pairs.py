"""Pairs of rows become trains: the residual, the fields of the result, NULLs for a side that is missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from catalog.schema import Field, Schema
from engine.operators.boxes.base import compile_parameters
from engine.operators.expressions import Expression, Scope, Vector, compile_expression, share
from engine.operators.joins.held import HeldSide
from engine.operators.joins.on import LEFT, RIGHT, no_clash
from engine.operators.state.columns import Numbers
from storage.train import Train, tidy_valid

MAX_PAIRS = 65_536
"""The most pairs of one train of results: a key that is frequent on both sides makes many."""


class Selection:
    """The fields of the result: all fields of both inputs, or the expressions of ``select``. Constant."""

    def __init__(self, left: Schema, right: Schema, both: Schema, select: Mapping[str, str]) -> None:
        """``both`` is the combined schema, nullable where a side may be missing."""
        if select:
            expressions = compile_parameters(select, both, "select")
        else:
            names = [name for part in no_clash(left, right) for name in part]
            expressions = {n: compile_expression(f"`{f.name}`", both) for n, f in zip(names, both, strict=True)}
        self.expressions = tuple(expressions.values())
        self.schema = Schema(tuple(Field(n, e.type, e.nullable) for n, e in expressions.items()))
        self.fields = frozenset(name for e in self.expressions for name in e.fields)
        self._by_key = {e.key: name for name, e in reversed(expressions.items())}
        self._both = both
        share(self.expressions)

    def name_of(self, field: str) -> str | None:
        """Return the name of ``l.x`` in the result; None when the result does not have it unchanged."""
        return self._by_key.get(compile_expression(f"`{field}`", self._both).key)


class Pairs:
    """Make trains of pairs. Constant; ``sides`` are the left and the right side of a state."""

    def __init__(self, selection: Selection, residual: Sequence[Expression]) -> None:
        self._selection = selection
        self._residual = tuple(residual)

    def matching(self, sides: Sequence[HeldSide], left: Numbers, right: Numbers) -> tuple[Numbers, Numbers, int]:
        """Return the pairs for which the residual is true, and how many overflows and divisions by zero became NULL."""
        errors = 0
        for predicate in self._residual:
            scope = Scope(None, count=left.shape[0], columns=_columns(predicate.fields, sides, left, right))
            mask = predicate.mask(scope)
            errors += scope.null_errors
            if mask is not None:
                at = np.flatnonzero(mask)
                left, right = left.take(at), right.take(at)
        return left, right, errors

    def train(self, sides: Sequence[HeldSide], left: Numbers | None, right: Numbers | None) -> tuple[Train, int]:
        """Return the result of these pairs, and how many overflows became NULL. A side that is missing is None."""
        some = left if left is not None else right
        assert some is not None
        selection = self._selection
        scope = Scope(None, count=some.shape[0], columns=_columns(selection.fields, sides, left, right))
        vectors = [e.evaluate(scope) for e in selection.expressions]
        arrivals = [h.store.arrivals(rows) for h, rows in zip(sides, (left, right), strict=True) if rows is not None]
        train = Train(
            selection.schema,
            tuple([v.values for v in vectors]),
            arrivals[0] if len(arrivals) == 1 else np.maximum(*arrivals),
            valid=tidy_valid([v.valid for v in vectors]),
            pools=tuple([v.pool for v in vectors]),
        )
        return train, scope.null_errors


def _columns(
    fields: Iterable[str], sides: Sequence[HeldSide], left: Numbers | None, right: Numbers | None
) -> dict[str, Vector]:
    columns: dict[str, Vector] = {}
    for name in fields:
        held, rows, other = (sides[0], left, right) if name.startswith(LEFT) else (sides[1], right, left)
        assert name.startswith((LEFT, RIGHT))
        at = held.side.index(name)
        if rows is not None:
            columns[name] = held.store.vector(at, rows)
        else:
            assert other is not None
            columns[name] = held.store.nulls(at, other.shape[0])
    return columns


def blocks(left: Numbers, right: Numbers) -> Iterator[tuple[Numbers, Numbers]]:
    """Yield the pairs in blocks of at most a train."""
    for start in range(0, left.shape[0], MAX_PAIRS):
        yield left[start : start + MAX_PAIRS], right[start : start + MAX_PAIRS]
