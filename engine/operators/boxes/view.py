"""view: keep the last rows of each key, to be asked for over HTTP.

    prices: {view: trades, key: [symbol]}
    tape: {view: trades, key: [symbol], last: 5, keys: 10000}

The last row of each key is kept, or the last `last` rows, in the order in which they come. Every tuple also leaves the
box unchanged, so that other boxes and outputs may read it; none needs to.

`GET /api/v1/views/prices?where=price > 100&limit=10` answers with the rows, `aurorad_client.view` does in Python. An
answer has the effect of whole trains: all rows that came together, or none of them.

Cost: about 60 ns a tuple. State: `last` rows for each key, counted in the memory budget and part of checkpoints. Beyond
`keys` keys, those that were silent for the longest time are forgotten and counted as evicted.

Under overload nothing is dropped before a view: a missing tuple would leave an old row in the place of a newer one.
"""

from __future__ import annotations

from threading import Lock
from typing import Any

import numpy as np
from pydantic import Field as Parameter

from catalog.loss import UnderLoss
from catalog.schema import Schema
from engine.operators.boxes.base import Box, BoxParameters, Emit, Tally, fields_of
from engine.operators.state.columns import START, Numbers, grown, vector_at
from engine.operators.state.keys import KeyTable, group_keys
from engine.operators.state.order import ByKey
from engine.operators.state.plain import pack, unpack
from engine.operators.state.rows import RowStore
from storage.train import Train

EVICTED_SHARE = 16
"""A sixteenth of the keys is forgotten at once: to find the oldest sorts all of them."""


class ViewParameters(BoxParameters):
    key: list[str] = Parameter(description="fields of the key; [] for one key")
    last: int = Parameter(default=1, ge=1, le=1_000, description="rows of each key")
    keys: int = Parameter(default=100_000, ge=1, le=10_000_000, description="the most keys; the oldest go first")


class ViewState:
    """Written by the worker that runs the box, read by any thread: both hold the lock."""

    __slots__ = ("head", "keys", "lock", "rows", "store", "touched", "touches")

    def __init__(self, keys: KeyTable, schema: Schema, last: int) -> None:
        self.lock = Lock()
        self.keys = keys
        self.store = RowStore(schema)
        self.rows = np.full((START, last), -1, np.int64)  # by key: rows of the store, a ring
        self.head = np.zeros(START, np.int64)  # by key: the place of its next row in the ring
        self.touched = np.zeros(START, np.int64)  # by key: when it came last
        self.touches = 0

    def used(self) -> Numbers:
        """Return the rows in use, in the order in which they came."""
        rows = self.rows[: self.keys.count].ravel()
        return np.sort(rows[rows >= 0])


class View(Box):
    kind = "view"
    summary = "keep the last rows of each key, to be asked for over HTTP"
    parameters_model = ViewParameters
    typical_cost_ns = (60_000.0, 60.0)
    keeps_rows = True
    is_asked = True  # its rows are asked for: it need not lead to an output

    def bind(self, inputs: tuple[Schema, ...], times: tuple[str | None, ...]) -> tuple[Schema, ...]:
        self.schema = inputs[0]
        self._key = fields_of(inputs[0], self.parameters.key, "key")
        return inputs

    def under_loss(self, port: int = 0) -> UnderLoss:
        return "wrong"

    def keeps(self, field: str) -> bool:
        return True

    def new_state(self) -> ViewState:
        keys = group_keys([self.schema.fields[i] for i in self._key])
        return ViewState(keys, self.schema, self.parameters.last)

    def run(self, state: ViewState, port: int, train: Train, emit: Emit, tally: Tally) -> None:
        with state.lock:
            self._absorb(state, train)
            tally.evicted += self._evict(state)
        emit(0, train)

    def _absorb(self, state: ViewState, train: Train) -> None:
        last = self.parameters.last
        numbers = state.keys.numbers([vector_at(train, i) for i in self._key], train.count)
        self._fit(state)
        by_key = ByKey(numbers)
        counts = np.diff(np.append(by_key.starts, train.count))
        rank = by_key.ranks()
        from_end = counts.take(by_key.segment) - 1 - rank
        chosen = np.flatnonzero(from_end < last)  # of a key with many rows, only the last ones
        order = by_key.order.take(chosen)
        places = np.empty(train.count, np.int64)
        arrived = np.sort(order)
        places[arrived] = state.store.append(train.take(arrived))
        keys, ranks = by_key.keys.take(chosen), rank.take(chosen)
        state.rows[keys, (state.head.take(keys) + ranks) % last] = places.take(order)
        touched = by_key.keys.take(by_key.starts)
        state.head[touched] = (state.head.take(touched) + counts) % last
        state.touches += 1
        state.touched[touched] = state.touches
        if state.store.is_wasteful(state.keys.count * last):
            self._compact(state)

    def _fit(self, state: ViewState) -> None:
        if (count := state.keys.count) > state.head.shape[0]:
            state.rows = grown(state.rows, 2 * count, -1)
            state.head = grown(state.head, 2 * count, 0)
            state.touched = grown(state.touched, 2 * count, 0)

    def _compact(self, state: ViewState) -> None:
        """Close the gaps that replaced rows have left in the store."""
        used = state.used()
        state.store.keep(used)
        held = state.rows >= 0
        state.rows[held] = np.searchsorted(used, state.rows[held])

    def _evict(self, state: ViewState) -> int:
        """Forget the keys that were silent for the longest time, if there are too many."""
        most = self.parameters.keys
        if state.keys.count <= most:
            return 0
        used = np.flatnonzero(state.touched[: state.keys.count])  # the number of NULL may be unused
        count, kept = used.shape[0], int(most - most // EVICTED_SHARE)
        if count <= most:
            return 0
        live = np.sort(used.take(np.argsort(state.touched.take(used), kind="stable")[count - kept :]))
        remap = state.keys.keep(live)
        rows, head, touched = state.rows, state.head, state.touched
        size = max(START, 2 * state.keys.count)
        state.rows = np.full((size, rows.shape[1]), -1, np.int64)
        state.head, state.touched = np.zeros(size, np.int64), np.zeros(size, np.int64)
        to = remap.take(live)
        state.rows[to], state.head[to], state.touched[to] = rows.take(live, 0), head.take(live), touched.take(live)
        self._compact(state)
        return count - kept

    # -- asking ------------------------------------------------------------------------------------------------------

    def asked(self, state: ViewState) -> Train:
        """Return all rows, in the order in which they came. Any thread."""
        with state.lock:
            return state.store.train(state.used())

    # -- the state ---------------------------------------------------------------------------------------------------

    def state_nbytes(self, state: ViewState) -> int:
        return int(state.keys.nbytes + state.store.nbytes + state.rows.nbytes + 2 * state.head.nbytes)

    def state_keys(self, state: ViewState) -> int:
        return int(np.count_nonzero(state.touched[: state.keys.count]))

    def snapshot(self, state: ViewState) -> Any:
        return pack(self.asked(state))

    def restore(self, data: Any) -> ViewState:
        state = self.new_state()
        rows = unpack(self.schema, data)
        if rows.count:
            self._absorb(state, rows)
        return state
