"""dedup: let a tuple through unless one with the same keys was let through shortly before.

    once: {dedup: alerts, by: [host, rule], within: 1m}

The first tuple of a key passes at once; those that follow it are filtered until one comes whose event time is at
least ``within`` after the last that passed. A tuple that is older than the last that passed is filtered too: it was
overtaken. NULLs in a key are alike. State: one time for each key that passed within ``within`` of the watermark.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import Field as Parameter

from catalog.config.units import PositiveDuration
from catalog.schema import Schema
from catalog.shed import UnderLoss
from engine.boxes.base import Box, BoxParameters, Emit, Tally
from engine.joins.by import LastTimes, fields_of
from engine.joins.index import Column, shifted
from engine.joins.on import check_time
from engine.joins.order import ByKey, Ranked, reachable
from storage.train import NO_WATERMARK, Train


class DedupParameters(BoxParameters):
    by: list[str] = Parameter(min_length=1)
    within: PositiveDuration


class Dedup(Box):
    kind = "dedup"
    summary = "drop tuples whose keys were seen shortly before"
    parameters_model = DedupParameters
    needs_time = True

    def bind(self, inputs: tuple[Schema, ...], times: tuple[str | None, ...]) -> tuple[Schema, ...]:
        check_time("dedup", times, inputs)
        self._schema = inputs[0]
        self._by = fields_of(inputs[0], self.parameters.by, "by")
        self._time = None if times[0] is None else inputs[0].index(times[0])
        return inputs

    def under_loss(self, port: int = 0) -> UnderLoss:
        return "wrong"  # without the first of its key a later one passes

    def keeps(self, field: str) -> bool:
        return True

    def new_state(self) -> LastTimes:
        return LastTimes(self._schema, self._by, self.parameters.within)

    def run(self, state: LastTimes, port: int, train: Train, emit: Emit, tally: Tally) -> None:
        within_ns = self.parameters.within
        numbers = state.numbers(train)
        times = train.arrival_ns if self._time is None else train.columns[self._time]
        last = state.last(numbers)
        # What is too close to the last that passed before this train stays so: the rest is what there is to look at.
        open_rows = np.flatnonzero((last == NO_WATERMARK) | (times >= shifted(last, within_ns)))
        passed = open_rows.take(self._chosen(state, numbers.take(open_rows), times.take(open_rows)))
        tally.filtered += train.count - passed.shape[0]
        if passed.shape[0]:
            emit(0, train.take(passed))

    def _chosen(self, state: LastTimes, numbers: Column, times: Column) -> Column:
        """Which of these rows pass, each of which would if it were the first of its key; ascending."""
        by_key = ByKey(numbers)
        times = times.take(by_key.order)
        after = Ranked(by_key, times).first_at_least(by_key.segment, shifted(times, self.parameters.within))
        passed = np.flatnonzero(reachable(by_key.starts, after))
        state.set(by_key.keys.take(passed), times.take(passed))  # of several of one key, the last one stays
        return np.sort(by_key.order.take(passed))

    def advance(self, state: LastTimes, watermark_ns: int, emit: Emit, tally: Tally) -> None:
        state.watermark_ns = watermark_ns
        live = state.passed()
        if live is not None:
            state.keep(live)

    def state_nbytes(self, state: LastTimes) -> int:
        return state.nbytes

    def snapshot(self, state: LastTimes) -> dict[str, Any]:
        return state.snapshot(state.live())

    def restore(self, data: Any) -> LastTimes:
        state = self.new_state()
        state.restore(data)
        return state
