"""bsort: bounded sort. Tuples leave in the order of a field, as far as the slack allows.

    ordered: {bsort: trades, slack: 100ms}            # by the event time
    ordered: {bsort: trades, by: seq, slack: 1000}

- ``slack: 100ms``: a tuple waits until one has come that is 100 ms ahead of it (``by`` is a timestamp);
  ``slack: 1000``: until 1,000 tuples wait, then the lowest leaves. Equal ones leave in the order of their arrival.
- Disorder within the slack comes out sorted. A tuple further behind cannot wait any more: it leaves out of order. NULL
  and NaN, which have no place in an order, count as further behind. Nothing is dropped, and the result does not depend
  on how the tuples are cut into trains.
- By the event time, what is below the watermark leaves as well: nothing older will come. By another field the last
  tuples of a stream stay until its end.

State: the tuples that wait.
"""

from __future__ import annotations

import heapq
from typing import Annotated, Any

import numpy as np
from pydantic import BeforeValidator

from catalog.config.units import parse_duration_ns
from catalog.errors import BindError
from catalog.schema import Schema, Type
from catalog.shed import UnderLoss
from engine.boxes.base import Box, BoxParameters, Emit, Tally
from engine.joins.by import field_of, vector_at
from engine.joins.index import Chunk, Column, TimeIndex, clamped, shifted
from engine.joins.on import check_time
from engine.joins.order import LOWEST, sortable
from engine.joins.rows import RowStore, pack, unpack
from storage.train import Train

END_OF_TIME_NS = 2**62
"""A watermark from here on says that nothing more will come at all."""


def _parse_slack(value: object) -> object:
    """Tuples as they are; a duration as a negative number of ns, so that one int says which."""
    if isinstance(value, bool) or value == 0:
        raise ValueError("a slack of nothing sorts nothing: write 10 (tuples) or 100ms")
    if isinstance(value, int):
        if value < 0:
            raise ValueError("slack is a number of tuples above 0 or a duration")
        return value
    return -parse_duration_ns(value)


class BsortParameters(BoxParameters):
    slack: Annotated[int, BeforeValidator(_parse_slack)]
    by: str | None = None


class BsortState:
    """Owned by the worker that runs the box. The index is by the field of the order; it needs no keys."""

    __slots__ = ("highest", "index", "store")

    def __init__(self, schema: Schema) -> None:
        self.store = RowStore(schema)
        self.index = TimeIndex()
        self.highest = LOWEST  # of the field, so far


