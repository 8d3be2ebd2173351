"""Three-valued logic: AND, OR, NOT, IS NULL, IS TRUE.

A column without NULLs has no validity mask; then each operator is one numpy call. With NULLs, ``false and null`` is
false and ``true or null`` is true. In a filter (``mask``) NULL and false are the same, so AND and OR of masks need no
three-valued logic.

Both sides are computed for every row: skipping single rows of a column saves nothing. But a row that SQL would not have
evaluated counts no error: ``b <> 0 and a / b > 1`` counts no division by zero (``Scope.active``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from catalog.schema import Type
from engine.operators.expressions.tree.coerce import Refusal
from engine.operators.expressions.tree.node import Node, Run, RunMask, constant, folded
from engine.operators.expressions.tree.vector import Mask, Scope, Vector, stretch


def boolean(what: str, node: Node) -> Node:
    """Check an operand of logic; a bare NULL becomes a boolean NULL."""
    if node.type is None:
        return constant(None, Type.BOOLEAN)
    if node.type is not Type.BOOLEAN:
        raise Refusal(f"{what} takes booleans, not {node.type}", "compare it with something, or cast it")
    return node


def conjunction(op: str, nodes: Sequence[Node]) -> Node:
    """Make the node of AND or OR over any number of operands; operands with equal keys count once."""
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
    can_fail = any(node.fallible for node in kept)  # then operands are evaluated in order, and the mask comes from run
    out = folded(Node(key, Type.BOOLEAN, run, tuple(kept), mask=None if can_fail else mask))
    if not absorbing:
        out.needs = tuple([test for node in kept for test in node.needs])
    return out


T = TypeVar("T")


def limited(scope: Scope, run: Callable[[Scope], T], rows: Mask) -> T:
    """Run a fallible node so that only ``rows`` count errors."""
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
            if node.fallible:  # evaluated unless the left side is false
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
            if node.fallible:  # evaluated unless the left side is true
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
    """Make the node of NOT; NULL stays NULL."""
    node = boolean("not", node)

    def run(scope: Scope) -> Vector:
        x = node.run(scope)
        return Vector(~x.values, x.valid)

    return folded(Node(f"(not {node.key})", Type.BOOLEAN, run, (node,)))


def is_null(node: Node) -> Node:
    """Make the node of IS NULL; a constant false for a node that cannot be NULL."""
    if node.type is None:
        return constant(True, Type.BOOLEAN)
    if not node.nullable:
        return constant(False, Type.BOOLEAN)

    def run(scope: Scope) -> Vector:
        valid = node.run(scope).valid
        return Vector(np.zeros(scope.count, np.bool_) if valid is None else ~stretch(valid, scope.count))

    return folded(Node(f"({node.key} is null)", Type.BOOLEAN, run, (node,), nullable=False))


def is_truth(node: Node, wanted: bool) -> Node:
    """Make the node of IS TRUE or IS FALSE, which is never NULL."""
    node = boolean("is", node)

    def run(scope: Scope) -> Vector:
        x = node.run(scope)
        values = x.values if wanted else ~x.values
        return Vector(values if x.valid is None else values & x.valid)

    return folded(Node(f"({node.key} is {wanted})", Type.BOOLEAN, run, (node,), nullable=False))
