"""filter: keep the tuples for which a predicate is true.

    big: {filter: trades, where: "price * size > 100000"}

A tuple for which the predicate is false or NULL is dropped and counted as filtered. Fields stay as they are.

Cost: about 4 ns a tuple for a simple predicate. Filters and maps that follow each other run as one pass over the
columns. State: none.

Refused: a predicate that is not a boolean expression over the fields of the input.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field as Parameter

from catalog.loss import UnderLoss
from catalog.schema import Schema, Type
from engine.operators.boxes.base import Box, BoxParameters, Emit, Tally, compile_parameter
from engine.operators.expressions import Scope, share
from storage.train import Train


class FilterParameters(BoxParameters):
    where: str = Parameter(description="boolean SQL expression over the fields of the input")


class Filter(Box):
    kind = "filter"
    summary = "keep the tuples for which a predicate is true"
    is_prompt = True
    parameters_model = FilterParameters
    typical_cost_ns = (12_000.0, 4.0)
    is_selective = True

    def bind(self, inputs: tuple[Schema, ...], times: tuple[str | None, ...]) -> tuple[Schema, ...]:
        self.predicate = compile_parameter(self.parameters.where, inputs[0], ("where",), Type.BOOLEAN)
        share([self.predicate])
        return inputs

    def under_loss(self, port: int = 0) -> UnderLoss:
        return "subset"

    def keeps(self, field: str) -> bool:
        return True

    def run(self, state: Any, port: int, train: Train, emit: Emit, tally: Tally) -> None:
        scope = Scope(train)
        mask = self.predicate.mask(scope)
        kept = train if mask is None else train.where(mask)
        tally.filtered += train.count - kept.count
        tally.null_errors += scope.null_errors
        if kept.count:
            emit(0, kept)
