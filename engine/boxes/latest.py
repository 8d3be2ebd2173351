"""latest: the last row of each key, given whenever it changes.

    best: {latest: quotes, by: [symbol], changes: [bid, ask]}

A tuple passes when its key is new or when one of the fields ``changes`` differs from the key's last tuple; without
``changes`` all fields count but the keys and the event time. NULL equals NULL and NaN equals NaN here. A tuple that is
older than the last one of its key by event time says nothing about the present and is filtered.

State: the fields that are compared, one row a key. ``forget: 1h`` drops keys that were silent for so long (by event
time); what comes then counts as new. Without it a key stays for ever.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from catalog.config.units import PositiveDuration
from catalog.schema import Schema
from catalog.shed import UnderLoss
from engine.boxes.base import Box, BoxParameters, Emit, Tally
from engine.joins.by import LastTimes, fields_of
from engine.joins.index import Column
from engine.joins.on import check_time
from engine.joins.order import ByKey, running_max
from engine.joins.rows import RowStore, pack, unpack
from storage.train import NO_WATERMARK, Mask, Train


class LatestParameters(BoxParameters):
    by: list[str]
    changes: list[str] | None = None
    forget: PositiveDuration | None = None


class LatestState:
    """Owned by the worker that runs the box."""

    __slots__ = ("row_of", "seen", "store")

    def __init__(self, seen: LastTimes, compared: Schema) -> None:
        self.seen = seen
        self.store = RowStore(compared)
        self.row_of = np.full(64, -1, np.int64)  # by number of key

    def rows_of(self, numbers: Column) -> Column:
        """The last row of each key, -1 for a key that counts as never seen."""
        if self.seen.keys.count > self.row_of.shape[0]:
            longer = np.full(2 * self.seen.keys.count, -1, np.int64)
            longer[: self.row_of.shape[0]] = self.row_of
            self.row_of = longer
        return np.where(self.seen.last(numbers) == NO_WATERMARK, -1, self.row_of.take(numbers))

    def forget(self) -> None:
        """Keys that have passed, and rows that are nobody's last any more."""
        live = self.seen.passed()
        if live is not None:
            rows = self.row_of.take(live)
            self.seen.keep(live)
            self.row_of = np.full(max(64, 2 * self.seen.keys.count), -1, np.int64)
            self.row_of[self.seen.keys.remap(live, live)] = rows
        if self.store.is_wasteful(self.seen.keys.count):
            used = np.flatnonzero(self.row_of >= 0)
            rows = np.sort(self.row_of.take(used))
            self.store.keep(rows)
            self.row_of[used] = np.searchsorted(rows, self.row_of.take(used))


class Latest(Box):
    kind = "latest"
    summary = "the last row of each key, whenever it changes"
    parameters_model = LatestParameters
    needs_time = True

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
        self._compared = schema.select(schema.names[i] for i in compared)
        return inputs

    def under_loss(self, port: int = 0) -> UnderLoss:
        return "wrong"  # what changed is judged by the tuple before

    def keeps(self, field: str) -> bool:
        return True

    def new_state(self) -> LatestState:
        return LatestState(LastTimes(self._schema, self._by, self.parameters.forget), self._compared)

    def run(self, state: LatestState, port: int, train: Train, emit: Emit, tally: Tally) -> None:
        by_key = ByKey(state.seen.numbers(train))
        keys = by_key.keys.take(by_key.starts)
        known_rows, known_times = state.rows_of(keys), state.seen.last(keys)
        arrivals_or_times = train.arrival_ns if self._time is None else train.columns[self._time]
        times = arrivals_or_times.take(by_key.order)
        current = (times == running_max(by_key, times)) & (times >= known_times.take(by_key.segment))
        at = np.flatnonzero(current)
        segment = by_key.segment.take(at)
        # All go into the store first, so that strings of any pool are compared as codes of one.
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

    def state_nbytes(self, state: LatestState) -> int:
        return state.seen.nbytes + state.store.nbytes + state.row_of.nbytes

    def snapshot(self, state: LatestState) -> dict[str, Any]:
        live = state.seen.live()
        return {"seen": state.seen.snapshot(live), "rows": pack(state.store.train(state.row_of.take(live)))}

    def restore(self, data: Any) -> LatestState:
        state = self.new_state()
        numbers = state.seen.restore(data["seen"])
        state.rows_of(numbers)
        state.row_of[numbers] = state.store.append(unpack(self._compared, data["rows"]))
        return state


def _differs(store: RowStore, rows: Column, previous: Column) -> Mask:
    """Where a row is not the same as the one before it, or there is none (-1)."""
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
