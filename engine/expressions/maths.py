"""Mathematical functions. As in Spark, logarithms of what is not positive are NULL, roots of negative numbers NaN.

``round`` is the one that takes thought: Spark rounds half away from zero the number *as it is written*, so
``round(2.675, 2)`` is 2.68 although the double lies below. No decimal arithmetic is needed for that: x, written with at
most 15 digits, is the tie (k + 0.5) / 10^d exactly when it is the double nearest to it, and is above it exactly when it
is the greater double.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from catalog.schema import Type
from engine.expressions.arithmetic import arithmetic, failed, negate
from engine.expressions.casts import cast
from engine.expressions.coerce import Refusal
from engine.expressions.compare import compare
from engine.expressions.conditional import choose
from engine.expressions.node import Node, constant, folded
from engine.expressions.signatures import Function, function
from engine.expressions.vector import Array, Mask, Scope, Vector, both_valid

Numpy = Callable[..., Any]


def number(what: str, node: Node) -> Node:
    if node.type is not None and not node.type.is_numeric:
        hint = "write cast(... as double)" if node.type is Type.STRING else ""
        raise Refusal(f"{what} takes a number, not {node.type}", hint)
    return node


def double(what: str, node: Node) -> Node:
    return cast(number(what, node), Type.DOUBLE)


def _one(name: str, ufunc: Numpy, defined: Callable[[Array], Mask] | None = None) -> Callable[[Sequence[Node]], Node]:
    """A function of one double; NULL outside ``defined``."""

    def build(args: Sequence[Node]) -> Node:
        node = double(name, args[0])
        if node.is_null:
            return node

        def run(scope: Scope) -> Vector:
            x = node.run(scope)
            values = ufunc(x.values)
            if defined is None:
                return Vector(values, x.valid)
            ok = defined(x.values)
            if np.count_nonzero(ok) == ok.shape[0]:
                return Vector(values, x.valid)
            return Vector(values, ok if x.valid is None else ok & x.valid)

        nullable = node.nullable or defined is not None
        return folded(Node(f"{name}({node.key})", Type.DOUBLE, run, (node,), nullable=nullable, noisy=True))

    return build


def _two(name: str, ufunc: Numpy) -> Callable[[Sequence[Node]], Node]:
    """A function of two doubles."""

    def build(args: Sequence[Node]) -> Node:
        left, right = double(name, args[0]), double(name, args[1])
        if left.is_null or right.is_null:
            return constant(None, Type.DOUBLE)

        def run(scope: Scope) -> Vector:
            x, y = left.run(scope), right.run(scope)
            return Vector(ufunc(x.values, y.values), both_valid(x, y))

        return folded(Node(f"{name}({left.key}, {right.key})", Type.DOUBLE, run, (left, right), noisy=True))

    return build


def _angle(y: Array, x: Array) -> Array:
    out: Array = np.arctan2(y + 0.0, x + 0.0)  # -0.0 becomes 0.0, as in Spark
    return out


def _positive(values: Array) -> Mask:
    return ~(values <= 0)  # NaN is not below anything: its logarithm is NaN, not NULL


def _logarithm(args: Sequence[Node]) -> Node:
    if len(args) == 1:
        return _one("ln", np.log, _positive)(args)
    base, x = (_one("ln", np.log, _positive)([arg]) for arg in args)

    def ratio(a: Array, b: Array) -> Array:
        out: Array = a / b
        return out

    return _two("log", ratio)([x, base])


def absolute(args: Sequence[Node]) -> Node:
    """``abs`` keeps the type; the smallest integer has none."""
    node = number("abs", args[0])
    if node.type is None or node.is_null:
        return constant(None, node.type or Type.DOUBLE)
    if node.type.is_integer:
        return choose(compare("<", node, constant(0, node.type)), negate(node), node)

    def run(scope: Scope) -> Vector:
        x = node.run(scope)
        return Vector(np.abs(x.values), x.valid)

    return folded(Node(f"abs({node.key})", node.type, run, (node,)))


def _to_bigint(name: str, ufunc: Numpy) -> Callable[[Sequence[Node]], Node]:
    """floor and ceil give a bigint, as in Spark; what does not fit one is NULL and counted."""

    def build(args: Sequence[Node]) -> Node:
        node = number(name, args[0])
        if node.type is None or node.type.is_integer or node.is_null:
            return cast(node, Type.BIGINT)

        def run(scope: Scope) -> Vector:
            x = node.run(scope)
            return Vector(ufunc(x.values), x.valid)

        whole = Node(f"{name}({node.key})", node.type, run, (node,), noisy=True)
        return cast(folded(whole), Type.BIGINT)

    return build


# -- rounding -------------------------------------------------------------------------------------------------------


def rounded(args: Sequence[Node], *, even: bool = False) -> Node:
    """``round(x, d)``, half away from zero; ``even``: ``bround``, half to even."""
    name = "bround" if even else "round"
    node = number(name, args[0])
    digits = _constant_digits(name, args[1]) if len(args) > 1 else 0
    kind = node.type or Type.DOUBLE
    if node.is_null or node.type is None or digits is None:
        return constant(None, kind)
    key = f"{name}({node.key}, {digits})"
    if kind.is_integer:
        return node if digits >= 0 else _rounded_integer(node, kind, -digits, key, even)
    places: int = digits

    def run(scope: Scope) -> Vector:
        x = node.run(scope)
        return Vector(round_half(x.values.astype(np.float64), places, even).astype(kind.dtype), x.valid)

    return folded(Node(key, kind, run, (node,), noisy=True))


def _constant_digits(name: str, node: Node) -> int | None:
    if node.constant is None or (node.type is not None and not node.type.is_integer):
        raise Refusal(f"the digits of {name} must be a constant integer")
    return None if node.is_null else int(node.value)


def round_half(values: Array, digits: int, even: bool) -> Array:
    """Round the numbers as they are written."""
    if digits > 22:
        return values
    if digits < -308:
        return values * 0.0
    scale = 10.0 ** abs(digits)
    size = np.abs(values)
    scaled = size * scale if digits > 0 else size / scale
    below = np.floor(scaled)
    tie = (below + 0.5) / scale if digits > 0 else (below + 0.5) * scale
    up = size >= tie
    if even:
        up &= (size > tie) | (below % 2 == 1)
    whole = below + up
    out = whole / scale if digits > 0 else whole * scale
    # from 2^52 up a double has no halves; NaN and the infinities are there too
    return np.copysign(np.where(scaled < 2.0**52, out, size), values)


def _rounded_integer(node: Node, kind: Type, zeros: int, key: str, even: bool) -> Node:
    if zeros > 18:
        return arithmetic("*", node, constant(0, kind))
    step = 10**zeros
    high = 2**63 - 1 if kind is Type.BIGINT else 2**31 - 1

    def run(scope: Scope) -> Vector:
        x = node.run(scope)
        values = x.values.astype(np.int64)
        rest = np.fmod(values, step)
        base = values - rest
        size = np.abs(rest)
        up = 2 * size >= step
        if even:
            up &= (2 * size > step) | (np.abs(base // step) % 2 == 1)
        toward = np.sign(rest) * step
        bad = up & ((base > high - step) & (toward > 0) | (base < -high - 1 + step) & (toward < 0))
        out = np.where(up, base + toward, base).astype(kind.dtype)
        return failed(scope, out, bad, x.valid) if np.count_nonzero(bad) else Vector(out, x.valid)

    return folded(Node(key, kind, run, (node,), fallible=True, noisy=True))


# -- NaN, remainders ------------------------------------------------------------------------------------------------


def _isnan(args: Sequence[Node]) -> Node:
    node = double("isnan", args[0])
    if node.is_null:
        return constant(False, Type.BOOLEAN)

    def run(scope: Scope) -> Vector:
        x = node.run(scope)
        out = np.isnan(x.values)
        return Vector(out if x.valid is None else out & x.valid)

    return folded(Node(f"isnan({node.key})", Type.BOOLEAN, run, (node,), nullable=False))


def _nanvl(args: Sequence[Node]) -> Node:
    left, right = (number("nanvl", node) for node in args)
    if left.type is None:
        return constant(None, right.type or Type.DOUBLE)
    kind = Type.FLOAT if left.type is right.type is Type.FLOAT else Type.DOUBLE
    left, right = cast(left, kind), cast(right, kind)
    return choose(_isnan([left]), right, left)


def _pmod(args: Sequence[Node]) -> Node:
    rest = arithmetic("%", args[0], args[1])
    return choose(
        compare("<", rest, constant(0, Type.INT)), arithmetic("%", arithmetic("+", rest, args[1]), args[1]), rest
    )


def _operator(op: str) -> Callable[[Sequence[Node]], Node]:
    return lambda args: arithmetic(op, args[0], args[1])


def _plain(name: str, summary: str, ufunc: Numpy, *aliases: str) -> Function:
    return function(f"{name}(double) -> double", summary, _one(name, ufunc), *aliases)


FUNCTIONS = (
    function("abs(number) -> number", "size without sign", absolute),
    function("negative(number) -> number", "the number with its sign turned", lambda a: negate(a[0])),
    function("positive(number) -> number", "the number itself", lambda a: number("positive", a[0])),
    _plain("sign", "-1.0, 0.0 or 1.0", np.sign, "signum"),
    function("floor(number) -> bigint", "the next integer below", _to_bigint("floor", np.floor)),
    function("ceil(number) -> bigint", "the next integer above", _to_bigint("ceil", np.ceil), "ceiling"),
    function("round(number[, digits]) -> number", "half away from zero", rounded),
    function("bround(number[, digits]) -> number", "half to even", lambda a: rounded(a, even=True)),
    _plain("rint", "the nearest integer as a double, half to even", np.rint),
    _plain("sqrt", "square root; NaN below 0", np.sqrt),
    _plain("cbrt", "cube root", np.cbrt),
    _plain("exp", "e to the power x", np.exp),
    _plain("expm1", "exp(x) - 1, exact near 0", np.expm1),
    function("ln(double) -> double", "natural logarithm; NULL at 0 and below", _one("ln", np.log, _positive)),
    function("log([base,] double) -> double", "natural logarithm, or to a base", _logarithm),
    function("log2(double) -> double", "logarithm to base 2", _one("log2", np.log2, _positive)),
    function("log10(double) -> double", "logarithm to base 10", _one("log10", np.log10, _positive)),
    function("log1p(double) -> double", "ln(1 + x), exact near 0", _one("log1p", np.log1p, lambda v: ~(v <= -1))),
    function("pow(x, y) -> double", "x to the power y", _two("pow", np.power), "power"),
    function("hypot(x, y) -> double", "sqrt(x*x + y*y) without overflow", _two("hypot", np.hypot)),
    _plain("sin", "sine", np.sin),
    _plain("cos", "cosine", np.cos),
    _plain("tan", "tangent", np.tan),
    _plain("asin", "inverse sine", np.arcsin),
    _plain("acos", "inverse cosine", np.arccos),
    _plain("atan", "inverse tangent", np.arctan),
    function("atan2(y, x) -> double", "angle of the point (x, y)", _two("atan2", _angle)),
    _plain("sinh", "hyperbolic sine", np.sinh),
    _plain("cosh", "hyperbolic cosine", np.cosh),
    _plain("tanh", "hyperbolic tangent", np.tanh),
    _plain("degrees", "radians to degrees", np.degrees),
    _plain("radians", "degrees to radians", np.radians),
    function("pi() -> double", "3.14159...", lambda a: constant(math.pi, Type.DOUBLE)),
    function("e() -> double", "2.71828...", lambda a: constant(math.e, Type.DOUBLE)),
    function("mod(x, y) -> number", "remainder with the sign of x; NULL for y = 0", _operator("%")),
    function("pmod(x, y) -> number", "remainder that is not negative for y > 0", _pmod),
    function("isnan(double) -> boolean", "whether it is NaN; false for NULL", _isnan),
    function("nanvl(x, y) -> double", "x, or y where x is NaN", _nanvl),
    function("try_add(x, y)", "x + y", _operator("+")),
    function("try_subtract(x, y)", "x - y", _operator("-")),
    function("try_multiply(x, y)", "x * y", _operator("*")),
    function("try_divide(x, y) -> double", "x / y", _operator("/")),
)
