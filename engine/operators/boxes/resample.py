"""resample: give each left tuple the right values at its time.

    aligned: {resample: [trades, quotes], on: "l.symbol = r.symbol", fields: [bid, ask], method: linear, within: 1s}

For each left tuple the box looks at the right tuples of the same key, at most `within` away in event time.

- `previous`: the values of the latest right tuple at or before the left one; of equal times the last to arrive.
- `linear`: the values on the line between that tuple and the next one after it; NULL unless both are there. A right
  tuple at the very time of the left one gives its own values.
- `mean`: the mean of all right tuples of the band, without NULLs.

`within: 1s` looks both ways, `{before: 5s, after: 0s}` as it says; `previous` looks back only. Without `on` all right
tuples are one series.

Every left tuple comes out once, in order of time, when the watermark has passed the end of its band. Its values are
NULL where no right tuple is found. Tuples below the watermark are late: they are counted and not used.

Result: the left tuple, then `fields` of the right input under their names, or `r_x` where the left input has an `x`.
They keep their type with `previous` and are doubles with the other methods. The event time is that of the left tuple.

Cost: about 150 ns a tuple. State: the tuples of both inputs whose band is still open.

Refused: conditions in `on` other than equalities between `l.` and `r.`, a method other than `previous` for a field that
is not a number, and an input that has lost its event time.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field as Parameter

from catalog.errors import BindError
from catalog.loss import UnderLoss
from catalog.schema import Field, Schema, Type
from engine.operators.boxes.base import Emit, Tally, check_time, fields_of
from engine.operators.boxes.keyed import KeyedParameters
from engine.operators.expressions import Vector
from engine.operators.joins.held import HeldSide, JoinState
from engine.operators.joins.on import LEFT, RIGHT, Band, Within, combined, parse_on
from engine.operators.joins.pairs import MAX_PAIRS
from engine.operators.joins.side import Side
from engine.operators.joins.sided_box import SidedBox
from engine.operators.state.chunk import Chunk, Needles
from engine.operators.state.columns import Numbers
from engine.operators.state.time_index import clamped, shifted
from storage.train import Mask, Train, tidy_valid

Floats = npt.NDArray[np.float64]


class ResampleParameters(KeyedParameters):
    fields: list[str] = Parameter(min_length=1, description="fields of the right input")
    method: Literal["previous", "linear", "mean"] = Parameter(
        default="previous", description="how the value at the time of the left tuple is found"
    )
    on: str | None = Parameter(default=None, description="equalities between l. and r., joined by and")
    within: Within = Parameter(description="how far to look: 1s, or {before: 5s, after: 0s}")


class Resample(SidedBox):
    kind = "resample"
    summary = "give each left tuple the right values at its time: previous, linear, or the mean of a band"
    parameters_model = ResampleParameters
    typical_cost_ns = (100_000.0, 150.0)
    input_prefixes = (LEFT, RIGHT)
    min_inputs = 2
    max_inputs = 2
    row_wise = False
    needs_time = True

    def bind(self, inputs: tuple[Schema, ...], times: tuple[str | None, ...]) -> tuple[Schema, ...]:
        p: ResampleParameters = self.parameters
        left, right = inputs
        check_time("resample", times, inputs)
        if p.within is None:
            raise BindError("resample needs within: how far to look for right tuples", ("within",))
        self._band = Band(p.within.before_ns, 0) if p.method == "previous" else p.within
        condition = parse_on(p.on, combined(left, right))
        if condition.residual:
            raise BindError(
                "resample takes only equalities between l. and r.", ("on",), "filter the right input instead"
            )
        fields_of(right, p.fields, "fields")
        self._key_types = condition.types
        self.is_divisible = bool(condition.types)
        self._sides = (
            Side(LEFT, left, times[0], condition.left, [LEFT + name for name in left.names]),
            Side(RIGHT, right, times[1], condition.right, [RIGHT + name for name in p.fields]),
        )
        self._out = Schema((*left.fields, *(self._field(left, right[name], i) for i, name in enumerate(p.fields))))
        return (self._out,)

    def under_loss(self, port: int = 0) -> UnderLoss:
        return "subset" if port == 0 else "wrong"  # a left tuple comes out by itself; right tuples give its values

    def reach_ns(self) -> tuple[int, int]:
        return self._band.before_ns, self._band.after_ns

    def _field(self, left: Schema, field: Field, i: int) -> Field:
        name = f"r_{field.name}" if field.name in left else field.name
        if name in left:
            raise BindError(f"the left input has a field {name}", ("fields", i), f"rename {field.name} in a map above")
        if self.parameters.method == "previous":
            return Field(name, field.type, True)
        if not field.type.is_numeric:
            raise BindError(f"{self.parameters.method} needs a number, {field.name} is {field.type}", ("fields", i))
        return Field(name, Type.DOUBLE, True)

    def out_watermark_ns(self, state: JoinState, watermark_ns: int) -> int:
        return clamped(watermark_ns - self._band.after_ns)

    # -- the state by key --------------------------------------------------------------------------------------------

    def due_ns(self, state: JoinState) -> int:
        return state.sides[0].index.first_ns + self._band.after_ns + 1

    def first_due_ns(self, low_ns: int) -> int:
        return low_ns + self._band.after_ns + 1

    # -- the state ---------------------------------------------------------------------------------------------------

    def new_state(self) -> JoinState:
        return JoinState(self._sides, self._key_types)

    def run(self, state: JoinState, port: int, train: Train, emit: Emit, tally: Tally) -> None:
        train = state.absorb(port, train, tally)
        if train.count:
            held = state.sides[port]
            held.index.insert(held.take(train, state.keys))

    def advance(self, state: JoinState, watermark_ns: int, emit: Emit, tally: Tally) -> None:
        state.watermark_ns = watermark_ns
        left, right = state.sides
        ready = left.index.expire(clamped(watermark_ns - self._band.after_ns))
        if ready is not None:
            for start in range(0, ready.rows.shape[0], MAX_PAIRS):
                self._emit(state, ready.part(start, start + MAX_PAIRS), emit)
        right.index.expire(clamped(watermark_ns - self._band.after_ns - self._band.before_ns))
        state.close_gaps()

    def _emit(self, state: JoinState, ready: Chunk, emit: Emit) -> None:
        train = state.sides[0].store.train(ready.rows)
        method = {"previous": self._previous, "linear": self._linear, "mean": self._mean}[self.parameters.method]
        added = method(state.sides[1], ready)
        flags = train.valid or (None,) * len(train.columns)
        emit(
            0,
            Train(
                self._out,
                (*train.columns, *(v.values for v in added)),
                train.arrival_ns,
                valid=tidy_valid([*flags, *(v.valid for v in added)]),
                pools=(*train.pools, *(v.pool for v in added)),
            ),
        )

    def _columns(self, held: HeldSide) -> list[int]:
        return [held.side.schema.index(name) for name in self.parameters.fields]

    def _before(self, held: HeldSide, ready: Chunk) -> tuple[Numbers, Numbers]:
        return held.index.latest(Needles(ready, shifted(ready.times, -self._band.before_ns), ready.times))

    def _previous(self, held: HeldSide, ready: Chunk) -> list[Vector]:
        rows, _ = self._before(held, ready)
        return [_value(held, column, rows) for column in self._columns(held)]

    def _linear(self, held: HeldSide, ready: Chunk) -> list[Vector]:
        before, before_ns = self._before(held, ready)
        after, after_ns = held.index.earliest(Needles(ready, ready.times, shifted(ready.times, self._band.after_ns)))
        exact = (before >= 0) & (before_ns == ready.times)
        after = np.where(exact, before, after)
        span = np.where(exact, 1, after_ns - before_ns)
        share = np.where(exact, 0.0, (ready.times - before_ns) / np.where(span == 0, 1, span))
        out = []
        for column in self._columns(held):
            a, b = _value(held, column, before), _value(held, column, after)
            x, y = a.values.astype(np.float64), b.values.astype(np.float64)
            with np.errstate(all="ignore"):
                values = np.where(exact, x, x + (y - x) * share)
            out.append(_vector(values, _flags(a) & _flags(b)))
        return out

    def _mean(self, held: HeldSide, ready: Chunk) -> list[Vector]:
        band = self._band
        needles = Needles(ready, shifted(ready.times, -band.before_ns), shifted(ready.times, band.after_ns))
        # Number the needles by their place, so that the answers come in the order of the left tuples.
        needles.numbers = np.arange(ready.times.shape[0])
        place, rows = held.index.band(needles)
        out = []
        for column in self._columns(held):
            vector = held.store.vector(column, rows)
            there = np.flatnonzero(_flags(vector))
            at = place.take(there)
            counts = np.bincount(at, minlength=ready.times.shape[0])
            sums = np.bincount(at, vector.values.take(there).astype(np.float64), ready.times.shape[0])
            out.append(_vector(sums / np.maximum(counts, 1), counts > 0))
        return out

    # -- the state ---------------------------------------------------------------------------------------------------

    def waits_for_time(self) -> bool:
        return True

    def held_tuples(self, state: JoinState) -> int:
        return state.sides[0].index.live  # the right tuples are answers and wait for none

    def state_nbytes(self, state: JoinState) -> int:
        return state.nbytes

    def state_keys(self, state: JoinState) -> int:
        return state.keys.count

    def snapshot_of(self, state: JoinState, chosen: Mask | None) -> dict[str, Any]:
        return state.snapshot(chosen)

    def restore(self, data: Any) -> JoinState:
        state = self.new_state()
        state.restore(data)
        return state


def _value(held: HeldSide, column: int, rows: Numbers) -> Vector:
    """Return a right field of these rows, NULL where there is no row (-1)."""
    if not held.store.count:
        return held.store.nulls(column, rows.shape[0])
    vector = held.store.vector(column, np.maximum(rows, 0))
    return Vector(vector.values, _only(_flags(vector) & (rows >= 0)), vector.pool)


def _flags(vector: Vector) -> npt.NDArray[np.bool_]:
    return np.ones(vector.values.shape[0], np.bool_) if vector.valid is None else vector.valid


def _only(flags: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_] | None:
    return None if flags.all() else flags


def _vector(values: Floats, flags: npt.NDArray[np.bool_]) -> Vector:
    return Vector(values, _only(flags))
