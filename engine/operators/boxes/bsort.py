"""bsort: sort by a field, as far as the slack allows.

    ordered: {bsort: trades, slack: 100ms}
    numbered: {bsort: trades, by: seq, slack: 1000}

Without `by` the order is that of the event time.

- With `slack: 100ms` a tuple waits until one has come that is 100 ms ahead of it; `by` is then a timestamp.
- With `slack: 1000` the box holds 1,000 tuples; each further tuple pushes out the lowest.
- Equal tuples leave in the order of their arrival.

Disorder within the slack comes out sorted. A tuple further behind leaves at once, out of order, and so does one whose
field is NULL or NaN. Nothing is dropped. The result does not depend on how the stream is split into trains.

By event time, tuples below the watermark leave as well, because nothing older will come. By another field, the last
tuples wait until the end of the stream.

Behind a join the disorder depends on its band and on its slower input, not on a slack. There, with a slack of time, a
tuple leaves when the watermark has passed it, and the result is in order.

Cost: about 20 ns a tuple by time, 500 ns by count when the disorder is larger than the slack. State: the tuples that
wait.

Refused: a field that is not a number or a timestamp, a slack of time for a field that is not a timestamp, and an input
without event time when `by` is missing.
"""

from __future__ import annotations

import heapq
from typing import Annotated, Any

import numpy as np
from pydantic import BeforeValidator
from pydantic import Field as Parameter

from catalog.config.units import parse_duration_ns
from catalog.errors import BindError
from catalog.loss import UnderLoss
from catalog.schema import Schema, Type
from engine.operators.boxes.base import Box, BoxParameters, Emit, Tally, check_time, field_of
from engine.operators.state.chunk import Chunk
from engine.operators.state.columns import Numbers, vector_at
from engine.operators.state.order import LOWEST, sortable
from engine.operators.state.plain import pack, unpack
from engine.operators.state.time_index import clamped, shifted
from engine.operators.state.timed_rows import TimedRows
from storage.train import END_WATERMARK, Train


def _parse_slack(value: object) -> object:
    """Return a number of tuples as it is, and a duration as a negative number of ns: one int says which."""
    if isinstance(value, bool) or value == 0:
        raise ValueError("a slack of 0 sorts nothing: write 10 (tuples) or 100ms")
    if isinstance(value, int):
        if value < 0:
            raise ValueError("slack must be a number of tuples above 0 or a duration")
        return value
    return -parse_duration_ns(value)


class BsortParameters(BoxParameters):
    slack: Annotated[int, BeforeValidator(_parse_slack)] = Parameter(
        description="how far a tuple may be out of order: a duration, or a number of tuples"
    )
    by: str | None = Parameter(default=None, description="field to sort by; without it the event time")


class BsortState(TimedRows):
    """The tuples that wait, indexed by the field of the order. Owned by the worker that runs the box."""

    __slots__ = ("highest",)

    def __init__(self, schema: Schema) -> None:
        super().__init__(schema)
        self.highest = LOWEST  # of the field, so far


