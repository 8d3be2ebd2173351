"""What an aggregate box computes, apart from when: its accumulators, and the tuples that it makes of closed windows.

All expressions of a box share their accumulators. An argument that several accumulators read is evaluated once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from catalog.schema import Field, Schema, Type
from engine.operators.expressions import Expression, Scope, Vector, share
from engine.operators.expressions.aggregates.split import AggregatedExpression
from engine.operators.state.columns import Numbers
from engine.operators.state.keys import KeyTable
from engine.operators.windows.accumulators import Accumulator, Partial
from engine.operators.windows.error_bars import ErrorBar, error_bars, quantile_of
from engine.operators.windows.functions import WindowFunction, function_of
from engine.operators.windows.groups import Gathered
from storage.train import Train, tidy_valid

if TYPE_CHECKING:
    from load_shedder.record.error_limits import ErrorLimit

WINDOW_START = "window_start"
WINDOW_END = "window_end"
WINDOW_TIME = "window_time"
SHARE_SEEN = "share_seen"
BOUNDS = (WINDOW_START, WINDOW_END, WINDOW_TIME)

BOUND_FIELDS = tuple(Field(name, Type.TIMESTAMP) for name in BOUNDS)


class WindowLayout:
    """Constant: any thread that runs the box may read it."""

    def __init__(
        self,
        by: Sequence[Field],
        bounds: Sequence[str],
        select: Mapping[str, AggregatedExpression],
        having: AggregatedExpression | None,
        *,
        with_share: bool = False,
        confidence: float | None = None,
    ) -> None:
        """With ``confidence`` (and a share) each count, sum and avg has two more fields, its interval."""
        self.by = tuple(by)
        self._select = dict(select)
        self._having = having
        # Where select computes a field of ``by`` or a bound anew, the field stays in its place with the new value.
        fields = {f.name: f for f in (*self.by, *(b for b in BOUND_FIELDS if b.name in bounds))}
        fields |= {name: Field(name, e.type, e.nullable) for name, e in self._select.items()}
        self.with_share = with_share
        if with_share:
            fields[SHARE_SEEN] = Field(SHARE_SEEN, Type.DOUBLE)
        self.bars = () if confidence is None else error_bars(self._select)
        self._confidence = confidence or 0.0
        self._z = 0.0 if confidence is None else quantile_of(confidence)
        fields |= {f.name: f for bar in self.bars for f in bar.fields}
        self.schema = Schema(tuple(fields.values()))
        self._functions: dict[str, WindowFunction] = {}
        unique: dict[str, Accumulator] = {}
        for expression in self._expressions:
            for call in expression.calls:
                function = self._functions.setdefault(call.key, function_of(call))
                for accumulator in function.accumulators:
                    unique.setdefault(accumulator.key, accumulator)
        for bar in self.bars:
            if bar.accumulator is not None:
                unique.setdefault(bar.accumulator.key, bar.accumulator)
        self.accumulators = tuple(unique.values())
        self._place = {key: at for at, key in enumerate(unique)}
        self._arguments: dict[str, Expression] = {a.argument.key: a.argument for a in self.accumulators}
        share(self._arguments.values())
        share([e.outer for e in self._expressions])

    @property
    def _expressions(self) -> list[AggregatedExpression]:
        return [*self._select.values(), *([self._having] if self._having is not None else [])]

    @property
    def functions(self) -> list[str]:
        """The names of the functions of the window (``AggregateCall.function``)."""
        return [call.function for e in self._expressions for call in e.calls]

    @property
    def is_logged(self) -> bool:
        """Tell whether some function needs all values of a window."""
        return any(a.logged for a in self.accumulators)

    def columns(self, scope: Scope) -> list[Vector]:
        """Return the argument of each accumulator, for the rows of a train."""
        values = {key: argument.evaluate(scope) for key, argument in self._arguments.items()}
        return [values[a.argument.key] for a in self.accumulators]

    def note_errors(self, limit: ErrorLimit, gathered: Gathered, shares: npt.NDArray[np.float64] | None) -> None:
        """Note for ``max_error`` which share of their tuples these windows need."""
        seen = np.ones(gathered.rows.shape[0]) if shares is None else shares
        needed = np.zeros(gathered.rows.shape[0])
        for bar in self.bars:
            partial = self._partial(bar, gathered)
            needed = np.maximum(needed, bar.needed(partial, gathered.rows, seen, self._z, limit.aim))
        if self.bars:
            limit.note(needed, seen, self._confidence)

    def _partial(self, bar: ErrorBar, gathered: Gathered) -> Partial | None:
        return None if bar.accumulator is None else gathered.partials[self._place[bar.accumulator.key]]

    def train(
        self,
        gathered: Gathered,
        keys: KeyTable,
        start_ns: Numbers,
        end_ns: Numbers,
        time_ns: Numbers,
        shares: npt.NDArray[np.float64] | None = None,
    ) -> tuple[Train, int]:
        """Return the tuples of closed windows, and how many overflows became NULL in them.

        ``shares`` are the shares of their tuples that the windows saw; None: all.
        """
        count = gathered.rows.shape[0]
        results: dict[str, Vector] = {}
        errors = 0
        for key, function in self._functions.items():
            partials = [gathered.partials[self._place[a.key]] for a in function.accumulators]
            results[key], overflows = function.finish(partials, gathered.rows)
            errors += overflows
        columns = {f.name: v for f, v in zip(self.by, keys.vectors(gathered.key), strict=True)}
        columns |= {WINDOW_START: Vector(start_ns), WINDOW_END: Vector(end_ns), WINDOW_TIME: Vector(time_ns)}
        selected: dict[str, Vector] = {}
        for name, expression in self._select.items():
            selected[name], more = _outer(expression, columns, results, count)
            errors += more
        if self.with_share:
            seen = np.ones(count) if shares is None else shares
            selected[SHARE_SEEN] = Vector(seen)
            for bar in self.bars:
                bounds = bar.bounds(self._partial(bar, gathered), gathered.rows, seen, self._z)
                selected |= {f.name: vector for f, vector in zip(bar.fields, bounds, strict=True)}
        shown = columns | selected
        vectors = [shown[f.name] for f in self.schema]
        train = Train(
            self.schema,
            tuple([v.values for v in vectors]),
            gathered.newest_ns,
            valid=tidy_valid([v.valid for v in vectors]),
            pools=tuple([v.pool for v in vectors]),
        )
        if self._having is not None:
            kept, more = _outer(self._having, shown | columns, results, count)
            errors += more
            train = train.where(kept.values if kept.valid is None else kept.values & kept.valid)
        return train, errors


def _outer(
    expression: AggregatedExpression, columns: Mapping[str, Vector], results: Mapping[str, Vector], count: int
) -> tuple[Vector, int]:
    calls = {name: results[call.key] for name, call in zip(expression.names, expression.calls, strict=True)}
    scope = Scope(None, count=count, columns={**columns, **calls})
    value = expression.outer.evaluate(scope)
    return value, scope.null_errors
