"""The type rules: Spark's promotions with ``ansi`` off, and refusals where Spark would guess.

- Numbers widen along int, bigint, float, double. bigint with float is float, as in Spark, although it loses digits.
- A literal with a point or an exponent is a double. (In Spark 1.5 is a decimal; there are no decimals here.)
- A string that is compared with a number, a boolean or a timestamp is cast to the type of the other side, as in Spark.
- A string beside another type in CASE, IF, COALESCE, NVL or NULLIF turns the result into a string, as in Spark. A
  boolean does not become a string there, neither here nor in Spark.
- Arithmetic on strings is refused. Spark would silently cast them to double; ``cast(s as double)`` says it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from catalog.schema import Type
from engine.operators.expressions.tree.node import INTEGER_RANGE, Node, constant

NUMERIC = (Type.INT, Type.BIGINT, Type.FLOAT, Type.DOUBLE)


class Refusal(Exception):
    """A type error in a kernel or a function. The compiler adds its place in the text and raises ExpressionError."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


def with_article(kind: object) -> str:
    """Name a type in a message: ``an int``, ``a double``."""
    return f"{'an' if str(kind)[0] in 'aeiou' else 'a'} {kind}"


def wider(left: Type, right: Type) -> Type:
    """Return the numeric type to which both operands are promoted."""
    return NUMERIC[max(NUMERIC.index(left), NUMERIC.index(right))]


def numeric_pair(what: str, left: Node, right: Node) -> Type:
    """Return the common type of the operands of an arithmetic operator. Refuse all but numbers and bare NULLs."""
    for node in (left, right):
        if node.type is not None and not node.type.is_numeric:
            hint = "write cast(... as double)" if node.type is Type.STRING else ""
            raise Refusal(f"{what} takes numbers, not {node.type}", hint)
    if left.type is None or right.type is None:
        return left.type or right.type or Type.DOUBLE
    return wider(left.type, right.type)


def common(what: str, nodes: Sequence[Node], *, strings: bool = True) -> Type | None:
    """Return the common type of branches; None when all are bare NULLs. With ``strings`` one string makes all of them
    strings."""
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
            raise Refusal(f"{what} mixes {result} and {kind}", "cast one of them")
    return result


def as_constant(node: Node, type: Type) -> Node | None:
    """Convert a numeric constant (or NULL) to another numeric type; None for other nodes."""
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
    """Convert a number to a wider numeric type, by a node of its own. Constants are converted now."""
    if node.type is type:
        return node
    at_once = as_constant(node, type)
    if at_once is not None:
        return at_once
    assert node.type in NUMERIC and type in NUMERIC, f"{node.type} to {type}"
    from engine.operators.expressions.kernels.casts import cast_number  # the casts import this module

    return cast_number(node, type)


def operands(left: Node, right: Node, type: Type) -> tuple[Node, Node]:
    """Convert two operands to one type. An explicit column of the wider type is faster than numpy's casting inside its
    loop, and expressions can share it."""
    return widened(left, type), widened(right, type)
