"""Arithmetic: + - * / % div and the sign. Overflow of integers and division by zero give NULL and are counted.

Doubles overflow to infinity and need no check. Integers are checked for overflow, as cheaply as possible:
- with no check when the ranges of the operands exclude it (``hour(ts) * 60``, an int widened to bigint);
- with one or two reductions over one operand when the other is a constant (``size + 1``);
- with the sign trick ``(a ^ r) & (b ^ r) < 0`` for the sum of two columns.
Spark with ``ansi`` off wraps integers around instead, a silent error; its ``try_add`` gives NULL as this does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from catalog.schema import Type
from engine.operators.expressions.tree.coerce import Refusal, numeric_pair, operands, widened
from engine.operators.expressions.tree.node import INTEGER_RANGE, Node, Range, Run, constant, folded
from engine.operators.expressions.tree.vector import Array, Mask, Scope, Vector, both_valid

Ufunc = Callable[..., Any]
lowest, highest = np.minimum.reduce, np.maximum.reduce  # half a microsecond less than ndarray.min
_UFUNCS: dict[str, Ufunc] = {"+": np.add, "-": np.subtract, "*": np.multiply}
_COMMUTATIVE = frozenset("+*")


def arithmetic(op: str, left: Node, right: Node) -> Node:
    """Make the node of ``left op right`` for + - * / % div."""
    kind = numeric_pair(op, left, right)
    if op == "/":
        kind = Type.DOUBLE
    elif op == "div":
        if not kind.is_integer:
            raise Refusal(f"div takes integers, not {kind}", "use /, or cast to bigint")
        kind = Type.BIGINT
    if left.type is None or right.type is None or left.is_null or right.is_null:
        return constant(None, kind)
    if op == "/":
        return folded(_divide(left, right))
    if op in ("%", "div"):
        return folded(_remainder(left, right, kind) if op == "%" else _integral_divide(left, right))
    left, right = operands(left, right, kind)
    if kind.is_integer:
        return arithmetic_integer(op, left, right, kind)
    run = _apply(_UFUNCS[op], left, right)
    return folded(Node(_key(op, left, right), kind, run, (left, right), sets_float_flags=True))


def _key(op: str, left: Node, right: Node) -> str:
    keys = sorted((left.key, right.key)) if op in _COMMUTATIVE else [left.key, right.key]
    return f"({keys[0]} {op} {keys[1]})"


def negate(node: Node) -> Node:
    """Make the node of ``-x``."""
    if node.type is None:
        return node
    return arithmetic("-", constant(0, node.type), node) if node.type.is_integer else _negate_float(node)


def _negate_float(node: Node) -> Node:
    if node.type is None or not node.type.is_numeric:
        raise Refusal(f"- takes a number, not {node.type}")

    def run(scope: Scope) -> Vector:
        x = node.run(scope)
        return Vector(np.negative(x.values), x.valid)

    return folded(Node(f"(-{node.key})", node.type, run, (node,)))


def failed(scope: Scope, values: Array, bad: Mask, valid: Mask | None) -> Vector:
    """Return the result with NULL where ``bad``, and count the failures on values that are not NULL."""
    scope.count_errors(bad, valid)
    ok = ~bad
    return Vector(values, ok if valid is None else ok & valid)


def _apply(ufunc: Ufunc, left: Node, right: Node) -> Run:
    """Make the kernel of a ufunc that cannot fail; a constant operand is bound into the closure."""
    if right.constant is not None:
        fixed = right.constant.values

        def run_right(scope: Scope) -> Vector:
            x = left.run(scope)
            return Vector(ufunc(x.values, fixed), x.valid)

        return run_right
    if left.constant is not None:
        fixed = left.constant.values

        def run_left(scope: Scope) -> Vector:
            y = right.run(scope)
            return Vector(ufunc(fixed, y.values), y.valid)

        return run_left

    def run(scope: Scope) -> Vector:
        x, y = left.run(scope), right.run(scope)
        return Vector(ufunc(x.values, y.values), both_valid(x, y))

    return run


# -- integers -------------------------------------------------------------------------------------------------------


def arithmetic_integer(op: str, left: Node, right: Node, kind: Type) -> Node:
    """Make the node of + - * for integers, timestamps and intervals, which are all columns of integers; the result is
    of type ``kind``."""
    return folded(_integer(_key(op, left, right), op, left, right, kind))


def _integer(key: str, op: str, left: Node, right: Node, kind: Type) -> Node:
    reach = _reach(op, left.value_range, right.value_range)
    low, high = INTEGER_RANGE[kind]
    if low <= reach[0] and reach[1] <= high:
        return Node(key, kind, _apply(_UFUNCS[op], left, right), (left, right), range=reach)
    if right.constant is not None:
        run = _checked_constant(op, left, right.value, kind, flipped=False)
    elif left.constant is not None:
        run = _checked_constant(op, right, left.value, kind, flipped=True)
    elif op == "*":
        run = _checked_product(left, right, kind)
    else:
        run = _checked_sum(op, left, right)
    return Node(key, kind, run, (left, right), fallible=True)


def _reach(op: str, a: Range, b: Range) -> Range:
    """Return the range of a result in exact integers."""
    if op == "+":
        return a[0] + b[0], a[1] + b[1]
    if op == "-":
        return a[0] - b[1], a[1] - b[0]
    corners = [x * y for x in a for y in b]
    return min(corners), max(corners)


def allowed(op: str, fixed: int, kind: Type, *, flipped: bool) -> Range:
    """Return the range of x for which ``x op fixed`` (flipped: ``fixed op x``) fits ``kind``."""
    low, high = INTEGER_RANGE[kind]
    if op == "*":
        if fixed == 0:
            return low, high
        if fixed > 0:
            return -(-low // fixed), high // fixed
        return -(high // -fixed), -low // -fixed
    if op == "+":
        return low - fixed, high - fixed
    return (fixed - high, fixed - low) if flipped else (low + fixed, high + fixed)


def _checked_constant(op: str, node: Node, fixed: int, kind: Type, *, flipped: bool) -> Run:
    ufunc = _UFUNCS[op]
    at_least, at_most = allowed(op, fixed, kind, flipped=flipped)
    low, high = node.value_range
    check_low, check_high = at_least > low, at_most < high
    other = np.array([fixed], kind.dtype)

    def run(scope: Scope) -> Vector:
        x = node.run(scope)
        a = x.values
        out = ufunc(other, a) if flipped else ufunc(a, other)
        if a.shape[0] and ((check_low and lowest(a) < at_least) or (check_high and highest(a) > at_most)):
            return failed(scope, out, (a < at_least) | (a > at_most), x.valid)
        return Vector(out, x.valid)

    return run


def _checked_sum(op: str, left: Node, right: Node) -> Run:
    subtract = op == "-"

    def run(scope: Scope) -> Vector:
        x, y = left.run(scope), right.run(scope)
        a, b = x.values, y.values
        out = a - b if subtract else a + b
        sign = a ^ out  # a - b overflows when a and b differ in sign and the result differs from a in sign
        sign &= (a ^ b) if subtract else (b ^ out)
        if sign.shape[0] and lowest(sign) < 0:
            return failed(scope, out, sign < 0, both_valid(x, y))
        return Vector(out, both_valid(x, y))

    return run


def _checked_product(left: Node, right: Node, kind: Type) -> Run:
    low, high = INTEGER_RANGE[kind]
    dtype = kind.dtype

    def run_int(scope: Scope) -> Vector:
        x, y = left.run(scope), right.run(scope)
        exact = np.multiply(x.values, y.values, dtype=np.int64)
        out = exact.astype(dtype)
        if exact.shape[0] and (lowest(exact) < low or highest(exact) > high):
            return failed(scope, out, exact != out, both_valid(x, y))
        return Vector(out, both_valid(x, y))

    def run_bigint(scope: Scope) -> Vector:
        x, y = left.run(scope), right.run(scope)
        a, b = x.values, y.values
        out = a * b
        if out.shape[0] and _largest(a) * _largest(b) > high:  # exact: Python integers
            return failed(scope, out, _product_overflow(a, b, out), both_valid(x, y))
        return Vector(out, both_valid(x, y))

    return run_int if kind is Type.INT else run_bigint


def _largest(a: Array) -> int:
    return max(int(a.max()), -int(a.min()))


def _product_overflow(a: Array, b: Array, out: Array) -> Mask:
    """Find where a 64-bit product wrapped around: dividing it by one factor does not give the other."""
    back = np.floor_divide(out, np.where(a == 0, 1, a))
    bad: Mask = (a != 0) & (back != b) | (a == -1) & (b == INTEGER_RANGE[Type.BIGINT][0])
    return bad


# -- division -------------------------------------------------------------------------------------------------------


def _quotient_node(key: str, kind: Type, left: Node, right: Node, compute: Ufunc) -> Node:
    """Make the node of a quotient or remainder: NULL where the divisor is 0, for doubles too, as in Spark."""
    if right.constant is not None and right.value != 0:
        fixed = right.constant.values

        def run_constant(scope: Scope) -> Vector:
            x = left.run(scope)
            return Vector(compute(x.values, fixed), x.valid)

        return Node(key, kind, run_constant, (left, right), sets_float_flags=True)

    def run(scope: Scope) -> Vector:
        x, y = left.run(scope), right.run(scope)
        zero = y.values == 0
        out = compute(x.values, y.values)
        if np.count_nonzero(zero):
            return failed(scope, out, zero, both_valid(x, y))
        return Vector(out, both_valid(x, y))

    return Node(key, kind, run, (left, right), fallible=True, sets_float_flags=True)


def _divide(left: Node, right: Node) -> Node:
    plain = left.type is Type.DOUBLE and right.type is Type.DOUBLE

    def in_double(a: Array, b: Array) -> Array:
        out: Array = np.divide(a, b, dtype=np.float64)
        return out

    return _quotient_node(f"({left.key} / {right.key})", Type.DOUBLE, left, right, np.divide if plain else in_double)


def _remainder(left: Node, right: Node, kind: Type) -> Node:
    left, right = operands(left, right, kind)
    # fmod has the sign of the dividend, as in C, Java and SQL; numpy's % has that of the divisor
    return _quotient_node(f"({left.key} % {right.key})", kind, left, right, np.fmod)


def _integral_divide(left: Node, right: Node) -> Node:
    left, right = widened(left, Type.BIGINT), widened(right, Type.BIGINT)
    key = f"({left.key} div {right.key})"
    low = INTEGER_RANGE[Type.BIGINT][0]
    node = _quotient_node(key, Type.BIGINT, left, right, truncated)
    if left.value_range[0] > low or (right.constant is not None and right.value != -1):
        return node
    inner = node.run

    def run(scope: Scope) -> Vector:
        out = inner(scope)
        bad = (left.run(scope).values == low) & (right.run(scope).values == -1)
        return failed(scope, out.values, bad, out.valid) if np.count_nonzero(bad) else out

    return Node(key, Type.BIGINT, run, (left, right), fallible=True, sets_float_flags=True)


def truncated(a: Array, b: Array) -> Array:
    """Divide integers towards zero, as SQL does; numpy rounds down."""
    down: Array = np.floor_divide(a, b)
    if down.shape[0] and a.min() >= 0 and b.min() >= 0:
        return down
    inexact = (np.fmod(a, b) != 0) & ((a < 0) != (b < 0))
    out: Array = down + inexact
    return out
