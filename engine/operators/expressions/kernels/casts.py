"""CAST and TRY_CAST between all seven types.

The rules are Spark's with ``ansi`` off, except for values that do not fit. Spark wraps a bigint around to an int,
limits doubles to the range of the integers and turns NaN into 0. Here all of these are NULL and counted, as every
overflow is; Spark's try_cast does the same. Text that is not a value of the type gives NULL and is not counted. As in
Spark, TRY_CAST differs from CAST in one point: text with a fraction is not an integer.

An integer that is cast to a timestamp counts seconds, and a timestamp that is cast to a number gives seconds.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from catalog.schema import Type
from engine.operators.expressions.kernels import text_values
from engine.operators.expressions.kernels.arithmetic import arithmetic_integer, failed
from engine.operators.expressions.kernels.combinations import combined_run
from engine.operators.expressions.kernels.pools import text_table_run
from engine.operators.expressions.tree.coerce import Refusal, as_constant, with_article
from engine.operators.expressions.tree.node import INTEGER_RANGE, Node, Run, constant, folded
from engine.operators.expressions.tree.vector import Array, Scope, Vector
from storage.strings import StringPool

_SECOND_NS = 1_000_000_000
_TRUTH = StringPool(["false", "true"])
_FLOATS = (Type.FLOAT, Type.DOUBLE)


def cast(node: Node, type: Type, *, strict: bool = False) -> Node:
    """Make the node of CAST, or of TRY_CAST with ``strict``."""
    source = node.type
    if source is type:
        return node
    if source is None or node.is_null:
        return constant(None, type)
    if source not in tuple(Type):
        raise Refusal(f"{with_article(source)} cannot be cast")
    if strict and {source, type} == {Type.BOOLEAN, Type.TIMESTAMP}:
        raise Refusal(f"try_cast does not turn {with_article(source)} into {with_article(type)}", "write cast(...)")
    at_once = as_constant(node, type)
    if at_once is not None:
        return at_once
    key = f"cast({node.key} as {type})"
    if source is Type.STRING:
        return folded(_from_text(node, type, key, strict))
    if type is Type.STRING:
        return folded(_to_text(node, key))
    if type is Type.TIMESTAMP:
        return folded(_to_timestamp(node, key))
    if source is Type.TIMESTAMP:
        return folded(_from_timestamp(node, type, key))
    return folded(_between_numbers(node, type, key))


def _map(node: Node, key: str, type: Type, function: Callable[[Array], Array], *, can_nan: bool = False) -> Node:
    """Make the node of a cast that cannot fail."""

    def run(scope: Scope) -> Vector:
        x = node.run(scope)
        return Vector(function(x.values), x.valid)

    return Node(key, type, run, (node,), can_nan=can_nan, sets_float_flags=True)


# -- numbers and booleans -------------------------------------------------------------------------------------------


def _between_numbers(node: Node, type: Type, key: str) -> Node:
    source, dtype = node.type, type.dtype
    assert source is not None
    if type is Type.BOOLEAN:
        return _map(node, key, type, lambda values: values != 0)
    if source in _FLOATS and type.is_integer:
        return Node(key, type, _float_to_integer(node, type), (node,), fallible=True, sets_float_flags=True)
    if source is Type.BIGINT and type is Type.INT:
        low, high = node.value_range
        at_least, at_most = INTEGER_RANGE[type]
        if low < at_least or high > at_most:
            return Node(key, type, _narrowing(node), (node,), fallible=True)
    made = _map(node, key, type, lambda values: values.astype(dtype), can_nan=source in _FLOATS and node.can_nan)
    if type.is_integer:
        made.range = (0, 1) if source is Type.BOOLEAN else node.value_range
    return made


def cast_number(node: Node, type: Type) -> Node:
    """Make the node of a cast to a wider number, which cannot fail."""
    return folded(_between_numbers(node, type, f"cast({node.key} as {type})"))


def _narrowing(node: Node) -> Run:
    low, high = INTEGER_RANGE[Type.INT]

    def run(scope: Scope) -> Vector:
        x = node.run(scope)
        values = x.values
        out = values.astype(np.int32)
        if values.shape[0] and (values.min() < low or values.max() > high):
            return failed(scope, out, values != out, x.valid)
        return Vector(out, x.valid)

    return run


def _float_to_integer(node: Node, type: Type) -> Run:
    low, high = INTEGER_RANGE[type]
    # values inside (low - 1, high + 1) fit once truncated; for bigint low - 1 is not a double, and low itself fits
    floor = float(low) - 1 if type is Type.INT else np.nextafter(float(low), -np.inf)
    ceiling = float(high) + 1
    dtype = type.dtype

    def run(scope: Scope) -> Vector:
        x = node.run(scope)
        values = x.values
        ok = values > floor
        ok &= values < ceiling
        if np.count_nonzero(ok) == ok.shape[0]:
            return Vector(values.astype(dtype), x.valid)
        return failed(scope, np.where(ok, values, 0).astype(dtype), ~ok, x.valid)

    return run


# -- timestamps -----------------------------------------------------------------------------------------------------


def _to_timestamp(node: Node, key: str) -> Node:
    if node.type is Type.BOOLEAN:
        # true is a microsecond, as in Spark
        return _map(node, key, Type.TIMESTAMP, lambda values: values.astype(np.int64) * 1_000)
    if node.type in _FLOATS:
        return Node(key, Type.TIMESTAMP, _seconds_to_timestamp(node), (node,), fallible=True, sets_float_flags=True)
    seconds = cast_number(node, Type.BIGINT) if node.type is Type.INT else node
    return arithmetic_integer("*", seconds, constant(_SECOND_NS, Type.BIGINT), Type.TIMESTAMP)


def _seconds_to_timestamp(node: Node) -> Run:
    """Make the kernel for seconds as a double, truncated to microseconds as in Spark."""
    limit = 2.0**63 / 1_000

    def run(scope: Scope) -> Vector:
        x = node.run(scope)
        micros = x.values.astype(np.float64) * 1e6
        ok = np.abs(micros) < limit  # false for NaN
        out = np.where(ok, micros, 0).astype(np.int64) * 1_000
        if np.count_nonzero(ok) != ok.shape[0]:
            return failed(scope, out, ~ok, x.valid)
        return Vector(out, x.valid)

    return run


def _from_timestamp(node: Node, type: Type, key: str) -> Node:
    if type is Type.BOOLEAN:
        return _map(node, key, type, lambda values: values != 0)
    if type in _FLOATS:
        # through microseconds: a double holds them exactly, but not nanoseconds since 1970
        return _map(node, key, type, lambda values: (values // 1_000 / 1e6).astype(type.dtype))
    seconds = _map(node, f"seconds({node.key})", Type.BIGINT, lambda values: values // _SECOND_NS)
    seconds.range = (-(2**63) // _SECOND_NS, 2**63 // _SECOND_NS)
    return seconds if type is Type.BIGINT else _between_numbers(seconds, type, key)


# -- text -----------------------------------------------------------------------------------------------------------


def _from_text(node: Node, type: Type, key: str, strict: bool) -> Node:
    parse = text_values.PARSERS[type]
    if strict and type.is_integer:
        parse, key = text_values.STRICT_INTEGERS[type], key.replace("cast(", "try_cast(", 1)
    run = text_table_run(node, f"cast {'strictly' if strict else ''}", parse, type)
    return Node(key, type, run, (node,), nullable=True, sets_float_flags=True)


def _to_text(node: Node, key: str) -> Node:
    if node.type is Type.BOOLEAN:

        def run_boolean(scope: Scope) -> Vector:
            x = node.run(scope)
            return Vector(x.values.astype(np.int32), x.valid, _TRUTH)

        return Node(key, Type.STRING, run_boolean, (node,))
    assert node.type is not None
    write = text_values.WRITERS[node.type]
    return Node(key, Type.STRING, combined_run("cast", write, (node,), Type.STRING), (node,))


def text_operand(op: str, left: Node, right: Node) -> tuple[Node, Node]:
    """Prepare a comparison of a string with another type: cast the string to that type, as Spark does.

    A literal that the cast would lose or truncate is refused: in Spark ``size > '1.5'`` means ``size > 1``, and
    ``size > 'abc'`` is NULL for every tuple. Both are mistakes.
    """
    text, other = (left, right) if left.type is Type.STRING else (right, left)
    assert other.type is not None
    if other.type not in tuple(Type):
        raise Refusal(f"{op} cannot compare {other.type} with string", "write interval '...'")
    turned = cast(text, other.type)
    if text.constant is not None and not text.is_null:
        if turned.is_null:
            raise Refusal(f"{text.value!r} is not {with_article(other.type)}, so {op} would be NULL for every tuple")
        if other.type.is_integer and cast(text, other.type, strict=True).is_null:
            message = f"{text.value!r} would be truncated to the {other.type} {turned.value}"
            raise Refusal(message, "write it without quotes")
    return (turned, other) if text is left else (other, turned)
