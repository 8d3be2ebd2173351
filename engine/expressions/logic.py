"""Three-valued logic: AND, OR, NOT, IS NULL, IS TRUE.

A column without NULLs has no validity mask, and then each of these is one numpy call. With NULLs, ``false and null``
is false and ``true or null`` is true. Read as a filter (``mask``), NULL and false are the same, so AND and OR of masks
are right without any of that.

Every row is computed on both sides; there is nothing to save by skipping rows one at a time. But a row that SQL would
not have looked at makes no error: ``b <> 0 and a / b > 1`` counts no division by zero (``Scope.active``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from catalog.schema import Type
from engine.expressions.coerce import Refusal
from engine.expressions.node import Node, Run, RunMask, constant, folded
from engine.expressions.vector import Mask, Scope, Vector, stretch


def boolean(what: str, node: Node) -> Node:
    """The node as an operand of logic; a bare NULL becomes a boolean one."""
    if node.type is None:
        return constant(None, Type.BOOLEAN)
    if node.type is not Type.BOOLEAN:
        raise Refusal(f"{what} takes booleans, not {node.type}", "compare it with something, or cast it")
    return node


def conjunction(op: str, nodes: Sequence[Node]) -> Node:
    """AND or OR of any number of operands, flattened; operands with equal keys count once."""
    absorbing = op == "or"
    parts: dict[str, Node] = {}
    for node in nodes:
        node = boolean(op, node)
        if node.constant is not None and not node.is_null:
            if node.value is absorbing:
                return node
            continue
        parts.setdefault(node.key, node)
    kept = list(parts.values())
    if not kept:
        return constant(not absorbing, Type.BOOLEAN)
    if len(kept) == 1:
        return kept[0]
    key = f"({f' {op} '.join(sorted(parts))})"
    run, mask = (_or_run(kept), _or_mask(kept)) if absorbing else (_and_run(kept), _and_mask(kept))
    can_fail = any(node.fallible for node in kept)  # then rows are looked at in order, and the mask comes from run
    return folded(Node(key, Type.BOOLEAN, run, tuple(kept), mask=None if can_fail else mask))


T = TypeVar("T")


def limited(scope: Scope, run: Callable[[Scope], T], rows: Mask) -> T:
    """Run something fallible; only ``rows`` count errors."""
    before = scope.active
    scope.active = rows if before is None else rows & before
    try:
        return run(scope)
    finally:
        scope.active = before


def _and(x: Vector, y: Vector) -> Vector:
    if x.valid is None and y.valid is None:
        return Vector(x.values & y.values)
    false_x = ~x.values if x.valid is None else ~x.values & x.valid
    false_y = ~y.values if y.valid is None else ~y.values & y.valid
    true_x = x.values if x.valid is None else x.values & x.valid
    true_y = y.values if y.valid is None else y.values & y.valid
    out = true_x & true_y
    return Vector(out, out | false_x | false_y)


def _or(x: Vector, y: Vector) -> Vector:
    if x.valid is None and y.valid is None:
        return Vector(x.values | y.values)
    false_x = ~x.values if x.valid is None else ~x.values & x.valid
    false_y = ~y.values if y.valid is None else ~y.values & y.valid
    true_x = x.values if x.valid is None else x.values & x.valid
    true_y = y.values if y.valid is None else y.values & y.valid
    out = true_x | true_y
    return Vector(out, out | (false_x & false_y))


def _and_run(nodes: Sequence[Node]) -> Run:
    first, rest = nodes[0], tuple(nodes[1:])

    def run(scope: Scope) -> Vector:
        out = first.run(scope)
        for node in rest:
            if node.fallible:  # looked at unless the left side is false
                open_rows = out.values if out.valid is None else out.values | ~out.valid
                out = _and(out, limited(scope, node.run, open_rows))
            else:
                out = _and(out, node.run(scope))
        return out

    return run


def _or_run(nodes: Sequence[Node]) -> Run:
    first, rest = nodes[0], tuple(nodes[1:])

    def run(scope: Scope) -> Vector:
        out = first.run(scope)
        for node in rest:
            if node.fallible:  # looked at unless the left side is true
                open_rows = ~out.values if out.valid is None else ~(out.values & out.valid)
                out = _or(out, limited(scope, node.run, open_rows))
            else:
                out = _or(out, node.run(scope))
        return out

    return run


def _and_mask(nodes: Sequence[Node]) -> RunMask:
    def mask(scope: Scope) -> Mask | None:
        out: Mask | None = None
        for node in nodes:
            more = node.mask(scope)
            if more is not None:
                out = more if out is None else out & more
        return out

    return mask


def _or_mask(nodes: Sequence[Node]) -> RunMask:
    def mask(scope: Scope) -> Mask | None:
        out: Mask | None = None
        for node in nodes:
            more = node.mask(scope)
            if more is None:
                return None
            out = more if out is None else out | more
        return out

    return mask


def negation(node: Node) -> Node:
    """NOT: NULL stays NULL."""
    node = boolean("not", node)

    def run(scope: Scope) -> Vector:
        x = node.run(scope)
        return Vector(~x.values, x.valid)

    return folded(Node(f"(not {node.key})", Type.BOOLEAN, run, (node,)))


def is_null(node: Node) -> Node:
    """IS NULL; false at once for what cannot be."""
    if node.type is None:
        return constant(True, Type.BOOLEAN)
    if not node.nullable:
        return constant(False, Type.BOOLEAN)

    def run(scope: Scope) -> Vector:
        valid = node.run(scope).valid
        return Vector(np.zeros(scope.count, np.bool_) if valid is None else ~stretch(valid, scope.count))

    return folded(Node(f"({node.key} is null)", Type.BOOLEAN, run, (node,), nullable=False))


def is_truth(node: Node, wanted: bool) -> Node:
    """IS TRUE and IS FALSE: never NULL."""
    node = boolean("is", node)

    def run(scope: Scope) -> Vector:
        x = node.run(scope)
        values = x.values if wanted else ~x.values
        return Vector(values if x.valid is None else values & x.valid)

    return folded(Node(f"({node.key} is {wanted})", Type.BOOLEAN, run, (node,), nullable=False))
