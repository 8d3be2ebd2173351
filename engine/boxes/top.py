"""top: the n highest tuples of each window, for each key if there are keys.

    biggest: {top: trades, n: 3, of: "price * size", by: [symbol], window: {tumbling: 1s}}

``of`` is a number or a timestamp; ``order: asc`` takes the lowest instead. Equal ones rank by arrival; NaN is above all
numbers, NULL is never among the top. ``window: {count: 1000}`` is every 1,000 tuples of a key.

What comes out: the tuples as they were, with ``rank`` from 1 on, and for windows of time ``window_start`` and
``window_end``. A window of time comes out when the watermark reaches its end; a tuple whose window is closed is late,
and counted. A window by count comes out with its last tuple; its tuples have no event time any more, because some
have waited for any length of time.

State: of each open window and key the n tuples that lead, and at most as many again that have not been compared yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field as Parameter
from pydantic import model_validator

from catalog.config.units import PositiveDuration
from catalog.errors import BindError
from catalog.schema import Field, Schema, Type
from catalog.shed import UnderLoss
from engine.boxes.base import LOST_TIME, Box, BoxParameters, Emit, Tally, compile_parameter
from engine.expressions import Scope
from engine.joins.by import fields_of, vector_at
from engine.joins.index import Column
from engine.joins.keys import KeyTable
from engine.joins.on import check_time
from engine.joins.order import ByKey, sortable
from engine.joins.rows import RowStore, pack, unpack
from storage.train import NO_WATERMARK, Mask, Train, tidy_valid

if TYPE_CHECKING:
    from engine.shed.book import BoxLosses

_BATCH = 8_192  # candidates that may wait before they are compared

RANK = Field("rank", Type.INT)
BOUNDS = (Field("window_start", Type.TIMESTAMP), Field("window_end", Type.TIMESTAMP))


class TopWindow(BoxParameters):
    tumbling: PositiveDuration | None = None
    count: int | None = Parameter(default=None, gt=0)

    @model_validator(mode="after")
    def _one_of_both(self) -> TopWindow:
        if (self.tumbling is None) == (self.count is None):
            raise ValueError("the window of top is {tumbling: 1s} or {count: 1000}")
        return self


class TopParameters(BoxParameters):
    n: int = Parameter(gt=0, le=1_000_000)
    of: str
    window: TopWindow
    by: list[str] = Parameter(default_factory=list)
    order: Literal["desc", "asc"] = "desc"


class TopState:
    """Candidates as columns: window, key, place (the lower, the better), row. Owned by the worker that runs the box."""

    __slots__ = ("candidates", "compared", "counts", "first_window", "keys", "losses", "store", "watermark_ns")

    def __init__(self, schema: Schema, keys: KeyTable) -> None:
        self.keys = keys
        self.store = RowStore(schema)
        self.candidates = np.empty((4, 0), np.int64)
        self.compared = 0  # candidates left after they were last compared
        self.counts = np.zeros(64, np.int64)  # tuples seen, by key: for windows by count
        self.first_window = 2**63 - 1  # the lowest open window
        self.watermark_ns = NO_WATERMARK
        self.losses: BoxLosses | None = None  # what is missing, where anybody drops

    def drop(self, gone: Mask) -> None:
        self.candidates = self.candidates[:, ~gone]
        self.compared = min(self.compared, self.candidates.shape[1])
        if self.store.is_wasteful(self.candidates.shape[1]):
            rows = np.sort(self.candidates[3])
            self.store.keep(rows)
            self.candidates[3] = np.searchsorted(rows, self.candidates[3])


class Top(Box):
    kind = "top"
    summary = "the n highest tuples of each window and key"
    parameters_model = TopParameters
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
        self._of = compile_parameter(p.of, schema, ("of",))
        if self._of.type in (Type.STRING, Type.BOOLEAN):
            raise BindError(f"top ranks numbers and timestamps, this is {self._of.type}", ("of",))
        added = (RANK, *(BOUNDS if self._size_ns is not None else ()))
        for field in added:
            if field.name in schema:
                raise BindError(
                    f"the result has a field {field.name} of its own", hint=f"rename {field.name} in a map above"
                )
        self._out = Schema((*schema.fields, *added))
        return (self._out,)

    def time_out(self, times: tuple[str | None, ...]) -> tuple[str | None, ...]:
        return (times[0] if self._size_ns is not None else LOST_TIME,)

    def under_loss(self, port: int = 0) -> UnderLoss:
        return "wrong" if self._size_ns is None else self._size_ns

    def windows_ns(self) -> tuple[int, int, int] | None:
        return None if self._size_ns is None else (self._size_ns, self._size_ns, 0)

    def attend(self, state: TopState, losses: BoxLosses) -> None:
        state.losses = losses

    def reach_ns(self) -> tuple[int, int]:
        """A tuple is among the first or not because of any other one of its window."""
        return (self._size_ns or 0,) * 2

    def out_watermark_ns(self, state: TopState, watermark_ns: int) -> int:
        """The start of the first window that is open: its tuples are still to come."""
        return watermark_ns if self._size_ns is None else watermark_ns // self._size_ns * self._size_ns

    def new_state(self) -> TopState:
        return TopState(self._schema, KeyTable([self._schema.fields[c].type for c in self._by], nulls_alike=True))

    # -- tuples come -------------------------------------------------------------------------------------------------

    def run(self, state: TopState, port: int, train: Train, emit: Emit, tally: Tally) -> None:
        if self._size_ns is not None:
            train = self._not_late(state, train, tally)
            if not train.count:
                return
        tally.absorbed += train.count
        scope = Scope(train)
        scores = self._of.evaluate(scope)
        tally.null_errors += scope.null_errors
        keys = state.keys.numbers([vector_at(train, c) for c in self._by], train.count)
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

    def _times(self, train: Train) -> Column:
        return train.arrival_ns if self._time is None else train.columns[self._time]

    def _windows_of(self, train: Train) -> Column:
        windows: Column = np.floor_divide(self._times(train), self._size_ns or 1)
        return windows

    def _not_late(self, state: TopState, train: Train, tally: Tally) -> Train:
        if state.watermark_ns == NO_WATERMARK:
            return train
        honest = train.where(self._windows_of(train) >= state.watermark_ns // (self._size_ns or 1))
        tally.late += train.count - honest.count
        return honest

    def _count(self, state: TopState, keys: Column) -> Column:
        """The window of each tuple in its key's own sequence."""
        if state.keys.count > state.counts.shape[0]:
            longer = np.zeros(2 * state.keys.count, np.int64)
            longer[: state.counts.shape[0]] = state.counts
            state.counts = longer
        by_key = ByKey(keys)
        numbers = np.empty_like(keys)
        numbers[by_key.order] = state.counts.take(by_key.keys) + by_key.ranks()
        state.counts[by_key.keys.take(by_key.starts)] += np.diff(by_key.starts, append=keys.shape[0])
        windows: Column = numbers // self._per_window
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
            live = np.unique(state.candidates[1])
            state.keys.keep(live)
            state.candidates[1] = state.keys.remap(live, state.candidates[1])

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

    def _whole(self, state: TopState, windows: Column, order: Column, rank: Column) -> tuple[Column, Column]:
        """Without the windows that lack something: what leads in them may not have."""
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

    def state_nbytes(self, state: TopState) -> int:
        return state.keys.nbytes + state.store.nbytes + state.candidates.nbytes + state.counts.nbytes

    def snapshot(self, state: TopState) -> dict[str, Any]:
        by_arrival = np.argsort(state.candidates[3])
        keys = np.arange(state.keys.count) if self._size_ns is None else np.empty(0, np.int64)
        return {
            "watermark_ns": state.watermark_ns,
            "rows": pack(state.store.train(state.candidates[3].take(by_arrival))),
            "windows": state.candidates[0].take(by_arrival),
            "places": state.candidates[2].take(by_arrival),
            "counted": pack(self._key_train(state, keys)),
            "counts": state.counts.take(keys),
        }

    def _key_train(self, state: TopState, keys: Column) -> Train:
        vectors = state.keys.vectors(keys)
        return Train(
            Schema(tuple(self._schema.fields[c] for c in self._by)),
            tuple(v.values for v in vectors),
            np.zeros(keys.shape[0], np.int64),
            valid=tidy_valid([v.valid for v in vectors]),
            pools=tuple(v.pool for v in vectors),
        )

    def restore(self, data: Any) -> TopState:
        state = self.new_state()
        state.watermark_ns = int(data["watermark_ns"])
        counted = unpack(Schema(tuple(self._schema.fields[c] for c in self._by)), data["counted"])
        keys = state.keys.numbers([vector_at(counted, i) for i in range(len(self._by))], counted.count)
        state.counts = np.zeros(max(64, 2 * state.keys.count), np.int64)
        state.counts[keys] = data["counts"]
        train = unpack(self._schema, data["rows"])
        if train.count:
            keys = state.keys.numbers([vector_at(train, c) for c in self._by], train.count)
            windows = np.asarray(data["windows"], np.int64)
            state.candidates = np.stack(
                [windows, keys, np.asarray(data["places"], np.int64), state.store.append(train)]
            )
            state.first_window = int(windows.min())
        return state


def _ranked(candidates: Column) -> tuple[Column, Column]:
    """Candidates in order of window, key, place and arrival, and the rank of each from 0 on. They come by arrival."""
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


def _groups(windows: Column, keys: Column) -> Column:
    """One number for each window and key, in the order of both; small enough to be packed with a row's number."""
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
