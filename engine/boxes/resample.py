"""resample: for each left tuple, the right values at its time.

    aligned: {resample: [trades, quotes], on: "l.symbol = r.symbol", fields: [bid, ask], method: linear, within: 1s}

- ``previous``: the value of the latest right tuple at or before the left one (of equal times the last to arrive);
- ``linear``: on the line between that one and the next after it; NULL unless both are there (at the same time: its
  value);
- ``mean``: the mean of all right tuples of the band, without NULLs.

``within: 1s`` reaches both ways, ``{before: 5s, after: 0s}`` as it says; ``previous`` looks back only. ``on`` names
equalities between l. and r.; without it there is one series. A left tuple always comes out, once the watermark has
passed the end of its band, in order of time; with NULLs where there is nothing.

What comes out: the left tuple, and ``fields`` of the right under their names (r_x where the left has an x as well),
of their own type for ``previous``, double for the others. The event time is the left's. Tuples below the watermark
are late: counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field as Parameter

from catalog.errors import BindError
from catalog.schema import Field, Schema, Type
from catalog.shed import UnderLoss
from engine.boxes.base import Box, BoxParameters, Emit, Tally
from engine.expressions import Vector
from engine.joins.by import fields_of
from engine.joins.index import Chunk, Column, Needles, clamped, shifted
from engine.joins.keys import KeyTable
from engine.joins.on import LEFT, RIGHT, Band, Within, check_time, combined, parse_on
from engine.joins.pairs import MAX_PAIRS
from engine.joins.side import Held, Side, tidy_keys
from storage.train import NO_WATERMARK, Train, tidy_valid

Floats = npt.NDArray[np.float64]


class ResampleParameters(BoxParameters):
    fields: list[str] = Parameter(min_length=1)
    method: Literal["previous", "linear", "mean"] = "previous"
    on: str | None = None
    within: Within


class ResampleState:
    """Owned by the worker that runs the box."""

    __slots__ = ("helds", "keys", "watermark_ns")

    def __init__(self, sides: tuple[Side, Side], key_types: Sequence[Type]) -> None:
        self.keys = KeyTable(key_types, nulls_alike=False)
        self.helds = (Held(sides[0]), Held(sides[1]))
        self.watermark_ns = NO_WATERMARK


class Resample(Box):
    kind = "resample"
    summary = "the right values at the time of each left tuple: previous, linear, or the mean of a band"
    parameters_model = ResampleParameters
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
                "resample takes equalities between l. and r. only", ("on",), "filter the right input instead"
            )
        fields_of(right, p.fields, "fields")
        self._key_types = condition.types
        self._sides = (
            Side(LEFT, left, times[0], condition.left, [LEFT + name for name in left.names]),
            Side(RIGHT, right, times[1], condition.right, [RIGHT + name for name in p.fields]),
        )
        self._out = Schema((*left.fields, *(self._field(left, right[name], i) for i, name in enumerate(p.fields))))
        return (self._out,)

    def under_loss(self, port: int = 0) -> UnderLoss:
        return "subset" if port == 0 else "wrong"  # each left tuple comes out by itself, the right ones make its values

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

    def out_watermark_ns(self, state: ResampleState, watermark_ns: int) -> int:
        return clamped(watermark_ns - self._band.after_ns)

    def new_state(self) -> ResampleState:
        return ResampleState(self._sides, self._key_types)

    def run(self, state: ResampleState, port: int, train: Train, emit: Emit, tally: Tally) -> None:
        held = state.helds[port]
        train = held.side.kept(train)
        late = held.side.times(train) < state.watermark_ns
        if late.any():
            honest = train.where(~late)
            tally.late += train.count - honest.count
            train = honest
        tally.absorbed += train.count
        if train.count:
            held.index.insert(held.take(train, state.keys))

    def advance(self, state: ResampleState, watermark_ns: int, emit: Emit, tally: Tally) -> None:
        state.watermark_ns = watermark_ns
        left, right = state.helds
        ready = left.index.expire(clamped(watermark_ns - self._band.after_ns))
        if ready is not None:
            for start in range(0, ready.rows.shape[0], MAX_PAIRS):
                block = slice(start, start + MAX_PAIRS)
                self._emit(state, Chunk(ready.times[block], ready.keys[block], ready.rows[block]), emit)
        right.index.expire(clamped(watermark_ns - self._band.after_ns - self._band.before_ns))
        for held in state.helds:
            held.tidy()
        tidy_keys(state.keys, state.helds)

    def _emit(self, state: ResampleState, ready: Chunk, emit: Emit) -> None:
        train = state.helds[0].store.train(ready.rows)
        method = {"previous": self._previous, "linear": self._linear, "mean": self._mean}[self.parameters.method]
        added = method(state.helds[1], ready)
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

    def _columns(self, held: Held) -> list[int]:
        return [held.side.schema.index(name) for name in self.parameters.fields]

    def _before(self, held: Held, ready: Chunk) -> tuple[Column, Column]:
        return held.index.latest(Needles(ready, shifted(ready.times, -self._band.before_ns), ready.times))

    def _previous(self, held: Held, ready: Chunk) -> list[Vector]:
        rows, _ = self._before(held, ready)
        return [_value(held, column, rows) for column in self._columns(held)]

    def _linear(self, held: Held, ready: Chunk) -> list[Vector]:
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

    def _mean(self, held: Held, ready: Chunk) -> list[Vector]:
        band = self._band
        needles = Needles(ready, shifted(ready.times, -band.before_ns), shifted(ready.times, band.after_ns))
        # Numbered by their place, so that the answers come in the order of the left tuples.
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

    def state_nbytes(self, state: ResampleState) -> int:
        return state.keys.nbytes + sum(h.nbytes for h in state.helds)

    def snapshot(self, state: ResampleState) -> dict[str, Any]:
        return {"watermark_ns": state.watermark_ns, "sides": [h.snapshot() for h in state.helds]}

    def restore(self, data: Any) -> ResampleState:
        state = self.new_state()
        state.watermark_ns = int(data["watermark_ns"])
        for held, side in zip(state.helds, data["sides"], strict=True):
            held.restore(side, state.keys)
        return state


def _value(held: Held, column: int, rows: Column) -> Vector:
    """A right field of these rows, NULL where there is no row (-1)."""
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
