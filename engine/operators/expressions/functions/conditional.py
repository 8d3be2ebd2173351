"""CASE, IF, COALESCE, NULLIF, GREATEST, LEAST: choose between columns.

Every branch is computed for all rows, and then each row takes its value: computing a branch for some rows of a train
saves nothing. A failure in a branch is counted only for the rows that take the branch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from catalog.schema import Type
from engine.operators.expressions.functions.signatures import function
from engine.operators.expressions.kernels.casts import cast
from engine.operators.expressions.kernels.combinations import combined_run
from engine.operators.expressions.kernels.compare import compare
from engine.operators.expressions.kernels.logic import boolean, is_null, limited, negation
from engine.operators.expressions.kernels.pools import merged
from engine.operators.expressions.tree.coerce import Refusal, common
from engine.operators.expressions.tree.node import Node, Run, constant, folded
from engine.operators.expressions.tree.vector import Array, Mask, Scope, Vector

_YES = np.ones(1, np.bool_)


def choose(condition: Node, yes: Node, no: Node) -> Node:
    """Make the node of IF: ``yes`` where the condition is true, ``no`` where it is false or NULL."""
    return case([(condition, yes)], no, what="if")


def case(branches: Sequence[tuple[Node, Node]], default: Node | None, what: str = "case") -> Node:
    """Make the node of CASE: the value of the first branch whose condition is true, else the default or NULL."""
    default = default if default is not None else constant(None, None)
    kind = common(what, [*(value for _, value in branches), default])
    if kind is None:
        return constant(None, None)
    kept: list[tuple[Node, Node]] = []
    default = cast(default, kind)
    for condition, value in branches:
        condition = boolean(what, condition)
        if condition.is_null or (condition.constant is not None and not condition.value):
            continue
        if condition.constant is not None:
            default = cast(value, kind)
            break
        kept.append((condition, cast(value, kind)))
    if not kept:
        return default
    values = [value for _, value in kept] + [default]
    conditions = [condition for condition, _ in kept]
    key = f"case({', '.join(f'{c.key}: {v.key}' for c, v in kept)}, {default.key})"
    nullable = any(value.nullable for value in values)
    can_nan = any(value.can_nan for value in values)
    children = (*conditions, *values)
    node = Node(key, kind, _case_run(conditions, values), children, nullable=nullable, can_nan=can_nan)
    return folded(node)


def _case_run(conditions: Sequence[Node], values: Sequence[Node]) -> Run:
    careful = any(node.fallible for node in (*conditions[1:], *values))
    pairs = tuple(zip(conditions, values, strict=False))
    default = values[-1]

    def run(scope: Scope) -> Vector:
        masks: list[Mask] = []
        vectors: list[Vector] = []
        open_rows: Mask | None = None  # rows that no branch has taken; computed only when a branch can fail
        last = default
        for condition, value in pairs:
            mask = condition.mask(scope) if open_rows is None else limited(scope, condition.mask, open_rows)
            if mask is None:
                last = value
                break
            masks.append(mask)
            taken = mask if open_rows is None else mask & open_rows
            vectors.append(limited(scope, value.run, taken) if careful else value.run(scope))
            if careful:
                open_rows = ~mask if open_rows is None else open_rows & ~mask
        vectors.append(last.run(scope) if open_rows is None else limited(scope, last.run, open_rows))
        return _selected(masks, vectors)

    return run


def _selected(masks: Sequence[Mask], vectors: Sequence[Vector]) -> Vector:
    arrays, pool = merged(vectors)
    values = arrays[-1]
    for at in range(len(masks) - 1, -1, -1):  # backwards, so that the first true condition wins
        values = np.where(masks[at], arrays[at], values)
    if all(v.valid is None for v in vectors):
        return Vector(values, None, pool)
    flags = [_YES if v.valid is None else v.valid for v in vectors]
    valid = flags[-1]
    for at in range(len(masks) - 1, -1, -1):
        valid = np.where(masks[at], flags[at], valid)
    return Vector(values, valid, pool)


def coalesce(nodes: Sequence[Node], what: str = "coalesce") -> Node:
    """Make the node of COALESCE: the first value that is not NULL."""
    kind = common(what, nodes)
    if kind is None:
        return constant(None, None)
    parts: list[Node] = []
    for node in nodes:
        node = cast(node, kind)
        if not node.is_null:
            parts.append(node)
        if not node.nullable:
            break
    if len(parts) < 2:
        return parts[0] if parts else constant(None, kind)
    first, rest = parts[0], tuple(parts[1:])

    def run(scope: Scope) -> Vector:
        out = first.run(scope)
        for node in rest:
            if out.valid is None:
                break
            other = limited(scope, node.run, ~out.valid) if node.fallible else node.run(scope)
            arrays, pool = merged((out, other))
            valid = None if other.valid is None else out.valid | other.valid
            out = Vector(np.where(out.valid, arrays[0], arrays[1]), valid, pool)
        return out

    key = f"coalesce({', '.join(node.key for node in parts)})"
    return folded(Node(key, kind, run, tuple(parts), nullable=parts[-1].nullable))


def nullif(args: Sequence[Node]) -> Node:
    left, right = args
    if left.type is None:
        return left
    return choose(compare("=", left, right), constant(None, left.type), left)


def extreme(name: str, nodes: Sequence[Node]) -> Node:
    """Make the node of GREATEST or LEAST: NULLs are skipped, NaN is greater than every number."""
    kind = common(name, nodes, strings=False)
    if kind is None:
        return constant(None, None)
    nodes = [cast(node, kind) for node in nodes]
    key = f"{name}({', '.join(sorted(node.key for node in nodes))})"
    nullable = all(node.nullable for node in nodes)
    if kind is Type.STRING:
        choice = max if name == "greatest" else min
        run = combined_run(name, lambda *texts: _best(choice, texts), nodes, kind, nulls=True)
    else:
        run = _extreme_run(name, nodes)
    return folded(Node(key, kind, run, tuple(nodes), nullable=nullable))


def _best(choice: Callable[..., str], texts: Sequence[str | None]) -> str | None:
    return choice((text for text in texts if text is not None), default=None)


def _extreme_run(name: str, nodes: Sequence[Node]) -> Run:
    # maximum returns NaN when there is one, fmin the other operand: in Spark's order NaN is the greatest
    ufunc = np.maximum if name == "greatest" else np.fmin
    first, rest = nodes[0], tuple(nodes[1:])
    is_float = first.type in (Type.FLOAT, Type.DOUBLE)

    def run(scope: Scope) -> Vector:
        out = first.run(scope)
        for node in rest:
            other = node.run(scope)
            best = ufunc(out.values, other.values)
            if is_float:
                best = np.where(out.values == other.values, out.values, best)  # of 0.0 and -0.0 the first
            out = _either(out, other, best)
        return out

    return run


def _either(x: Vector, y: Vector, best: Array) -> Vector:
    """Return ``best`` where both have a value, else the value of the one that has."""
    if x.valid is None and y.valid is None:
        return Vector(best)
    left = _YES if x.valid is None else x.valid
    right = _YES if y.valid is None else y.valid
    values = np.where(left & right, best, np.where(left, x.values, y.values))
    return Vector(values, None if x.valid is None or y.valid is None else left | right)


def _nvl2(args: Sequence[Node]) -> Node:
    return choose(negation(is_null(args[0])), args[1], args[2])


def _zero_null(args: Sequence[Node]) -> Node:
    if args[0].type is not None and not args[0].type.is_numeric:
        raise Refusal(f"zeroifnull takes a number, not {args[0].type}")
    return coalesce([args[0], constant(0, Type.INT)], "zeroifnull")


FUNCTIONS = (
    function(
        "if(condition: boolean, x: any, y: any) -> common type of x and y",
        "x where the condition is true, y where it is false or NULL",
        lambda a: choose(*a),
        "if(2 > 1, 'yes', 'no') -> 'yes'",
    ),
    function(
        "coalesce(x: any, ...) -> common type of x",
        "the first argument that is not NULL",
        coalesce,
        "coalesce(NULL, 5, 7) -> 5",
    ),
    function(
        "nvl(x: any, y: any) -> common type of x and y",
        "x, or y where x is NULL",
        coalesce,
        "nvl(NULL, 5) -> 5",
        "ifnull",
    ),
    function(
        "nvl2(x: any, y: any, z: any) -> common type of y and z",
        "y where x is not NULL, z where it is",
        _nvl2,
        "nvl2(NULL, 'there', 'missing') -> 'missing'",
    ),
    function("nullif(x: any, y: any) -> type of x", "NULL where x equals y, else x", nullif, "nullif(5, 5) -> NULL"),
    function(
        "nullifzero(x: number) -> type of x",
        "NULL where x is 0, else x",
        lambda a: nullif([a[0], constant(0, Type.INT)]),
        "nullifzero(0) -> NULL",
    ),
    function("zeroifnull(x: number) -> type of x", "0 where x is NULL, else x", _zero_null, "zeroifnull(NULL) -> 0"),
    function("isnull(x: any) -> boolean", "whether x is NULL", lambda a: is_null(a[0]), "isnull(NULL) -> true"),
    function(
        "isnotnull(x: any) -> boolean",
        "whether x is not NULL",
        lambda a: negation(is_null(a[0])),
        "isnotnull(NULL) -> false",
    ),
    function(
        "greatest(x: any, y: any, ...) -> common type of x and y",
        "the greatest value; NULLs are skipped, NaN is greater than every number",
        lambda a: extreme("greatest", a),
        "greatest(1, 3, NULL) -> 3",
    ),
    function(
        "least(x: any, y: any, ...) -> common type of x and y",
        "the least value; NULLs are skipped, NaN is greater than every number",
        lambda a: extreme("least", a),
        "least('b', 'a') -> 'a'",
    ),
)
