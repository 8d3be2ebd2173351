"""case: send each tuple out by the port of the first predicate that is true for it.

    venues: {case: trades, when: {nyse: "venue = 'N'", arca: "venue = 'P'"}, otherwise: rest}

Each name in `when` is a port, which other boxes read as `venues.nyse`. The predicates are tried in the order of the
file, and a tuple leaves by one port only. A tuple for which no predicate is true leaves by the port `otherwise`;
without that port it is dropped and counted as filtered.

Cost: about 15 ns a tuple. The box computes a predicate for a whole train and stops when every tuple has its port.
State: none.

Refused: a predicate that is not boolean, and an `otherwise` with the name of a port of `when`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import Field as Parameter

from catalog.errors import BindError
from catalog.loss import UnderLoss
from catalog.schema import Schema, Type
from engine.operators.boxes.base import Box, BoxParameters, Emit, Tally, compile_parameters
from engine.operators.expressions import Scope, share
from storage.train import Train


class CaseParameters(BoxParameters):
    when: dict[str, str] = Parameter(min_length=1, description="ports, each with its predicate, in the order to try")
    otherwise: str | None = Parameter(default=None, description="port of the tuples for which no predicate is true")


class Case(Box):
    kind = "case"
    summary = "route each tuple by the first predicate that is true for it"
    is_prompt = True
    parameters_model = CaseParameters
    typical_cost_ns = (25_000.0, 15.0)
    is_selective = True

    @classmethod
    def ports(cls, parameters: CaseParameters) -> tuple[str, ...]:
        return (*parameters.when, *([parameters.otherwise] if parameters.otherwise else []))

    def bind(self, inputs: tuple[Schema, ...], times: tuple[str | None, ...]) -> tuple[Schema, ...]:
        p: CaseParameters = self.parameters
        if p.otherwise in p.when:
            raise BindError(f"when already has a port {p.otherwise!r}", ("otherwise",))
        self.predicates = list(compile_parameters(p.when, inputs[0], "when", Type.BOOLEAN).values())
        share(self.predicates)
        return (inputs[0],) * len(self.ports(p))

    def under_loss(self, port: int = 0) -> UnderLoss:
        return "subset"

    def keeps(self, field: str) -> bool:
        return True

    def run(self, state: Any, port: int, train: Train, emit: Emit, tally: Tally) -> None:
        scope = Scope(train)
        free = np.ones(train.count, np.bool_)  # rows that no predicate has taken yet
        left = train.count
        for out_port, predicate in enumerate(self.predicates):
            mask = predicate.mask(scope)
            mine = free if mask is None else free & mask
            chosen = train.where(mine)
            if chosen.count:
                emit(out_port, chosen)
                left -= chosen.count
                if not left:
                    break
                free = free & ~mine
        tally.null_errors += scope.null_errors
        if left and self.parameters.otherwise:
            emit(len(self.predicates), train.where(free))
        else:
            tally.filtered += left
