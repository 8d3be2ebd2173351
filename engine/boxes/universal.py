"""universal: a box of given cost and selectivity, for experiments. It passes tuples on unchanged.

    busy: {universal: trades, cost: 20us, call_cost: 100us, selectivity: 0.5}

A call costs ``call_cost`` and a tuple in it ``cost``. That is processor time really spent, with Python's lock let go
(hashing a block does both), so that two workers run two such boxes at once. The selectivity is exact and without
chance: of the first k tuples floor(k * selectivity) are out, so the same tuples come out whatever the trains.

The blocks are as long as what is left to spend: whoever comes back for the lock every few microseconds stands still
whenever another thread has it, and a box of 200 us took 350 beside an I/O thread that was busy for a sixth of the time.
"""

from __future__ import annotations

import hashlib
from time import thread_time_ns
from typing import Any

import numpy as np
from pydantic import Field as Parameter

from catalog.config.units import Duration
from catalog.schema import Schema
from catalog.shed import UnderLoss
from engine.boxes.base import Box, BoxParameters, Emit, Tally
from storage.train import Train

_ZEROS = memoryview(bytes(16 << 20))  # read only, so the kernel backs all of it with one page
_LEAST = 4_096  # bytes, about 3 us; above 2,047 hashlib lets go of Python's lock
_NEAR = 0.02  # of the cost: near enough
_pace = [1.0]  # bytes hashed in a nanosecond of processor time, as seen last


class UniversalParameters(BoxParameters):
    cost: Duration = 0
    call_cost: Duration = 0
    selectivity: float = Parameter(default=1.0, ge=0.0, le=1_000.0)


class Universal(Box):
    kind = "universal"
    summary = "a box of given cost and selectivity, for experiments"
    parameters_model = UniversalParameters
    merges_inputs = True

    def bind(self, inputs: tuple[Schema, ...], times: tuple[str | None, ...]) -> tuple[Schema, ...]:
        return inputs

    def under_loss(self, port: int = 0) -> UnderLoss:
        return "subset"

    def keeps(self, field: str) -> bool:
        return True

    def new_state(self) -> list[int]:
        return [0]  # tuples seen

    def run(self, state: list[int], port: int, train: Train, emit: Emit, tally: Tally) -> None:
        spend(self.parameters.call_cost + self.parameters.cost * train.count)
        seen = state[0]
        state[0] = seen + train.count
        if self.parameters.selectivity == 1.0:
            emit(0, train)
            return
        due = np.floor(np.arange(seen, seen + train.count + 1) * self.parameters.selectivity)
        copies = np.diff(due).astype(np.intp)
        index = np.repeat(np.arange(train.count), copies)
        tally.filtered += train.count - len(index)  # negative where a selectivity above 1 makes more of them
        if len(index):
            emit(0, train.take(index))

    def snapshot(self, state: list[int]) -> list[int]:
        return state

    def restore(self, data: Any) -> list[int]:
        return list(data)


def spend(cost_ns: int) -> None:
    """Use that much processor time of this thread."""
    now_ns = thread_time_ns()
    end_ns = now_ns + cost_ns
    while (left_ns := end_ns - now_ns) > _NEAR * cost_ns:
        size = min(len(_ZEROS), max(_LEAST, int(left_ns * _pace[0])))
        hashlib.blake2b(_ZEROS[:size])
        begun_ns, now_ns = now_ns, thread_time_ns()
        if size > 4 * _LEAST:
            _pace[0] = size / max(now_ns - begun_ns, 1)