class Bsort(Box):
    kind = "bsort"
    summary = "sort by a field, as far as the slack allows"
    parameters_model = BsortParameters
    typical_cost_ns = (70_000.0, 500.0)
    row_wise = False
    keeps_rows = True
    needs_time = True

    def bind(self, inputs: tuple[Schema, ...], times: tuple[str | None, ...]) -> tuple[Schema, ...]:
        p: BsortParameters = self.parameters
        schema = self._schema = inputs[0]
        check_time("bsort", times, inputs)
        by = times[0] if p.by is None else p.by
        if by is None:
            raise BindError(
                "the input has no event time, and by arrival its tuples are in order: name the field to sort by",
                ("by",),
            )
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
        self._waits = False  # True: tuples leave only when the watermark has passed them
        return inputs

    def runs_behind(self, inputs: tuple[bool, ...]) -> bool:
        self._waits = inputs[0] and self._is_by_time and self.parameters.slack < 0
        return inputs[0] and not self._waits

    def under_loss(self, port: int = 0) -> UnderLoss:
        return "subset"

    def keeps(self, field: str) -> bool:
        return True

    def new_state(self) -> BsortState:
        return BsortState(self._schema)

    # -- tuples come in ----------------------------------------------------------------------------------------------

    def run(self, state: BsortState, port: int, train: Train, emit: Emit, tally: Tally) -> None:
        tally.absorbed += train.count
        values = self._values(train)
        rows = state.store.append(train)
        if self._waits:
            state.index.insert(Chunk(values, rows))
            return
        out = self._by_time(state, values, rows) if self.parameters.slack < 0 else self._by_count(state, values, rows)
        self._emit(state, out, emit)

    def _values(self, train: Train) -> Numbers:
        """Return the place of each tuple in the order; the lowest for NULL and NaN."""
        vector = vector_at(train, self._by)
        values = sortable(vector)
        if vector.values.dtype.kind == "f":
            values[np.isnan(vector.values)] = LOWEST
        return values

    def _by_time(self, state: BsortState, values: Numbers, rows: Numbers) -> Numbers:
        """Return the rows that leave, in order. A row leaves with the first tuple that is a slack ahead of it."""
        slack_ns = -self.parameters.slack
        highest = np.maximum.accumulate(np.maximum(values, state.highest))
        state.highest = int(highest[-1])
        state.index.insert(Chunk(values, rows))
        gone = state.index.expire(max(clamped(state.highest - slack_ns + 1), LOWEST + 1))
        if gone is None:
            return np.empty(0, np.int64)
        step = np.searchsorted(highest, shifted(gone.times, slack_ns))
        step[gone.times == LOWEST] = 0
        step = np.maximum(step, gone.rows - rows[0])  # not before it has come
        if bool(np.all(step[1:] >= step[:-1])):
            return gone.rows
        return gone.rows.take(np.lexsort((gone.rows, gone.times, step)))

    def _by_count(self, state: BsortState, values: Numbers, rows: Numbers) -> Numbers:
        """Return the rows that leave: each tuple beyond the slack pushes out the lowest.

        One sort does it if no tuple comes too late for its place; else a heap, tuple by tuple.
        """
        slack = self.parameters.slack
        waiting = state.index.expire(2**63 - 1)
        before = 0 if waiting is None else waiting.rows.shape[0]
        if waiting is not None:
            values = np.concatenate([waiting.times, values])
            rows = np.concatenate([waiting.rows, rows])
        order = np.argsort(values, kind="stable")
        leaving = max(0, order.shape[0] - slack)
        out = order[:leaving]
        # Tuple number slack + k, counted with those that waited, pushes out the k-th to leave. That one must have come.
        if bool(np.any(out > np.arange(slack, slack + leaving))):
            order = _one_by_one(values.tolist(), before, slack)
            out = order[:leaving]
        stay = np.sort(order[leaving:])
        if stay.shape[0]:
            state.index.insert(Chunk(values.take(stay), rows.take(stay)))
        return rows.take(out)

    def _emit(self, state: BsortState, rows: Numbers, emit: Emit) -> None:
        if rows.shape[0]:
            emit(0, state.store.train(rows))
        state.close_gaps()

    # -- time moves --------------------------------------------------------------------------------------------------

    def advance(self, state: BsortState, watermark_ns: int, emit: Emit, tally: Tally) -> None:
        if watermark_ns >= END_WATERMARK:
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

    def held_tuples(self, state: BsortState) -> int:
        return state.index.live

    def waits_for_time(self) -> bool:
        return self._is_by_time

    def state_nbytes(self, state: BsortState) -> int:
        return state.nbytes

    def snapshot(self, state: BsortState) -> dict[str, Any]:
        return {"highest": state.highest, "rows": pack(state.store.train(state.index.rows()))}

    def restore(self, data: Any) -> BsortState:
        state = self.new_state()
        state.highest = int(data["highest"])
        train = unpack(self._schema, data["rows"])
        if train.count:
            rows = state.store.append(train)
            state.index.insert(Chunk(self._values(train), rows))
        return state


def _one_by_one(values: list[int], before: int, slack: int) -> Numbers:
    """Sort with a heap, for disorder beyond the slack: positions in the order of leaving, then those that stay."""
    heap = [(value, i) for i, value in enumerate(values[:before])]
    heapq.heapify(heap)
    out = []
    for i in range(before, len(values)):
        heapq.heappush(heap, (values[i], i))
        if len(heap) > slack:
            out.append(heapq.heappop(heap)[1])
    return np.array([*out, *(i for _, i in heap)], np.int64)
