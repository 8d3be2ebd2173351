"""Bits of integers: & | ^ ~ and shifts. As in Java, only the low 5 (int) or 6 (bigint) bits of a distance count."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from catalog.schema import Type
from engine.operators.expressions.functions.signatures import function
from engine.operators.expressions.tree.coerce import Refusal, operands, wider
from engine.operators.expressions.tree.node import Node, constant, folded
from engine.operators.expressions.tree.vector import Scope, Vector, both_valid

_UFUNCS: dict[str, Any] = {"&": np.bitwise_and, "|": np.bitwise_or, "^": np.bitwise_xor}


def _integer(what: str, node: Node) -> Node:
    if node.type is not None and not node.type.is_integer:
        raise Refusal(f"{what} takes integers, not {node.type}")
    return node


def bitwise(op: str, left: Node, right: Node) -> Node:
    left, right = _integer(op, left), _integer(op, right)
    kind = wider(left.type or Type.INT, right.type or Type.INT)
    if left.type is None or right.type is None or left.is_null or right.is_null:
        return constant(None, kind)
    left, right = operands(left, right, kind)
    ufunc = _UFUNCS[op]

    def run(scope: Scope) -> Vector:
        x, y = left.run(scope), right.run(scope)
        return Vector(ufunc(x.values, y.values), both_valid(x, y))

    keys = sorted((left.key, right.key))
    return folded(Node(f"({keys[0]} {op} {keys[1]})", kind, run, (left, right)))


def inverted(node: Node) -> Node:
    node = _integer("~", node)
    if node.type is None or node.is_null:
        return constant(None, node.type or Type.INT)

    def run(scope: Scope) -> Vector:
        x = node.run(scope)
        return Vector(~x.values, x.valid)

    return folded(Node(f"(~{node.key})", node.type, run, (node,)))


def shifted(op: str, left: Node, right: Node) -> Node:
    left, right = _integer(op, left), _integer(op, right)
    kind = left.type or Type.INT
    if left.type is None or right.type is None or left.is_null or right.is_null:
        return constant(None, kind)
    ufunc = np.left_shift if op == "<<" else np.right_shift
    low_bits = kind.dtype.type(31 if kind is Type.INT else 63)

    def run(scope: Scope) -> Vector:
        x, y = left.run(scope), right.run(scope)
        return Vector(ufunc(x.values, y.values.astype(kind.dtype) & low_bits), both_valid(x, y))

    return folded(Node(f"({left.key} {op} {right.key})", kind, run, (left, right)))


def _shift(op: str) -> Callable[[Sequence[Node]], Node]:
    return lambda args: shifted(op, args[0], args[1])


FUNCTIONS = (
    function(
        "shiftleft(x: integer, distance: int) -> type of x",
        "moves the bits of x to the left; x << distance is the same",
        _shift("<<"),
        "shiftleft(3, 2) -> 12",
    ),
    function(
        "shiftright(x: integer, distance: int) -> type of x",
        "moves the bits of x to the right and keeps the sign; x >> distance is the same",
        _shift(">>"),
        "shiftright(-8, 1) -> -4",
    ),
)
