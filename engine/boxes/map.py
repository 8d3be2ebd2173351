"""map: compute fields. ``select`` names all fields of the result; ``add`` keeps the input's and adds or replaces some.

    priced: {map: trades, add: {notional: "price * size"}}
    short: {map: trades, select: {symbol: symbol, cents: "cast(price * 100 as bigint)"}}

A field that is only renamed or passed on shares its column; nothing is copied.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field as Parameter
from pydantic import model_validator

from catalog.schema import Field, Schema
from catalog.shed import UnderLoss
from engine.boxes.base import LOST_TIME, Box, BoxParameters, Emit, Tally, compile_parameter
from engine.expressions import Expression, Scope, share
from storage.train import Train, tidy_valid


class MapParameters(BoxParameters):
    select: dict[str, str] = Parameter(default_factory=dict)
    add: dict[str, str] = Parameter(default_factory=dict)

    @model_validator(mode="after")
    def _one_of_both(self) -> MapParameters:
        if bool(self.select) == bool(self.add):
            raise ValueError("a map has either select (all fields of the result) or add (fields beside the input's)")
        return self


class Map(Box):
    kind = "map"
    summary = "compute fields: select names all of them, add keeps the input's"
    is_prompt = True
    keeps_rows = True
    parameters_model = MapParameters

    def bind(self, inputs: tuple[Schema, ...], times: tuple[str | None, ...]) -> tuple[Schema, ...]:
        schema = inputs[0]
        key = "select" if self.parameters.select else "add"
        texts: dict[str, str] = self.parameters.select or self.parameters.add
        computed = {name: compile_parameter(text, schema, (key, name)) for name, text in texts.items()}
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
        return self._name_after.get(field) == field

    def apply(self, scope: Scope, train: Train) -> Train:
        """The mapped train; also what a fused chain calls."""
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
