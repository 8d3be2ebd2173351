"""Comparison as in Spark: NaN equals NaN and is greater than every number; strings compare by code point.

In IEEE arithmetic every comparison with NaN is false. So ``x > c`` is computed as ``not x <= c``, which is true for
NaN, at the cost of negating the mask in place. Two columns that may both hold NaN need one more test. The compiler
knows which operands cannot be NaN: integers and literals.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from catalog.schema import Type
from engine.operators.expressions.kernels.combinations import combined_run
from engine.operators.expressions.kernels.logic import is_null
from engine.operators.expressions.kernels.pools import merged, text_table_run
from engine.operators.expressions.tree.coerce import Refusal, operands, wider
from engine.operators.expressions.tree.node import MONTHS, ColumnTest, Node, Run, RunMask, constant, folded
from engine.operators.expressions.tree.vector import Array, Mask, Scope, Vector, both_valid

FLIPPED = {"=": "=", "<>": "<>", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
_UFUNCS: dict[str, Any] = {
    "=": np.equal,
    "<>": np.not_equal,
    "<": np.less,
    ">": np.greater,
    "<=": np.less_equal,
    ">=": np.greater_equal,
}
_OPPOSITE = {"<": np.greater_equal, ">": np.less_equal, "<=": np.greater, ">=": np.less}
_TEXT: dict[str, Any] = {
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
    "<=": lambda a, b: a <= b,
    ">=": lambda a, b: a >= b,
}


def compare(op: str, left: Node, right: Node) -> Node:
    """Make the node of ``left op right`` for = <> < > <= >=; NULL when one of them is NULL."""
    left, right = comparable(op, left, right)
    if left.is_null or right.is_null:
        return constant(None, Type.BOOLEAN)
    if left.constant is not None or (right.constant is None and right.key < left.key):
        # a constant goes to the right; else the keys decide, so that x < y and y > x are one node
        op, left, right = FLIPPED[op], right, left
    key = f"({left.key} {op} {right.key})"
    if left.type is Type.STRING:
        text = folded(Node(key, Type.BOOLEAN, _text_run(op, left, right), (left, right)))
        if op == "=" and left.field is not None and right.constant is not None:
            text.needs = (ColumnTest(left.field, np.equal, right.value, False),)
        return text
    mask = None if left.fallible or right.constant is None else _constant_mask(op, left, right)
    node = folded(Node(key, Type.BOOLEAN, _value_run(op, left, right), (left, right), mask=mask))
    if left.field is not None and right.constant is not None and not (_may_nan(left) and _may_nan(right)):
        ufunc, flip = _ufunc(op, left, right)
        node.test = ColumnTest(left.field, ufunc, right.constant.values[0], flip)
        node.needs = (node.test,)
    return node


def null_safe_equal(left: Node, right: Node) -> Node:
    """Make the node of ``left <=> right``: NULL equals NULL, and the result is never NULL."""
    left, right = comparable("<=>", left, right)
    if left.constant is not None or (right.constant is None and right.key < left.key):
        left, right = right, left
    if right.is_null:
        return is_null(left)
    key = f"({left.key} <=> {right.key})"
    equal = _text_run("=", left, right) if left.type is Type.STRING else _value_run("=", left, right)

    def run(scope: Scope) -> Vector:
        out = equal(scope)
        if out.valid is None:
            return out
        x, y = left.run(scope).valid, right.run(scope).valid
        values = out.values & out.valid
        if x is not None and y is not None:
            values |= ~(x | y)
        return Vector(values)

    return folded(Node(key, Type.BOOLEAN, run, (left, right), nullable=False))


def comparable(op: str, left: Node, right: Node) -> tuple[Node, Node]:
    """Convert both sides to the type in which they are compared."""
    a, b = left.type, right.type
    if a is None or b is None:
        kind = a or b or Type.BOOLEAN
        return (constant(None, kind) if a is None else left), (constant(None, kind) if b is None else right)
    if a is b:
        if a is MONTHS:
            raise Refusal("intervals of months cannot be compared: months differ in length")
        return left, right
    if a.is_numeric and b.is_numeric:
        left, right = _narrowed(left, right)
        return operands(left, right, wider(left.type or a, right.type or b))
    if Type.STRING in (a, b):
        from engine.operators.expressions.kernels.casts import text_operand  # the casts import this module

        return text_operand(op, left, right)
    raise Refusal(f"{op} cannot compare {a} with {b}", "cast one of them")


def _narrowed(left: Node, right: Node) -> tuple[Node, Node]:
    """Compare an integer column with a whole number that is written as a double (``size > 100.0``) as integers.

    The result is the same: up to 2^24 floats and doubles hold every integer, and conversion keeps the order beyond.
    """
    for column, fixed in ((left, right), (right, left)):
        whole = fixed.constant is not None and isinstance(fixed.value, float) and fixed.value.is_integer()
        if whole and column.type is not None and column.type.is_integer and abs(fixed.value) < 2**24:
            number = constant(int(fixed.value), column.type)
            return (column, number) if column is left else (number, column)
    return left, right


# -- numbers, booleans, timestamps ----------------------------------------------------------------------------------


def _value_run(op: str, left: Node, right: Node) -> Run:
    if _may_nan(left) and _may_nan(right):
        return _nan_run(op, left, right)
    ufunc, flip = _ufunc(op, left, right)
    if right.constant is not None:
        fixed = right.constant.values

        def run_constant(scope: Scope) -> Vector:
            x = left.run(scope)
            out = ufunc(x.values, fixed)
            return Vector(np.logical_not(out, out) if flip else out, x.valid)

        return run_constant

    def run(scope: Scope) -> Vector:
        x, y = left.run(scope), right.run(scope)
        out = ufunc(x.values, y.values)
        return Vector(np.logical_not(out, out) if flip else out, both_valid(x, y))

    return run


def _constant_mask(op: str, left: Node, right: Node) -> RunMask | None:
    """Make the mask of the most common filter, ``column op constant``, without a vector in between."""
    if (_may_nan(left) and _may_nan(right)) or right.constant is None:
        return None
    ufunc, flip = _ufunc(op, left, right)
    fixed = right.constant.values

    def mask(scope: Scope) -> Mask | None:
        x = left.run(scope)
        out: Mask = ufunc(x.values, fixed)
        if flip:
            np.logical_not(out, out)
        return out if x.valid is None else out & x.valid

    return mask


def _ufunc(op: str, left: Node, right: Node) -> tuple[Any, bool]:
    """Choose the numpy function, and whether to negate its result; only one side may hold NaN.

    For a NaN on the left > and >= are true; for a NaN on the right < and <= are.
    """
    flip = (_may_nan(left) and op in (">", ">=")) or (_may_nan(right) and op in ("<", "<="))
    return (_OPPOSITE[op] if flip else _UFUNCS[op]), flip


def _may_nan(node: Node) -> bool:
    return node.type in (Type.FLOAT, Type.DOUBLE) and node.can_nan


def _nan_run(op: str, left: Node, right: Node) -> Run:
    total = TOTAL_ORDER[op]

    def run(scope: Scope) -> Vector:
        x, y = left.run(scope), right.run(scope)
        return Vector(total(x.values, y.values), both_valid(x, y))

    return run


def _equal(a: Array, b: Array) -> Mask:
    out: Mask = a == b
    out |= (a != a) & (b != b)
    return out


def _less(a: Array, b: Array) -> Mask:
    out: Mask = a >= b
    np.logical_not(out, out)
    out &= a == a
    return out


def _not(mask: Mask) -> Mask:
    return np.logical_not(mask, mask)


TOTAL_ORDER: dict[str, Any] = {
    "=": _equal,
    "<>": lambda a, b: _not(_equal(a, b)),
    "<": _less,
    ">": lambda a, b: _less(b, a),
    "<=": lambda a, b: _not(_less(b, a)),
    ">=": lambda a, b: _not(_less(a, b)),
}


# -- strings --------------------------------------------------------------------------------------------------------


def _text_run(op: str, left: Node, right: Node) -> Run:
    if right.constant is not None:
        return _text_constant(op, left, right)
    if op not in ("=", "<>"):
        return combined_run(f"text {op}", _TEXT[op], (left, right), Type.BOOLEAN)
    ufunc = _UFUNCS[op]

    def run(scope: Scope) -> Vector:
        x, y = left.run(scope), right.run(scope)
        codes, _ = merged((x, y))
        return Vector(ufunc(codes[0], codes[1]), both_valid(x, y))

    return run


def _text_constant(op: str, left: Node, right: Node) -> Run:
    value = right.value
    if op not in ("=", "<>"):
        compared = _TEXT[op]
        return text_table_run(left, f"{op} {value!r}", lambda text: compared(text, value), Type.BOOLEAN)
    ufunc = _UFUNCS[op]

    def run(scope: Scope) -> Vector:
        x = left.run(scope)
        assert x.pool is not None
        return Vector(ufunc(x.values, x.pool.find(value)), x.valid)

    return run