class Bsort(Box):
    kind = "bsort"
    summary = "bounded sort: tuples in the order of a field, as far as the slack allows"
    parameters_model = BsortParameters
    row_wise = False
    keeps_rows = True
    needs_time = True

    def bind(self, inputs: tuple[Schema, ...], times: tuple[str | None, ...]) -> tuple[Schema, ...]:
        p: BsortParameters = self.parameters
        schema = self._schema = inputs[0]
        check_time("bsort", times, inputs)
        by = times[0] if p.by is None else p.by
        if by is None:
            raise BindError("tuples by arrival are in order: name the field to sort by", ("by",))
        self._by = field_of(schema, by, ("by",))
        kind = schema[by].type
        if p.slack < 0 and kind is not Type.TIMESTAMP:
            raise BindError(
                f"a slack of time needs a timestamp, {by} is {kind}", ("slack",), "write a number of tuples"
            )
        if kind in (Type.STRING, Type.BOOLEAN):
            raise BindError(f"bsort orders numbers and timestamps, {by} is {kind}", ("by",))
        self._time = None if times[0] is None else schema.index(times[0])
        self._is_by_time = self._by == self._time
        return inputs

    def under_loss(self, port: int = 0) -> UnderLoss:
        return "subset"

    def keeps(self, field: str) -> bool:
        return True

    def new_state(self) -> BsortState:
        return BsortState(self._schema)

    # -- tuples come -------------------------------------------------------------------------------------------------

    def run(self, state: BsortState, port: int, train: Train, emit: Emit, tally: Tally) -> None:
        tally.absorbed += train.count
        values = self._values(train)
        rows = state.store.append(train)
        out = self._by_time(state, values, rows) if self.parameters.slack < 0 else self._by_count(state, values, rows)
        self._emit(state, out, emit)

    def _values(self, train: Train) -> Column:
        """Where each tuple stands in the order; the lowest place is for those that have none."""
        vector = vector_at(train, self._by)
        values = sortable(vector)
        if vector.values.dtype.kind == "f":
            values[np.isnan(vector.values)] = LOWEST
        return values

    def _by_time(self, state: BsortState, values: Column, rows: Column) -> Column:
        """Which rows leave, in order: each with the first tuple, from itself on, that is a slack ahead of it."""
        slack_ns = -self.parameters.slack
        highest = np.maximum.accumulate(np.maximum(values, state.highest))
        state.highest = int(highest[-1])
        state.index.insert(Chunk(values, np.full(values.shape[0], -1), rows))
        gone = state.index.expire(max(clamped(state.highest - slack_ns + 1), LOWEST + 1))
        if gone is None:
            return np.empty(0, np.int64)
        step = np.searchsorted(highest, shifted(gone.times, slack_ns))
        step[gone.times == LOWEST] = 0
        step = np.maximum(step, gone.rows - rows[0])  # not before it has come; what waited has come long ago
        if bool(np.all(step[1:] >= step[:-1])):
            return gone.rows
        return gone.rows.take(np.lexsort((gone.rows, gone.times, step)))

    def _by_count(self, state: BsortState, values: Column, rows: Column) -> Column:
        """Each tuple from the slack on pushes out the lowest. Sorted at once, if every tuple was there in time."""
        slack = self.parameters.slack
        waiting = state.index.expire(2**63 - 1)
        before = 0 if waiting is None else waiting.rows.shape[0]
        if waiting is not None:
            values = np.concatenate([waiting.times, values])
            rows = np.concatenate([waiting.rows, rows])
        order = np.argsort(values, kind="stable")
        leaving = max(0, order.shape[0] - slack)
        out = order[:leaving]
        # The k-th to leave is pushed out by tuple slack + k, counted with those that waited: it must be there by then.
        if bool(np.any(out > np.arange(slack, slack + leaving))):
            order = _one_by_one(values.tolist(), before, slack)
            out = order[:leaving]
        stay = np.sort(order[leaving:])
        if stay.shape[0]:
            state.index.insert(Chunk(values.take(stay), np.full(stay.shape[0], -1), rows.take(stay)))
        return rows.take(out)

    def _emit(self, state: BsortState, rows: Column, emit: Emit) -> None:
        if rows.shape[0]:
            emit(0, state.store.train(rows))
        if state.store.is_wasteful(state.index.live):
            kept = state.index.rows()
            state.store.keep(kept)
            state.index.renumber_rows(kept)

    # -- time moves --------------------------------------------------------------------------------------------------

    def advance(self, state: BsortState, watermark_ns: int, emit: Emit, tally: Tally) -> None:
        if watermark_ns >= END_OF_TIME_NS:
            gone = state.index.expire(2**63 - 1)
        elif self._is_by_time:
            gone = state.index.expire(watermark_ns)
        else:
            return
        self._emit(state, np.empty(0, np.int64) if gone is None else gone.rows, emit)

    def out_watermark_ns(self, state: BsortState, watermark_ns: int) -> int:
        if self._is_by_time or not state.index.live:
            return watermark_ns
        waiting = state.store.train(state.index.rows())
        times = waiting.arrival_ns if self._time is None else waiting.columns[self._time]
        return min(watermark_ns, int(times.min()))

    # -- the state ---------------------------------------------------------------------------------------------------

    def state_nbytes(self, state: BsortState) -> int:
        return state.store.nbytes + state.index.nbytes

    def snapshot(self, state: BsortState) -> dict[str, Any]:
        return {"highest": state.highest, "rows": pack(state.store.train(state.index.rows()))}

    def restore(self, data: Any) -> BsortState:
        state = self.new_state()
        state.highest = int(data["highest"])
        train = unpack(self._schema, data["rows"])
        if train.count:
            rows = state.store.append(train)
            state.index.insert(Chunk(self._values(train), np.full(train.count, -1), rows))
        return state


def _one_by_one(values: list[int], before: int, slack: int) -> Column:
    """The slow path, for disorder beyond the slack: positions in the order in which they leave, then what stays."""
    heap = [(value, i) for i, value in enumerate(values[:before])]
    heapq.heapify(heap)
    out = []
    for i in range(before, len(values)):
        heapq.heappush(heap, (values[i], i))
        if len(heap) > slack:
            out.append(heapq.heappop(heap)[1])
    return np.array([*out, *(i for _, i in heap)], np.int64)
