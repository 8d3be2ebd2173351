"""CAST and TRY_CAST between all types (numbers for now)."""

from __future__ import annotations

import numpy as np

from catalog.schema import Type
from engine.expressions.coerce import Refusal
from engine.expressions.node import Node, folded
from engine.expressions.vector import Scope, Vector


def cast_number(node: Node, type: Type) -> Node:
    """A number at a wider type, where nothing can fail."""
    dtype = type.dtype

    def run(scope: Scope) -> Vector:
        x = node.run(scope)
        return Vector(x.values.astype(dtype), x.valid)

    assert node.type is not None
    from_integer = node.type.is_integer
    return folded(
        Node(
            f"cast({node.key} as {type})",
            type,
            run,
            (node,),
            can_nan=not from_integer and node.can_nan,
            range=node.value_range if from_integer and type.is_integer else None,
        )
    )


def text_operand(op: str, left: Node, right: Node) -> tuple[Node, Node]:
    raise Refusal(f"{op} cannot compare {left.type} with {right.type}", "cast one of them")


_ = np
