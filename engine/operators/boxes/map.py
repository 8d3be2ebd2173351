"""map: compute fields.

    priced: {map: trades, add: {notional: "price * size"}}
    short: {map: trades, select: {ts: ts, symbol: symbol, cents: "cast(price * 100 as bigint)"}}

`select` names all fields of the result. `add` keeps the fields of the input and adds fields or replaces them. Every
expression reads the fields of the input, not those that the same map computes. Overflow and division by zero give NULL
and are counted.

The result has an event time only if it has the field of the event time, under any name. A box downstream that goes by
event time refuses an input that has lost it.

Cost: about 3 ns a tuple for a simple expression. A field that is only renamed or passed on shares its column: nothing
is copied. State: none.

Refused: `select` and `add` together, and neither of them.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field as Parameter
from pydantic import model_validator

from catalog.loss import UnderLoss
from catalog.schema import Field, Schema
from engine.operators.boxes.base import (
    LOST_TIME,
    Box,
    BoxParameters,
    Emit,
    Tally,
    compile_parameter,
    compile_parameters,
)
from engine.operators.expressions import Expression, Scope, share
from storage.train import Train, tidy_valid


class MapParameters(BoxParameters):
    select: dict[str, str] = Parameter(
        default_factory=dict, description="all fields of the result, each with its SQL expression"
    )
    add: dict[str, str] = Parameter(
        default_factory=dict, description="fields to add to those of the input or to replace, each with its expression"
    )

    @model_validator(mode="after")
    def _one_of_both(self) -> MapParameters:
        if bool(self.select) == bool(self.add):
            raise ValueError(
                "a map takes either select (all fields of the result) or add (fields beside those of the input)"
            )
        return self


class Map(Box):
    kind = "map"
    summary = "compute fields: select names all of them, add keeps the input's"
    is_prompt = True
    keeps_rows = True
    parameters_model = MapParameters
    typical_cost_ns = (15_000.0, 3.0)

    def bind(self, inputs: tuple[Schema, ...], times: tuple[str | None, ...]) -> tuple[Schema, ...]:
        schema = inputs[0]
        key = "select" if self.parameters.select else "add"
        texts: dict[str, str] = self.parameters.select or self.parameters.add
        computed = compile_parameters(texts, schema, key)
        columns = {name: compile_parameter(f"`{name}`", schema, (key,)) for name in schema.names}
        if key == "add":
            computed = {**columns, **computed}
        self.expressions: tuple[Expression, ...] = tuple(computed.values())
        self.schema = Schema(tuple(Field(name, e.type, e.nullable) for name, e in computed.items()))
        by_key = {e.key: name for name, e in computed.items()}
        self._name_after = {name: by_key[e.key] for name, e in columns.items() if e.key in by_key}
        share(self.expressions)
        return (self.schema,)

    def time_out(self, times: tuple[str | None, ...]) -> tuple[str | None, ...]:
        return (None if times[0] is None else self._name_after.get(times[0], LOST_TIME),)

    def under_loss(self, port: int = 0) -> UnderLoss:
        return "subset"

    def keeps(self, field: str) -> bool:
        return self.name_after(field) == field

    def name_after(self, field: str) -> str | None:
        """Return the name under which the result has this field unchanged; None when it has not."""
        return self._name_after.get(field)

    def apply(self, scope: Scope, train: Train) -> Train:
        """Return the mapped train. A fused chain calls this as well."""
        results = [e.evaluate(scope) for e in self.expressions]
        return Train(
            self.schema,
            tuple([r.values for r in results]),
            train.arrival_ns,
            valid=tidy_valid([r.valid for r in results]),
            pools=tuple([r.pool for r in results]),
            watermark_ns=train.watermark_ns,
        )

    def run(self, state: Any, port: int, train: Train, emit: Emit, tally: Tally) -> None:
        scope = Scope(train)
        emit(0, self.apply(scope, train))
        tally.null_errors += scope.null_errors
