"""Casts as functions: ``int(x)`` is ``cast(x as int)``, as in Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from catalog.schema import Type
from engine.operators.expressions.functions.signatures import function
from engine.operators.expressions.kernels.casts import cast
from engine.operators.expressions.tree.node import Node


def _to(type: Type) -> Callable[[Sequence[Node]], Node]:
    return lambda args: cast(args[0], type)


_EXAMPLES = {
    Type.BOOLEAN: "boolean('yes') -> true",
    Type.INT: "int(2.9) -> 2",
    Type.BIGINT: "bigint('12') -> 12",
    Type.FLOAT: "float('1.5') -> 1.5",
    Type.DOUBLE: "double('1e3') -> 1000.0",
    Type.STRING: "string(1.5) -> '1.5'",
    Type.TIMESTAMP: "timestamp('2026-03-05') -> timestamp '2026-03-05 00:00:00'",
}
FUNCTIONS = tuple(
    function(f"{type}(x: any) -> {type}", f"the same as cast(x as {type})", _to(type), _EXAMPLES[type]) for type in Type
)
