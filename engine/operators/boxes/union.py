"""union: merge several inputs with the same fields into one.

    lit: {union: [venues.nyse, venues.arca]}
    merged: {union: [trades, trades], order: time}

Tuples of one input keep their order. Tuples of different inputs have no order. The inputs may list their fields in
different orders: the order of the first input counts. A field is nullable if it is nullable in any input.

With `order: time` all tuples leave in the order of their event time (or of their arrival, where no input has an event
time). A tuple waits until the watermark of every input has passed it, so the slowest input sets the pace. Of equal
times the input that is named first comes first. Tuples below the watermark are late: they are counted and dropped,
because they cannot leave in order any more.

The result has an event time if all inputs have it in a field of the same name. Its watermark is the lowest of all
inputs: a silent input holds the others up, unless its stream sets `idle`.

Cost: about 1 ns a tuple; columns are shared, not copied. State: none. With `order: time` about 20 ns a tuple, and the
state is the tuples that wait.

Refused: inputs whose fields differ in name or type, and more than 64 inputs. With `order: time` also inputs that have
their event times in different fields, or have lost them.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field as Parameter

from catalog.errors import BindError
from catalog.loss import UnderLoss
from catalog.schema import Field, Schema
from engine.operators.boxes.base import LOST_TIME, Box, BoxParameters, Emit, Tally, check_time
from engine.operators.state.ordered_inputs import OrderedInputs
from engine.operators.state.time_index import MAX_NS
from storage.train import END_WATERMARK, NO_WATERMARK, Train


class UnionParameters(BoxParameters):
    added: ClassVar[frozenset[str]] = frozenset({"order"})

    order: Literal["time"] | None = Parameter(
        default=None, description="time: wait for the slowest input and emit in the order of event time"
    )


class OrderedUnionState:
    """Owned by the worker that runs the box."""

    __slots__ = ("waiting", "watermark_ns")

    def __init__(self, waiting: OrderedInputs) -> None:
        self.waiting = waiting
        self.watermark_ns = NO_WATERMARK  # everything below it has left


class Union(Box):
    kind = "union"
    summary = "merge several inputs with the same fields into one"
    is_prompt = True
    keeps_rows = True
    parameters_model = UnionParameters
    typical_cost_ns = (5_000.0, 1.0)
    min_inputs = 2
    max_inputs = 64

    def __init__(self, parameters: UnionParameters) -> None:
        super().__init__(parameters)
        if parameters.order is not None:
            self.is_prompt, self.row_wise, self.needs_time = False, False, True

    def bind(self, inputs: tuple[Schema, ...], times: tuple[str | None, ...]) -> tuple[Schema, ...]:
        first = inputs[0]
        for number, other in enumerate(inputs[1:], 2):
            _check_same_fields(first, other, number)
        fields = [Field(f.name, f.type, any(schema[f.name].nullable for schema in inputs)) for f in first]
        self.schema = Schema(tuple(fields))
        self._order = [tuple(schema.index(f.name) for f in first) for schema in inputs]
        if self.parameters.order is not None:
            check_time("union", times, inputs)
            if len(set(times)) > 1:
                named = ", ".join(t or "none" for t in times)
                raise BindError(f"the inputs have their event times in different fields: {named}", ("order",))
            self._time = None if times[0] is None else self.schema.index(times[0])
        return (self.schema,)

    def time_out(self, times: tuple[str | None, ...]) -> tuple[str | None, ...]:
        return (times[0] if len(set(times)) == 1 else LOST_TIME,)

    def under_loss(self, port: int = 0) -> UnderLoss:
        return "subset"

    def keeps(self, field: str) -> bool:
        return True

    def run(self, state: OrderedUnionState | None, port: int, train: Train, emit: Emit, tally: Tally) -> None:
        aligned = self._aligned(port, train)
        if state is None:
            emit(0, aligned)
            return
        late = state.waiting.times(port, aligned) < state.watermark_ns
        if late.any():
            aligned = aligned.where(~late)
            tally.late += train.count - aligned.count
        tally.absorbed += aligned.count
        state.waiting.put(port, aligned)

    def _aligned(self, port: int, train: Train) -> Train:
        """Return the train with the fields of the result, in their order."""
        order = self._order[port]
        valid = train.valid
        return Train(
            self.schema,
            tuple([train.columns[i] for i in order]),
            train.arrival_ns,
            valid=None if valid is None else tuple([valid[i] for i in order]),
            pools=tuple([train.pools[i] for i in order]),
            # No watermark: that of one input says nothing of the others. The worker adds the lowest of all.
        )

    # -- with order: time ---------------------------------------------------------------------------------------------

    def new_state(self) -> OrderedUnionState | None:
        if self.parameters.order is None:
            return None
        return OrderedUnionState(OrderedInputs([(self.schema, self._time)] * len(self._order)))

    def advance(self, state: OrderedUnionState | None, watermark_ns: int, emit: Emit, tally: Tally) -> None:
        if state is None:
            return
        state.watermark_ns = watermark_ns
        parts = state.waiting.release(MAX_NS if watermark_ns >= END_WATERMARK else watermark_ns)
        if len(parts) == 1:
            emit(0, parts[0][1])
        elif parts:
            times = np.concatenate([times for _, _, times in parts])
            # Stable: of equal times the first input comes first, and each input keeps its order.
            emit(0, Train.concat([train for _, train, _ in parts]).take(np.argsort(times, kind="stable")))

    def waits_for_time(self) -> bool:
        return self.parameters.order is not None

    def held_tuples(self, state: OrderedUnionState | None) -> int:
        return 0 if state is None else state.waiting.tuples

    def state_nbytes(self, state: OrderedUnionState | None) -> int:
        return 0 if state is None else state.waiting.nbytes

    def snapshot(self, state: OrderedUnionState | None) -> Any:
        return None if state is None else {"watermark_ns": state.watermark_ns, "waiting": state.waiting.snapshot()}

    def restore(self, data: Any) -> OrderedUnionState | None:
        state = self.new_state()
        if state is not None:
            state.watermark_ns = int(data["watermark_ns"])
            state.waiting.restore(data["waiting"])
        return state


def _check_same_fields(first: Schema, other: Schema, number: int) -> None:
    missing = [f.name for f in first if f.name not in other]
    extra = [f.name for f in other if f.name not in first]
    if missing or extra:
        lacks = [f"lacks {', '.join(missing)}"] if missing else []
        has = [f"also has {', '.join(extra)}"] if extra else []
        raise BindError(f"the inputs of a union need the same fields: input {number} {' and '.join(lacks + has)}")
    for f in first:
        if other[f.name].type is not f.type:
            raise BindError(
                f"field {f.name} is {f.type} in input 1 and {other[f.name].type} in input {number}",
                hint="cast one of them in a map before the union",
            )
