"""latest: pass a tuple when it changes the last row of its key.

    best: {latest: quotes, by: [symbol], changes: [bid, ask], forget: 1h}

A tuple passes when its key is new, or when a field of `changes` differs from the last tuple of the key. Without
`changes` all fields are compared but the key and the event time. NULL equals NULL and NaN equals NaN. A tuple that is
older than the last one of its key, by event time, is dropped. Dropped tuples are counted as filtered.

Cost: about 60 ns a tuple. State: one row of the compared fields for each key. With `forget`, a key that was silent for
that long by event time is forgotten, and its next tuple counts as new. Without it every key stays for ever.

Refused: an input that has lost its event time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import Field as Parameter

from catalog.config.units import PositiveDuration
from catalog.loss import UnderLoss
from catalog.schema import Schema
from engine.operators.boxes.base import Emit, Tally, check_time, fields_of
from engine.operators.boxes.keyed import KeyedBox, KeyedParameters
from engine.operators.expressions import Vector
from engine.operators.state.columns import START, Numbers, fitted, renumbered, vector_at
from engine.operators.state.keys import KeyTable
from engine.operators.state.last_times import LastTimes
from engine.operators.state.order import ByKey, running_max
from engine.operators.state.plain import pack, unpack
from engine.operators.state.rows import RowStore
from storage.train import NO_WATERMARK, Mask, Train


class LatestParameters(KeyedParameters):
    by: list[str] = Parameter(description="fields of the key; [] for one key")
    changes: list[str] | None = Parameter(default=None, description="fields to compare; without it all others")
    forget: PositiveDuration | None = Parameter(
        default=None, description="event time of silence after which a key is forgotten; without it never"
    )


class LatestState:
    """Owned by the worker that runs the box."""

    __slots__ = ("row_of", "seen", "store")

    def __init__(self, seen: LastTimes, compared: Schema) -> None:
        self.seen = seen
        self.store = RowStore(compared)
        self.row_of = np.full(START, -1, np.int64)  # by number of key

    def rows_of(self, numbers: Numbers) -> Numbers:
        """Return the last row of each key, -1 for a key that counts as never seen."""
        self.row_of = fitted(self.row_of, self.seen.keys.count, -1)
        return np.where(self.seen.last(numbers) == NO_WATERMARK, -1, self.row_of.take(numbers))

    def forget(self) -> None:
        """Drop keys that were silent for too long, and rows that are the last of no key any more."""
        remap = self.seen.forget()
        if remap is not None:
            self.row_of = renumbered(self.row_of, remap, self.seen.keys.count, -1)
        if self.store.is_wasteful(self.seen.keys.count):
            used = np.flatnonzero(self.row_of >= 0)
            rows = np.sort(self.row_of.take(used))
            self.store.keep(rows)
            self.row_of[used] = np.searchsorted(rows, self.row_of.take(used))


class Latest(KeyedBox):
    kind = "latest"
    summary = "pass a tuple when it changes the last row of its key"
    parameters_model = LatestParameters
    typical_cost_ns = (120_000.0, 60.0)
    needs_time = True
    emits_at_once = True

    def bind(self, inputs: tuple[Schema, ...], times: tuple[str | None, ...]) -> tuple[Schema, ...]:
        p: LatestParameters = self.parameters
        check_time("latest", times, inputs)
        schema = self._schema = inputs[0]
        self._by = fields_of(schema, p.by, "by")
        self._time = None if times[0] is None else schema.index(times[0])
        if p.changes is None:
            compared = tuple(i for i in range(len(schema)) if i not in self._by and i != self._time)
        else:
            compared = fields_of(schema, p.changes, "changes")
        self.is_divisible = bool(p.by)
        self.goes_by_train = p.forget is not None  # the watermark says whether a key is forgotten
        self._compared = schema.select(schema.names[i] for i in compared)
        return inputs

    def under_loss(self, port: int = 0) -> UnderLoss:
        return "wrong"  # a tuple passes or not by comparison with the one before

    def keeps(self, field: str) -> bool:
        return True

    def new_state(self) -> LatestState:
        return LatestState(LastTimes(self._schema, self._by, self.parameters.forget), self._compared)

    def run(self, state: LatestState, port: int, train: Train, emit: Emit, tally: Tally) -> None:
        by_key = ByKey(state.seen.numbers(train))
        keys = by_key.keys.take(by_key.starts)
        known_rows, known_times = state.rows_of(keys), state.seen.last(keys)
        times = self.times_of(port, train).take(by_key.order)
        current = (times == running_max(by_key, times)) & (times >= known_times.take(by_key.segment))
        at = np.flatnonzero(current)
        segment = by_key.segment.take(at)
        # All rows go into the store first, so that strings of any pool are compared as codes of one pool.
        order = by_key.order.take(at)
        rows = np.empty(train.count, np.int64)
        rows[np.sort(order)] = state.store.append(train.take(np.sort(order)).select(self._compared.names))
        rows = rows.take(order)
        previous = np.empty_like(rows)
        previous[1:] = rows[:-1]
        first = np.ones(rows.shape[0], np.bool_)
        first[1:] = segment[1:] != segment[:-1]
        previous[first] = known_rows.take(segment[first])
        changed = _differs(state.store, rows, previous)
        state.seen.set(by_key.keys.take(at), times.take(at))
        state.row_of[by_key.keys.take(at)] = rows
        state.forget()
        out = np.sort(order[changed])
        tally.filtered += train.count - out.shape[0]
        if out.shape[0]:
            emit(0, train.take(out))

    def advance(self, state: LatestState, watermark_ns: int, emit: Emit, tally: Tally) -> None:
        state.seen.watermark_ns = watermark_ns
        state.forget()

    # -- the state by key --------------------------------------------------------------------------------------------

    def key_of(self, port: int, train: Train) -> list[Vector]:
        return [vector_at(train, column) for column in self._by]

    def times_of(self, port: int, train: Train) -> Numbers:
        return train.arrival_ns if self._time is None else train.columns[self._time]

    def keys_in(self, state: LatestState) -> KeyTable:
        return state.seen.keys

    def last_ns(self, state: LatestState) -> Numbers:
        return state.seen.times[: state.seen.keys.count]

    def is_empty(self, state: LatestState) -> bool:
        return not state.seen.live().shape[0]

    # -- the state ---------------------------------------------------------------------------------------------------

    def state_nbytes(self, state: LatestState) -> int:
        return state.seen.nbytes + state.store.nbytes + state.row_of.nbytes

    def state_keys(self, state: LatestState) -> int:
        return state.seen.keys.count

    def snapshot_of(self, state: LatestState, chosen: Mask | None) -> dict[str, Any]:
        live = state.seen.live(chosen)
        return {"seen": state.seen.snapshot(live), "rows": pack(state.store.train(state.row_of.take(live)))}

    def restore(self, data: Any) -> LatestState:
        state = self.new_state()
        numbers = state.seen.restore(data["seen"])
        state.rows_of(numbers)
        state.row_of[numbers] = state.store.append(unpack(self._compared, data["rows"]))
        return state


def _differs(store: RowStore, rows: Numbers, previous: Numbers) -> Mask:
    """Mark the rows that differ from the row before, or have none (-1)."""
    out = previous < 0
    known = np.where(out, rows, previous)
    for i in range(len(store.schema)):
        a, b = store.vector(i, rows), store.vector(i, known)
        different = a.values != b.values
        if a.values.dtype.kind == "f":
            different &= ~(np.isnan(a.values) & np.isnan(b.values))
        if a.valid is not None or b.valid is not None:
            a_valid = np.ones(rows.shape[0], np.bool_) if a.valid is None else a.valid
            b_valid = np.ones(rows.shape[0], np.bool_) if b.valid is None else b.valid
            different = (a_valid != b_valid) | (a_valid & b_valid & different)
        out |= different
    return out
