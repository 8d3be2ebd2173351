"""Which types meet where: Spark's promotions with ``ansi`` off, and refusals where Spark would guess.

- Numbers widen along int, bigint, float, double. bigint with float is float, as in Spark, though it loses digits.
- A literal with a point or an exponent is a double. (Spark makes 1.5 a decimal; there are no decimals here.)
- A string compared with a number, a boolean or a timestamp is cast to the other side's type, as Spark does.
- A string in CASE, IF, COALESCE, NVL or NULLIF beside another type makes the whole a string, as in Spark. Booleans
  are not turned into strings there, nor in Spark.
- Arithmetic on strings is refused; Spark would cast them to double in silence. ``cast(s as double)`` says it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from catalog.schema import Type
from engine.expressions.node import INTEGER_RANGE, Node, constant

NUMERIC = (Type.INT, Type.BIGINT, Type.FLOAT, Type.DOUBLE)


class Refusal(Exception):
    """A type error found below the syntax tree; the compiler adds the place and raises ExpressionError."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


def wider(left: Type, right: Type) -> Type:
    """The numeric type that both operands go to."""
    return NUMERIC[max(NUMERIC.index(left), NUMERIC.index(right))]


def numeric_pair(what: str, left: Node, right: Node) -> Type:
    """The common type of two operands of an arithmetic operator; Refusal unless both are numbers (or bare NULLs)."""
    for node in (left, right):
        if node.type is not None and not node.type.is_numeric:
            hint = "write cast(... as double)" if node.type is Type.STRING else ""
            raise Refusal(f"{what} takes numbers, not {node.type}", hint)
    if left.type is None or right.type is None:
        return left.type or right.type or Type.DOUBLE
    return wider(left.type, right.type)


def common(what: str, nodes: Sequence[Node], *, strings: bool = True) -> Type | None:
    """The common type of branches; None when all are bare NULLs. ``strings``: a string pulls the others along."""
    result: Type | None = None
    for node in nodes:
        kind = node.type
        if kind is None or kind is result:
            continue
        if result is None:
            result = kind
        elif kind.is_numeric and result.is_numeric:
            result = wider(kind, result)
        elif strings and Type.STRING in (kind, result) and Type.BOOLEAN not in (kind, result):
            result = Type.STRING
        else:
            raise Refusal(f"{what} has {result} in one place and {kind} in another", "cast one of them")
    return result


def as_constant(node: Node, type: Type) -> Node | None:
    """A numeric constant (or NULL) at another numeric type; None when it is not one."""
    if node.type is None or node.is_null:
        return constant(None, type)
    if node.constant is None or not type.is_numeric or not node.type.is_numeric:
        return None
    value = node.value
    if type.is_integer:
        low, high = INTEGER_RANGE[type]
        return constant(value, type) if isinstance(value, int) and low <= value <= high else None
    with np.errstate(all="ignore"):
        return constant(float(np.asarray(value).astype(type.dtype)), type)


def widened(node: Node, type: Type) -> Node:
    """A number at a wider numeric type, by an explicit node. Constants turn at once."""
    if node.type is type:
        return node
    at_once = as_constant(node, type)
    if at_once is not None:
        return at_once
    assert node.type in NUMERIC and type in NUMERIC, f"{node.type} to {type}"
    from engine.expressions.casts import cast_number  # the cast kernels build on this module

    return cast_number(node, type)


def operands(left: Node, right: Node, type: Type) -> tuple[Node, Node]:
    """Two operands at one type. An explicit column of the wider type is faster than numpy's casting inside its loop,
    and expressions can share it."""
    return widened(left, type), widened(right, type)
