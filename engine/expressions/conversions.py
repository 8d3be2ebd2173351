"""Casts by name: ``int(x)`` is ``cast(x as int)``, as in Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from catalog.schema import Type
from engine.expressions.casts import cast
from engine.expressions.node import Node
from engine.expressions.signatures import function


def _to(type: Type) -> Callable[[Sequence[Node]], Node]:
    return lambda args: cast(args[0], type)


FUNCTIONS = tuple(function(f"{type}(x) -> {type}", f"cast(x as {type})", _to(type)) for type in Type)
