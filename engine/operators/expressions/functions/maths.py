"""Mathematical functions. As in Spark, the logarithm of a number that is not positive is NULL, its root NaN.

``round`` is the difficult one. Spark rounds the number *as it is written*, half away from zero, so ``round(2.675, 2)``
is 2.68 although the double is less than 2.675. This needs no decimal arithmetic: a number written with at most 15
digits is the tie (k + 0.5) / 10^d exactly when it is the double nearest to the tie, and it lies above the tie exactly
when it is the greater double.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from catalog.schema import Type
from engine.operators.expressions.functions.conditional import choose
from engine.operators.expressions.functions.signatures import ScalarFunction, function
from engine.operators.expressions.kernels.arithmetic import arithmetic, failed, negate
from engine.operators.expressions.kernels.casts import cast
from engine.operators.expressions.kernels.compare import compare
from engine.operators.expressions.tree.coerce import Refusal
from engine.operators.expressions.tree.node import Node, constant, folded
from engine.operators.expressions.tree.vector import Array, Mask, Scope, Vector, both_valid

Numpy = Callable[..., Any]


def number(what: str, node: Node) -> Node:
    if node.type is not None and not node.type.is_numeric:
        hint = "write cast(... as double)" if node.type is Type.STRING else ""
        raise Refusal(f"{what} takes a number, not {node.type}", hint)
    return node


def double(what: str, node: Node) -> Node:
    return cast(number(what, node), Type.DOUBLE)


def _one(name: str, ufunc: Numpy, defined: Callable[[Array], Mask] | None = None) -> Callable[[Sequence[Node]], Node]:
    """Make the builder of a function of one double; NULL outside ``defined``."""

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
        return folded(Node(f"{name}({node.key})", Type.DOUBLE, run, (node,), nullable=nullable, sets_float_flags=True))

    return build


def _two(name: str, ufunc: Numpy) -> Callable[[Sequence[Node]], Node]:
    """Make the builder of a function of two doubles."""

    def build(args: Sequence[Node]) -> Node:
        left, right = double(name, args[0]), double(name, args[1])
        if left.is_null or right.is_null:
            return constant(None, Type.DOUBLE)

        def run(scope: Scope) -> Vector:
            x, y = left.run(scope), right.run(scope)
            return Vector(ufunc(x.values, y.values), both_valid(x, y))

        return folded(Node(f"{name}({left.key}, {right.key})", Type.DOUBLE, run, (left, right), sets_float_flags=True))

    return build


def _angle(y: Array, x: Array) -> Array:
    out: Array = np.arctan2(y + 0.0, x + 0.0)  # -0.0 becomes 0.0, as in Spark
    return out


def _sign(values: Array) -> Array:
    out: Array = np.where(values == 0, values, np.sign(values))  # the sign of -0.0 is -0.0
    return out


def _power(x: Array, y: Array) -> Array:
    """Return x to the power y as Java does: 1 and -1 to the power of an infinity or NaN are NaN, in C they are 1.

    For an exponent of one value numpy takes the square root, which differs for -inf and -0.0.
    """
    out: Array = np.power(x, np.full(x.shape, y[0]) if y.shape[0] == 1 else y)
    odd = ~np.isfinite(y)
    if np.count_nonzero(odd):
        out = np.where(odd & (np.abs(x) == 1), np.nan, out)
    return out


def _positive(values: Array) -> Mask:
    return ~(values <= 0)  # true for NaN, whose logarithm is NaN, not NULL


def _logarithm(args: Sequence[Node]) -> Node:
    if len(args) == 1:
        return _one("ln", np.log, _positive)(args)
    base, x = (_one("ln", np.log, _positive)([arg]) for arg in args)

    def ratio(a: Array, b: Array) -> Array:
        out: Array = a / b
        return out

    return _two("log", ratio)([x, base])


def absolute(args: Sequence[Node]) -> Node:
    """Make the node of ``abs``, which keeps the type; NULL for the smallest integer."""
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
    """Make the builder of floor or ceil: a bigint, as in Spark; NULL and counted where it does not fit."""

    def build(args: Sequence[Node]) -> Node:
        node = number(name, args[0])
        if node.type is None or node.type.is_integer or node.is_null:
            return cast(node, Type.BIGINT)

        def run(scope: Scope) -> Vector:
            x = node.run(scope)
            return Vector(ufunc(x.values), x.valid)

        whole = Node(f"{name}({node.key})", node.type, run, (node,), sets_float_flags=True)
        return cast(folded(whole), Type.BIGINT)

    return build


# -- rounding -------------------------------------------------------------------------------------------------------


def rounded(args: Sequence[Node], *, even: bool = False) -> Node:
    """Make the node of ``round(x, d)``, half away from zero; with ``even`` of ``bround``, half to even."""
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

    return folded(Node(key, kind, run, (node,), sets_float_flags=True))


def _constant_digits(name: str, node: Node) -> int | None:
    if node.constant is None or (node.type is not None and not node.type.is_integer):
        raise Refusal(f"the digits of {name} must be a constant integer")
    return None if node.is_null else int(node.value)


def round_half(values: Array, digits: int, even: bool) -> Array:
    """Round numbers as they are written (see the module). No result is -0.0, as in Spark, whose decimals have none."""
    if digits > 22:
        return values + 0.0
    if digits < -308:
        return np.where(np.isfinite(values), 0.0, values)
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
    # from 2^52 on a double has no fraction; NaN and the infinities also keep their value
    return np.copysign(np.where(scaled < 2.0**52, out, size), values) + 0.0


def _rounded_integer(node: Node, kind: Type, zeros: int, key: str, even: bool) -> Node:
    if zeros > 18:
        return _rounded_to_nothing(node, kind, zeros, key)
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

    return folded(Node(key, kind, run, (node,), fallible=True, sets_float_flags=True))


def _rounded_to_nothing(node: Node, kind: Type, zeros: int, key: str) -> Node:
    """Round to more zeros than a step of 64 bits has: 0, and NULL where half a step is reached and the step does not
    fit."""
    half = 5 * 10**18 if zeros == 19 else 2**63

    def run(scope: Scope) -> Vector:
        x = node.run(scope)
        values = x.values.astype(np.int64)
        bad = (values >= half) | (values <= -half) if half < 2**63 else np.zeros(values.shape, np.bool_)
        out = np.zeros(values.shape, kind.dtype)
        return failed(scope, out, bad, x.valid) if np.count_nonzero(bad) else Vector(out, x.valid)

    return folded(Node(key, kind, run, (node,), fallible=True))


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


def _plain(name: str, description: str, ufunc: Numpy, example: str, *aliases: str) -> ScalarFunction:
    return function(f"{name}(x: double) -> double", description, _one(name, ufunc), example, *aliases)


FUNCTIONS = (
    function("abs(x: number) -> type of x", "the absolute value", absolute, "abs(-3) -> 3"),
    function(
        "negative(x: number) -> type of x",
        "x with its sign turned; -x is the same",
        lambda a: negate(a[0]),
        "negative(3) -> -3",
    ),
    function("positive(x: number) -> type of x", "x itself", lambda a: number("positive", a[0]), "positive(-3) -> -3"),
    _plain("sign", "-1.0, 0.0 or 1.0 by the sign of x", _sign, "sign(-2.5) -> -1.0", "signum"),
    function(
        "floor(x: number) -> bigint",
        "the greatest integer not above x",
        _to_bigint("floor", np.floor),
        "floor(-1.5) -> -2",
    ),
    function(
        "ceil(x: number) -> bigint",
        "the least integer not below x",
        _to_bigint("ceil", np.ceil),
        "ceil(-1.5) -> -1",
        "ceiling",
    ),
    function(
        "round(x: number[, digits: constant int]) -> type of x",
        "rounds half away from zero; -1 digits round to tens, -2 to hundreds",
        rounded,
        "round(2.675, 2) -> 2.68",
    ),
    function(
        "bround(x: number[, digits: constant int]) -> type of x",
        "rounds half to even",
        lambda a: rounded(a, even=True),
        "bround(2.5) -> 2.0",
    ),
    _plain("rint", "the nearest integer as a double, half to even", np.rint, "rint(3.5) -> 4.0"),
    _plain("sqrt", "the square root; NaN below 0", np.sqrt, "sqrt(9) -> 3.0"),
    _plain("cbrt", "the cube root", np.cbrt, "cbrt(27) -> 3.0"),
    _plain("exp", "e to the power x", np.exp, "exp(0) -> 1.0"),
    _plain("expm1", "exp(x) - 1, exact near 0", np.expm1, "expm1(0) -> 0.0"),
    function(
        "ln(x: double) -> double",
        "the natural logarithm; NULL at 0 and below",
        _one("ln", np.log, _positive),
        "ln(0) -> NULL",
    ),
    function(
        "log([base: double,] x: double) -> double",
        "the natural logarithm, or the logarithm to a base; NULL at 0 and below",
        _logarithm,
        "log(2, 8) -> 3.0",
    ),
    function(
        "log2(x: double) -> double",
        "the logarithm to base 2; NULL at 0 and below",
        _one("log2", np.log2, _positive),
        "log2(8) -> 3.0",
    ),
    function(
        "log10(x: double) -> double",
        "the logarithm to base 10; NULL at 0 and below",
        _one("log10", np.log10, _positive),
        "log10(1000) -> 3.0",
    ),
    function(
        "log1p(x: double) -> double",
        "ln(1 + x), exact near 0; NULL at -1 and below",
        _one("log1p", np.log1p, lambda v: ~(v <= -1)),
        "log1p(0) -> 0.0",
    ),
    function(
        "pow(x: double, y: double) -> double",
        "x to the power y",
        _two("pow", _power),
        "pow(2, 10) -> 1024.0",
        "power",
    ),
    function(
        "hypot(x: double, y: double) -> double",
        "sqrt(x * x + y * y) without overflow in between",
        _two("hypot", np.hypot),
        "hypot(3, 4) -> 5.0",
    ),
    _plain("sin", "the sine of an angle in radians", np.sin, "sin(0) -> 0.0"),
    _plain("cos", "the cosine of an angle in radians", np.cos, "cos(0) -> 1.0"),
    _plain("tan", "the tangent of an angle in radians", np.tan, "tan(0) -> 0.0"),
    _plain("asin", "the inverse sine; NaN outside -1 to 1", np.arcsin, "asin(1) -> 1.5707963267948966"),
    _plain("acos", "the inverse cosine; NaN outside -1 to 1", np.arccos, "acos(1) -> 0.0"),
    _plain("atan", "the inverse tangent", np.arctan, "atan(1) -> 0.7853981633974483"),
    function(
        "atan2(y: double, x: double) -> double",
        "the angle of the point (x, y) in radians",
        _two("atan2", _angle),
        "atan2(1, 1) -> 0.7853981633974483",
    ),
    _plain("sinh", "the hyperbolic sine", np.sinh, "sinh(0) -> 0.0"),
    _plain("cosh", "the hyperbolic cosine", np.cosh, "cosh(0) -> 1.0"),
    _plain("tanh", "the hyperbolic tangent", np.tanh, "tanh(0) -> 0.0"),
    _plain("degrees", "radians to degrees", np.degrees, "degrees(pi()) -> 180.0"),
    _plain("radians", "degrees to radians", np.radians, "radians(180) -> 3.141592653589793"),
    function("pi() -> double", "the number pi", lambda a: constant(math.pi, Type.DOUBLE), "pi() -> 3.141592653589793"),
    function("e() -> double", "Euler's number", lambda a: constant(math.e, Type.DOUBLE), "e() -> 2.718281828459045"),
    function(
        "mod(x: number, y: number) -> common type of x and y",
        "the remainder with the sign of x; NULL where y is 0; x % y is the same",
        _operator("%"),
        "mod(-7, 3) -> -1",
    ),
    function(
        "pmod(x: number, y: number) -> common type of x and y",
        "the remainder, not negative for y above 0; NULL where y is 0",
        _pmod,
        "pmod(-7, 3) -> 2",
    ),
    function("isnan(x: double) -> boolean", "whether x is NaN; false for NULL", _isnan, "isnan(double('NaN')) -> true"),
    function(
        "nanvl(x: double, y: double) -> double",
        "x, or y where x is NaN; a float when both are floats",
        _nanvl,
        "nanvl(double('NaN'), 5.0) -> 5.0",
    ),
    function(
        "try_add(x: number, y: number) -> common type of x and y",
        "x + y; NULL where it overflows",
        _operator("+"),
        "try_add(2147483647, 1) -> NULL",
    ),
    function(
        "try_subtract(x: number, y: number) -> common type of x and y",
        "x - y; NULL where it overflows",
        _operator("-"),
        "try_subtract(5, 3) -> 2",
    ),
    function(
        "try_multiply(x: number, y: number) -> common type of x and y",
        "x * y; NULL where it overflows",
        _operator("*"),
        "try_multiply(5, 3) -> 15",
    ),
    function(
        "try_divide(x: number, y: number) -> double",
        "x / y; NULL where y is 0",
        _operator("/"),
        "try_divide(1, 0) -> NULL",
    ),
)
