"""dedup: drop a tuple if one with the same key passed shortly before.

    once: {dedup: alerts, by: [host, rule], within: 1m}

The first tuple of a key passes at once. The tuples after it are dropped until one comes whose event time is at least
`within` after the last that passed. A tuple that is older than the last that passed is dropped too. Dropped tuples are
counted as filtered. NULLs in a key are equal, and so are NaNs.

Cost: about 60 ns a tuple. State: one time for each key that passed within `within` of the watermark; older keys are
forgotten.

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
from engine.operators.state.columns import Numbers, vector_at
from engine.operators.state.keys import KeyTable
from engine.operators.state.last_times import LastTimes
from engine.operators.state.order import ByKey, Ranked, reachable
from engine.operators.state.time_index import shifted
from storage.train import NO_WATERMARK, Mask, Train


class DedupParameters(KeyedParameters):
    by: list[str] = Parameter(min_length=1, description="fields of the key")
    within: PositiveDuration = Parameter(description="event time from a tuple that passed to the next that may pass")


class Dedup(KeyedBox):
    kind = "dedup"
    summary = "drop a tuple if one with the same key passed shortly before"
    parameters_model = DedupParameters
    typical_cost_ns = (90_000.0, 60.0)
    is_selective = True
    needs_time = True
    emits_at_once = True

    def bind(self, inputs: tuple[Schema, ...], times: tuple[str | None, ...]) -> tuple[Schema, ...]:
        check_time("dedup", times, inputs)
        self._schema = inputs[0]
        self._by = fields_of(inputs[0], self.parameters.by, "by")
        self._time = None if times[0] is None else inputs[0].index(times[0])
        return inputs

    def under_loss(self, port: int = 0) -> UnderLoss:
        return "wrong"  # if the first tuple of a key is missing, a later one passes

    def keeps(self, field: str) -> bool:
        return True

    def new_state(self) -> LastTimes:
        return LastTimes(self._schema, self._by, self.parameters.within)

    def run(self, state: LastTimes, port: int, train: Train, emit: Emit, tally: Tally) -> None:
        within_ns = self.parameters.within
        numbers = state.numbers(train)
        times = self.times_of(port, train)
        last = state.last(numbers)
        # A row too close to the last that passed before this train can be dropped at once. Look at the others.
        open_rows = np.flatnonzero((last == NO_WATERMARK) | (times >= shifted(last, within_ns)))
        passed = open_rows.take(self._chosen(state, numbers.take(open_rows), times.take(open_rows)))
        tally.filtered += train.count - passed.shape[0]
        if passed.shape[0]:
            emit(0, train.take(passed))

    def _chosen(self, state: LastTimes, numbers: Numbers, times: Numbers) -> Numbers:
        """Return which rows pass, ascending. Each would pass if it were the first of its key in this train."""
        by_key = ByKey(numbers)
        times = times.take(by_key.order)
        after = Ranked(by_key, times).first_at_least(by_key.segment, shifted(times, self.parameters.within))
        passed = np.flatnonzero(reachable(by_key.starts, after))
        state.set(by_key.keys.take(passed), times.take(passed))  # of several rows of one key, the last stays
        return np.sort(by_key.order.take(passed))

    def advance(self, state: LastTimes, watermark_ns: int, emit: Emit, tally: Tally) -> None:
        state.watermark_ns = watermark_ns
        state.forget()

    # -- the state by key --------------------------------------------------------------------------------------------

    def key_of(self, port: int, train: Train) -> list[Vector]:
        return [vector_at(train, column) for column in self._by]

    def times_of(self, port: int, train: Train) -> Numbers:
        return train.arrival_ns if self._time is None else train.columns[self._time]

    def keys_in(self, state: LastTimes) -> KeyTable:
        return state.keys

    def last_ns(self, state: LastTimes) -> Numbers:
        return state.times[: state.keys.count]

    def is_empty(self, state: LastTimes) -> bool:
        return not state.live().shape[0]

    # -- the state ---------------------------------------------------------------------------------------------------

    def state_nbytes(self, state: LastTimes) -> int:
        return state.nbytes

    def state_keys(self, state: LastTimes) -> int:
        return state.keys.count

    def snapshot_of(self, state: LastTimes, chosen: Mask | None) -> dict[str, Any]:
        return state.snapshot(state.live(chosen))

    def restore(self, data: Any) -> LastTimes:
        state = self.new_state()
        state.restore(data)
        return state
