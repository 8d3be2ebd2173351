"""universal: a box of given cost and selectivity, for experiments.

    busy: {universal: trades, cost: 20us, call_cost: 100us, selectivity: 0.5}

The box passes tuples on unchanged. A call spends `call_cost`, and `cost` for each of its tuples. This is real processor
time, spent with the GIL released, so that two workers run two such boxes at once.

The selectivity is exact and not random: of the first k tuples, floor(k * selectivity) come out. The same tuples come
out however the stream is split into trains. A selectivity above 1 repeats tuples.

State: the number of tuples seen.
"""

from __future__ import annotations

import hashlib
from time import thread_time_ns
from typing import Any

import numpy as np
from pydantic import Field as Parameter

from catalog.config.units import Duration
from catalog.loss import UnderLoss
from catalog.schema import Schema
from engine.operators.boxes.base import Box, BoxParameters, Emit, Tally
from storage.train import Train

_ZEROS = memoryview(bytes(16 << 20))  # read only, so the kernel backs all of it with one page
_LEAST = 4_096  # bytes, about 3 us; above 2,047 hashlib releases the GIL
_NEAR = 0.02  # of the cost: an error that is small enough
_pace = [1.0]  # bytes hashed in a nanosecond of processor time, as last measured


class UniversalParameters(BoxParameters):
    cost: Duration = Parameter(default=0, description="processor time of a tuple")
    call_cost: Duration = Parameter(default=0, description="processor time of a call, whatever its tuples")
    selectivity: float = Parameter(default=1.0, ge=0.0, le=1_000.0, description="tuples out for each tuple in")


class Universal(Box):
    kind = "universal"
    summary = "a box of given cost and selectivity, for experiments"
    parameters_model = UniversalParameters
    typical_cost_ns = (4_000.0, 0.0)
    merges_inputs = True

    @classmethod
    def may_share(cls, parameters: Any) -> bool:
        return False  # it stands for any box: equal ones in an experiment are different ones

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
        tally.filtered += train.count - len(index)  # negative where a selectivity above 1 repeats tuples
        if len(index):
            emit(0, train.take(index))

    def snapshot(self, state: list[int]) -> list[int]:
        return state

    def restore(self, data: Any) -> list[int]:
        return list(data)


def spend(cost_ns: int) -> None:
    """Spend this much processor time of this thread, by hashing zeros with the GIL released.

    Each block is as long as the time that is left. A thread that asks for the GIL every few microseconds waits whenever
    another thread holds it: with short blocks, a box of 200 us took 350 us beside an I/O thread that was busy for a
    sixth of the time.
    """
    now_ns = thread_time_ns()
    end_ns = now_ns + cost_ns
    while (left_ns := end_ns - now_ns) > _NEAR * cost_ns:
        size = min(len(_ZEROS), max(_LEAST, int(left_ns * _pace[0])))
        hashlib.blake2b(_ZEROS[:size])
        begun_ns, now_ns = now_ns, thread_time_ns()
        if size > 4 * _LEAST:
            _pace[0] = size / max(now_ns - begun_ns, 1)
