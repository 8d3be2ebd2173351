"""union: merge several inputs with the same fields into one.

    lit: {union: [venues.nyse, venues.arca]}

Tuples of one input keep their order. Tuples of different inputs have no order. The inputs may list their fields in
different orders: the order of the first input counts. A field is nullable if it is nullable in any input.

The result has an event time if all inputs have it in a field of the same name. Its watermark is the lowest of all
inputs: a silent input holds the others up, unless its stream sets `idle`.

Cost: about 1 ns a tuple; columns are shared, not copied. State: none.

Refused: inputs whose fields differ in name or type, and more than 64 inputs.
"""

from __future__ import annotations

from typing import Any

from catalog.errors import BindError
from catalog.loss import UnderLoss
from catalog.schema import Field, Schema
from engine.operators.boxes.base import LOST_TIME, Box, BoxParameters, Emit, Tally
from storage.train import Train


class Union(Box):
    kind = "union"
    summary = "merge several inputs with the same fields into one"
    is_prompt = True
    keeps_rows = True
    parameters_model = BoxParameters
    typical_cost_ns = (5_000.0, 1.0)
    min_inputs = 2
    max_inputs = 64

    def bind(self, inputs: tuple[Schema, ...], times: tuple[str | None, ...]) -> tuple[Schema, ...]:
        first = inputs[0]
        for number, other in enumerate(inputs[1:], 2):
            _check_same_fields(first, other, number)
        fields = [Field(f.name, f.type, any(schema[f.name].nullable for schema in inputs)) for f in first]
        self.schema = Schema(tuple(fields))
        self._order = [tuple(schema.index(f.name) for f in first) for schema in inputs]
        return (self.schema,)

    def time_out(self, times: tuple[str | None, ...]) -> tuple[str | None, ...]:
        return (times[0] if len(set(times)) == 1 else LOST_TIME,)

    def under_loss(self, port: int = 0) -> UnderLoss:
        return "subset"

    def keeps(self, field: str) -> bool:
        return True

    def run(self, state: Any, port: int, train: Train, emit: Emit, tally: Tally) -> None:
        order = self._order[port]
        valid = train.valid
        emit(
            0,
            Train(
                self.schema,
                tuple([train.columns[i] for i in order]),
                train.arrival_ns,
                valid=None if valid is None else tuple([valid[i] for i in order]),
                pools=tuple([train.pools[i] for i in order]),
                # No watermark: that of one input says nothing of the others. The worker adds the lowest of all.
            ),
        )


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
