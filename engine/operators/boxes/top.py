"""top: pass the n highest tuples of each window and key.

    biggest: {top: trades, n: 3, of: "price * size", by: [symbol], window: {tumbling: 1s}}
    lowest: {top: trades, n: 1, of: price, order: asc, window: {count: 1000}}

The box ranks the tuples of a window by the value of `of`, the highest first, or the lowest first with `order: asc`.
Equal values rank by arrival. NaN is above all numbers. A tuple whose value is NULL is never among the top.

A window is a stretch of event time (`tumbling`) or a number of tuples of a key (`count`). A window of time comes out
when the watermark reaches its end; a tuple whose window is closed is late, and counted. A window by count comes out
with its last tuple.

Result: the tuples as they were, with `rank` from 1 on, and for windows of time `window_start` and `window_end`. The
result of a window by count has no event time, because some of its tuples have waited for any length of time.

Cost: about 90 ns a tuple. State: for each open window and key the n leading tuples, and at most as many again that are
not compared yet. Windows by count keep every key with its count, for ever.

Refused: an `of` that is not a number or a timestamp, an input with a field `rank`, `window_start` or `window_end`, and,
for windows of time, an input that has lost its event time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field as Parameter
from pydantic import model_validator

from catalog.config.units import PositiveDuration
from catalog.errors import BindError
from catalog.loss import UnderLoss
from catalog.schema import Field, Schema, Type
from engine.operators.bounded.waiting import NEVER_NS
from engine.operators.boxes.base import (
    LOST_TIME,
    BoxParameters,
    Emit,
    Tally,
    check_time,
    compile_parameter,
    fields_of,
)
from engine.operators.boxes.keyed import KeyedBox, KeyedParameters
from engine.operators.expressions import Scope, Vector
from engine.operators.state.columns import START, Numbers, fitted, vector_at
from engine.operators.state.keys import KeyTable, group_keys
from engine.operators.state.order import ByKey, sortable
from engine.operators.state.plain import pack, unpack
from engine.operators.state.rows import RowStore
from storage.train import NO_WATERMARK, Mask, Train, tidy_valid

if TYPE_CHECKING:
    from load_shedder.record.book import BoxLosses

_BATCH = 8_192  # candidates that may wait before they are compared

RANK = Field("rank", Type.INT)
BOUNDS = (Field("window_start", Type.TIMESTAMP), Field("window_end", Type.TIMESTAMP))


class TopWindow(BoxParameters):
    tumbling: PositiveDuration | None = Parameter(default=None, description="windows of this much event time")
    count: int | None = Parameter(default=None, gt=0, description="windows of this many tuples of a key")

    @model_validator(mode="after")
    def _one_of_both(self) -> TopWindow:
        if (self.tumbling is None) == (self.count is None):
            raise ValueError("the window of top is {tumbling: 1s} or {count: 1000}")
        return self


class TopParameters(KeyedParameters):
    n: int = Parameter(gt=0, le=1_000_000, description="how many tuples of each window and key come out")
    of: str = Parameter(description="SQL expression by which tuples are ranked: a number or a timestamp")
    window: TopWindow = Parameter(description="tumbling or count")
    by: list[str] = Parameter(default_factory=list, description="fields of the key; without it one ranking for all")
    order: Literal["desc", "asc"] = Parameter(default="desc", description="the highest first, or the lowest")


class TopState:
    """Candidates in four columns: window, key, place (the lower, the better), row.

    Owned by the worker that runs the box.
    """

    __slots__ = ("candidates", "compared", "counts", "first_window", "keys", "losses", "store", "watermark_ns")

    def __init__(self, schema: Schema, keys: KeyTable) -> None:
        self.keys = keys
        self.store = RowStore(schema)
        self.candidates = np.empty((4, 0), np.int64)
        self.compared = 0  # candidates left after they were last compared
        self.counts = np.zeros(START, np.int64)  # tuples seen, by key: for windows by count
        self.first_window = 2**63 - 1  # the lowest open window
        self.watermark_ns = NO_WATERMARK
        self.losses: BoxLosses | None = None  # the dropped tuples, where a shedder may drop some

    def drop(self, gone: Mask) -> None:
        self.candidates = self.candidates[:, ~gone]
        self.compared = min(self.compared, self.candidates.shape[1])
        if self.store.is_wasteful(self.candidates.shape[1]):
            rows = np.sort(self.candidates[3])
            self.store.keep(rows)
            self.candidates[3] = np.searchsorted(rows, self.candidates[3])


class Top(KeyedBox):
    kind = "top"
    summary = "pass the n highest tuples of each window and key"
    parameters_model = TopParameters
    is_selective = True
    row_wise = False
    needs_time = True

    def bind(self, inputs: tuple[Schema, ...], times: tuple[str | None, ...]) -> tuple[Schema, ...]:
        p: TopParameters = self.parameters
        schema = self._schema = inputs[0]
        self._size_ns = p.window.tumbling
        if self._size_ns is not None:
            check_time("top", times, inputs)
        self._time = None if not times[0] else schema.index(times[0])
        self._by = fields_of(schema, p.by, "by")
        self.is_divisible, self.emits_at_once = bool(p.by), p.window.count is not None
        self._of = compile_parameter(p.of, schema, ("of",))
        if self._of.type in (Type.STRING, Type.BOOLEAN):
            raise BindError(f"top ranks numbers and timestamps, not {self._of.type}", ("of",))
        added = (RANK, *(BOUNDS if self._size_ns is not None else ()))
        for field in added:
            if field.name in schema:
                hint = f"rename {field.name} in a map above"
                if field in BOUNDS:
                    hint += ", or leave it out of an aggregate above with bounds: [window_time]"
                raise BindError(f"the result has a field {field.name} of its own", hint=hint)
        self._out = Schema((*schema.fields, *added))
        return (self._out,)

    def time_out(self, times: tuple[str | None, ...]) -> tuple[str | None, ...]:
        return (times[0] if self._size_ns is not None else LOST_TIME,)

    def under_loss(self, port: int = 0) -> UnderLoss:
        return "wrong" if self._size_ns is None else self._size_ns

    def windows_ns(self) -> tuple[int, int, int] | None:
        return None if self._size_ns is None else (self._size_ns, self._size_ns, 0)

    def window_ends_ns(self) -> tuple[int, int] | None:
        return None if self._size_ns is None else (self._size_ns, 0)

    def watch_losses(self, state: TopState, losses: BoxLosses) -> None:
        state.losses = losses

    def reach_ns(self) -> tuple[int, int]:
        """Any tuple of a window may change which other tuples of the window lead."""
        return (self._size_ns or 0,) * 2

    def out_watermark_ns(self, state: TopState, watermark_ns: int) -> int:
        """Return the start of the first open window: its tuples are still to come out."""
        return watermark_ns if self._size_ns is None else watermark_ns // self._size_ns * self._size_ns

    # -- the state by key --------------------------------------------------------------------------------------------

    def key_of(self, port: int, train: Train) -> list[Vector]:
        return [vector_at(train, column) for column in self._by]

    def times_of(self, port: int, train: Train) -> Numbers:
        return train.arrival_ns if self._time is None else train.columns[self._time]

    def keys_in(self, state: TopState) -> KeyTable:
        return state.keys

    def last_ns(self, state: TopState) -> Numbers:
        last_ns = np.full(state.keys.count, NO_WATERMARK)
        rows = state.store.train(state.candidates[3])
        np.maximum.at(last_ns, state.candidates[1], self.times_of(0, rows))
        return last_ns

    def is_empty(self, state: TopState) -> bool:
        return not state.candidates.shape[1] and (self._size_ns is not None or not state.keys.count)

    def due_ns(self, state: TopState) -> int:
        if self._size_ns is None or not state.candidates.shape[1]:
            return NEVER_NS
        return (state.first_window + 1) * self._size_ns

    def first_due_ns(self, low_ns: int) -> int:
        return NEVER_NS if self._size_ns is None else (low_ns // self._size_ns + 1) * self._size_ns

    # -- the state ---------------------------------------------------------------------------------------------------

    def new_state(self) -> TopState:
        return TopState(self._schema, group_keys([self._schema.fields[c] for c in self._by]))

    # -- tuples come in ----------------------------------------------------------------------------------------------

    def run(self, state: TopState, port: int, train: Train, emit: Emit, tally: Tally) -> None:
        if self._size_ns is not None:
            train = self._not_late(state, train, tally)
            if not train.count:
                return
        tally.absorbed += train.count
        scope = Scope(train)
        scores = self._of.evaluate(scope)
        tally.null_errors += scope.null_errors
        keys = state.keys.numbers(self.key_of(port, train), train.count)
        windows = self._windows_of(train) if self._size_ns is not None else self._count(state, keys)
        places = sortable(scores)
        if self.parameters.order == "desc":
            places = ~places
        ranked = np.arange(train.count) if scores.valid is None else np.flatnonzero(scores.valid)
        if ranked.shape[0]:
            rows = state.store.append(train.take(ranked))
            fresh = np.stack([windows.take(ranked), keys.take(ranked), places.take(ranked), rows])
            state.candidates = np.concatenate([state.candidates, fresh], axis=1)
            state.first_window = min(state.first_window, int(fresh[0].min()))
        if self._size_ns is None:
            self._close(state, state.candidates[0] < state.counts.take(state.candidates[1]) // self._per_window, emit)
        if state.candidates.shape[1] > 2 * state.compared + _BATCH:
            self._compare(state)

    @property
    def _per_window(self) -> int:
        count = self.parameters.window.count
        assert isinstance(count, int)
        return count

    def _windows_of(self, train: Train) -> Numbers:
        windows: Numbers = np.floor_divide(self.times_of(0, train), self._size_ns or 1)
        return windows

    def _not_late(self, state: TopState, train: Train, tally: Tally) -> Train:
        if state.watermark_ns == NO_WATERMARK:
            return train
        in_time = train.where(self._windows_of(train) >= state.watermark_ns // (self._size_ns or 1))
        if in_time.count < train.count:
            tally.add_late(train.count - in_time.count, state.watermark_ns - int(self.times_of(0, train).min()))
        return in_time

    def _count(self, state: TopState, keys: Numbers) -> Numbers:
        """Return the window of each tuple in the sequence of its key, and count the tuples of each key."""
        state.counts = fitted(state.counts, state.keys.count, 0)
        by_key = ByKey(keys)
        numbers = np.empty_like(keys)
        numbers[by_key.order] = state.counts.take(by_key.keys) + by_key.ranks()
        state.counts[by_key.keys.take(by_key.starts)] += np.diff(by_key.starts, append=keys.shape[0])
        windows: Numbers = numbers // self._per_window
        return windows

    def _compare(self, state: TopState) -> None:
        """Keep only the n that lead in each window and key."""
        order, rank = _ranked(state.candidates)
        beaten = np.empty(order.shape[0], np.bool_)
        beaten[order] = rank >= self.parameters.n
        state.drop(beaten)
        state.compared = state.candidates.shape[1]

    # -- windows close -----------------------------------------------------------------------------------------------

    def advance(self, state: TopState, watermark_ns: int, emit: Emit, tally: Tally) -> None:
        state.watermark_ns = watermark_ns
        if self._size_ns is None:
            return
        open_from = watermark_ns // self._size_ns
        if state.first_window < open_from:
            self._close(state, state.candidates[0] < open_from, emit)
            left = state.candidates[0]
            state.first_window = int(left.min()) if left.shape[0] else 2**63 - 1
            self._forget_keys(state)

    def _forget_keys(self, state: TopState) -> None:
        if state.keys.is_wasteful(state.candidates.shape[1]):
            remap = state.keys.keep(np.unique(state.candidates[1]))
            state.candidates[1] = remap.take(state.candidates[1])

    def _close(self, state: TopState, gone: Mask, emit: Emit) -> None:
        if not gone.any():
            return
        closing = state.candidates[:, gone]
        order, rank = _ranked(closing)
        leads = rank < self.parameters.n
        order, rank = self._whole(state, closing[0], order[leads], rank[leads])
        train = state.store.train(closing[3].take(order))
        columns = [(rank + 1).astype(np.int32)]
        if self._size_ns is not None:
            starts = closing[0].take(order) * self._size_ns
            columns += [starts, starts + self._size_ns]
        flags = train.valid or (None,) * len(train.columns)
        emit(
            0,
            Train(
                self._out,
                (*train.columns, *columns),
                train.arrival_ns,
                valid=tidy_valid([*flags, *([None] * len(columns))]),
                pools=(*train.pools, *([None] * len(columns))),
            ),
        )
        state.drop(gone)

    def _whole(self, state: TopState, windows: Numbers, order: Numbers, rank: Numbers) -> tuple[Numbers, Numbers]:
        """Leave out the windows that lack a tuple: other tuples might have led in them."""
        losses = state.losses
        if losses is None or self._size_ns is None or not losses.any:
            return order, rank
        starts = windows.take(order) * self._size_ns
        spoiled = losses.spoiled(starts, starts + self._size_ns)
        if spoiled is None:
            return order, rank
        losses.withheld += int(np.count_nonzero(spoiled))
        return order[~spoiled], rank[~spoiled]

    # -- the state ---------------------------------------------------------------------------------------------------

    def waits_for_time(self) -> bool:
        return self._size_ns is not None

    def held_tuples(self, state: TopState) -> int:
        return int(state.candidates.shape[1])

    def state_nbytes(self, state: TopState) -> int:
        return state.keys.nbytes + state.store.nbytes + state.candidates.nbytes + state.counts.nbytes

    def state_keys(self, state: TopState) -> int:
        return state.keys.count

    def snapshot_of(self, state: TopState, chosen: Mask | None) -> dict[str, Any]:
        candidates = state.candidates if chosen is None else state.candidates[:, chosen.take(state.candidates[1])]
        by_arrival = np.argsort(candidates[3])
        keys = np.arange(state.keys.count) if self._size_ns is None else np.empty(0, np.int64)
        if chosen is not None and keys.shape[0]:
            keys = np.flatnonzero(chosen[:-1])
        return {
            "watermark_ns": state.watermark_ns,
            "rows": pack(state.store.train(candidates[3].take(by_arrival))),
            "windows": candidates[0].take(by_arrival),
            "places": candidates[2].take(by_arrival),
            "counted": state.keys.snapshot(keys),
            "counts": state.counts.take(keys),
        }

    def restore(self, data: Any) -> TopState:
        state = self.new_state()
        state.watermark_ns = int(data["watermark_ns"])
        keys = state.keys.restore(data["counted"])
        state.counts = fitted(state.counts, state.keys.count, 0)
        state.counts[keys] = data["counts"]
        train = unpack(self._schema, data["rows"])
        if train.count:
            keys = state.keys.numbers(self.key_of(0, train), train.count)
            windows = np.asarray(data["windows"], np.int64)
            state.candidates = np.stack(
                [windows, keys, np.asarray(data["places"], np.int64), state.store.append(train)]
            )
            state.first_window = int(windows.min())
        return state


def _ranked(candidates: Numbers) -> tuple[Numbers, Numbers]:
    """Return the order of candidates by window, key, place and arrival, and the rank of each from 0 on.

    Candidates are given in the order of their arrival.
    """
    windows, keys, places, _ = candidates
    order = np.argsort(places, kind="stable")
    group = _groups(windows, keys).take(order)
    bits = order.shape[0].bit_length()
    packed = (group << bits) | np.arange(order.shape[0])
    packed.sort()  # one sort of plain integers is several times cheaper than sorting by four columns
    order = order.take(packed & ((1 << bits) - 1))
    group = packed >> bits
    first = np.ones(order.shape[0], np.bool_)
    first[1:] = group[1:] != group[:-1]
    starts = np.flatnonzero(first)
    rank = np.arange(order.shape[0]) - starts.take(np.cumsum(first) - 1)
    return order, rank


def _groups(windows: Numbers, keys: Numbers) -> Numbers:
    """Return one number for each window and key, in the order of both, small enough to pack with a row's number."""
    if not windows.shape[0]:
        return windows
    lowest, width = int(windows.min()), int(keys.max()) + 1
    if (int(windows.max()) - lowest + 1) * width < 2**31:
        return (windows - lowest) * width + keys
    order = np.lexsort((keys, windows))
    differs = np.zeros(order.shape[0], np.bool_)
    differs[1:] = np.diff(windows.take(order)) != 0
    differs[1:] |= np.diff(keys.take(order)) != 0
    group = np.empty_like(order)
    group[order] = np.cumsum(differs)
    return group
