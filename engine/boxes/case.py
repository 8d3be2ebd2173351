"""case: send each tuple out by the port of the first predicate that is true for it; ``otherwise`` names one more port.

    venues: {case: trades, when: {nyse: "venue = 'N'", arca: "venue = 'P'"}, otherwise: rest}

Others read ``venues.nyse`` and so on. Without ``otherwise`` a tuple that no predicate wants is filtered, and counted
as such.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import Field as Parameter

from catalog.errors import BindError
from catalog.schema import Schema, Type
from catalog.shed import UnderLoss
from engine.boxes.base import Box, BoxParameters, Emit, Tally, compile_parameter
from engine.expressions import Scope, share
from storage.train import Train


class CaseParameters(BoxParameters):
    when: dict[str, str] = Parameter(min_length=1)
    otherwise: str | None = None


class Case(Box):
    kind = "case"
    summary = "route each tuple by the first predicate that is true for it"
    is_prompt = True
    parameters_model = CaseParameters

    @classmethod
    def ports(cls, parameters: CaseParameters) -> tuple[str, ...]:
        return (*parameters.when, *([parameters.otherwise] if parameters.otherwise else []))

    def bind(self, inputs: tuple[Schema, ...], times: tuple[str | None, ...]) -> tuple[Schema, ...]:
        p: CaseParameters = self.parameters
        if p.otherwise in p.when:
            raise BindError(f"port {p.otherwise!r} is named in when already", ("otherwise",))
        self.predicates = [compile_parameter(t, inputs[0], ("when", n), Type.BOOLEAN) for n, t in p.when.items()]
        share(self.predicates)
        return (inputs[0],) * len(self.ports(p))

    def under_loss(self, port: int = 0) -> UnderLoss:
        return "subset"

    def keeps(self, field: str) -> bool:
        return True

    def run(self, state: Any, port: int, train: Train, emit: Emit, tally: Tally) -> None:
        scope = Scope(train)
        free = np.ones(train.count, np.bool_)  # not yet taken by a predicate
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
