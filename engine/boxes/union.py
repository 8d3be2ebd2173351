"""union: several inputs of the same fields become one. Order within an input stays; between inputs there is none.

    lit: {union: [venues.nyse, venues.arca]}

The inputs may have their fields in another order; the first one's holds.
"""

from __future__ import annotations

from typing import Any

from catalog.errors import BindError
from catalog.schema import Field, Schema
from catalog.shed import UnderLoss
from engine.boxes.base import LOST_TIME, Box, BoxParameters, Emit, Tally
from storage.train import Train


class Union(Box):
    kind = "union"
    summary = "several inputs of the same fields as one"
    is_prompt = True
    keeps_rows = True
    parameters_model = BoxParameters
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
                # One input's watermark says nothing of the others: the worker adds the lowest of all.
            ),
        )


def _check_same_fields(first: Schema, other: Schema, number: int) -> None:
    missing = [f.name for f in first if f.name not in other]
    extra = [f.name for f in other if f.name not in first]
    if missing or extra:
        lacks = [f"lacks {', '.join(missing)}"] if missing else []
        has = [f"has {', '.join(extra)} more"] if extra else []
        raise BindError(f"the inputs of a union need the same fields: input {number} {' and '.join(lacks + has)}")
    for f in first:
        if other[f.name].type is not f.type:
            raise BindError(
                f"field {f.name} is {f.type} in input 1 and {other[f.name].type} in input {number}",
                hint="cast one of them in a map before the union",
            )
