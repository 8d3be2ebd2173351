"""filter: keep the tuples for which a predicate is true. NULL is not true.

    big: {filter: trades, where: "price * size > 100000"}

Filters in a row run as one pass over the columns (``engine/fuse.py``).
"""

from __future__ import annotations

from typing import Any

from catalog.schema import Schema, Type
from catalog.shed import UnderLoss
from engine.boxes.base import Box, BoxParameters, Emit, Tally, compile_parameter
from engine.expressions import Scope, share
from storage.train import Train


class FilterParameters(BoxParameters):
    where: str


class Filter(Box):
    kind = "filter"
    summary = "keep the tuples for which a predicate is true"
    is_prompt = True
    parameters_model = FilterParameters

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
