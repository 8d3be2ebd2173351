"""SQL scalar expressions: text in, typed numpy kernels out.

big = compile_expression("price * size > 100000", schema)
mask = big.mask(Scope(train))
"""

from __future__ import annotations

from engine.expressions.aggregate_names import AGGREGATES
from engine.expressions.aggregates import AggregateCall, AggregatedExpression, split_aggregates
from engine.expressions.expression import Expression, compile_expression, share
from engine.expressions.functions import FUNCTIONS
from engine.expressions.vector import Mask, Scope, Vector

__all__ = [
    "AGGREGATES",
    "FUNCTIONS",
    "AggregateCall",
    "AggregatedExpression",
    "Expression",
    "Mask",
    "Scope",
    "Vector",
    "compile_expression",
    "share",
    "split_aggregates",
]
