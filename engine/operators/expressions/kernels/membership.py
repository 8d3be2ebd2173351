"""IN and BETWEEN. A short list becomes an OR of comparisons, a longer one a loop of them, a long one ``np.isin``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from catalog.schema import Type
from engine.operators.expressions.kernels.compare import compare
from engine.operators.expressions.kernels.logic import conjunction
from engine.operators.expressions.kernels.pools import text_table_run
from engine.operators.expressions.tree.coerce import Refusal, common
from engine.operators.expressions.tree.node import Node, Run, constant, folded
from engine.operators.expressions.tree.vector import Scope, Vector

_FEW = 3  # up to this many items: OR of comparisons
_SOME = 16  # up to this many items, comparing one by one is faster than np.isin


def between(node: Node, low: Node, high: Node) -> Node:
    """Make the node of ``node >= low and node <= high``, which is BETWEEN also for NULLs."""
    return conjunction("and", [compare(">=", node, low), compare("<=", node, high)])


def member(node: Node, items: Sequence[Node]) -> Node:
    """Make the node of ``node in (items)``: true if it equals one of them, else NULL if one of them or the node is
    NULL, else false.

    Strings and other types do not mix here. Spark would compare all of them as strings, so that ``1.0 in ('1')`` and
    ``ts in ('2020-01-01')`` are false.
    """
    kind = common("in", [node, *items], strings=False)
    if kind is None or node.is_null:
        return constant(None, Type.BOOLEAN)
    values = [item for item in items if not item.is_null and item.type is not None]
    has_null = len(values) < len(items)
    if len(values) <= _FEW or kind is Type.BOOLEAN or any(item.constant is None for item in values):
        parts = [compare("=", node, item) for item in values]
        return conjunction("or", [*parts, *([constant(None, Type.BOOLEAN)] if has_null else [])])
    wanted = {compare_value(kind, item) for item in values}
    key = f"({node.key} in {sorted(map(repr, wanted))}{' or null' if has_null else ''})"
    run = _text_run(node, wanted) if kind is Type.STRING else _value_run(node, kind, wanted)
    found = folded(Node(key, Type.BOOLEAN, run, (node,)))
    return conjunction("or", [found, constant(None, Type.BOOLEAN)]) if has_null else found


def compare_value(kind: Type, item: Node) -> object:
    value = item.value
    if isinstance(value, float) and value != value:
        raise Refusal("IN cannot find NaN", "write isnan(x)")
    return kind.dtype.type(value).item() if kind is not Type.STRING else value


def _text_run(node: Node, wanted: set[object]) -> Run:
    return text_table_run(node, f"in {sorted(map(repr, wanted))}", lambda text: text in wanted, Type.BOOLEAN)


def _value_run(node: Node, kind: Type, wanted: set[object]) -> Run:
    items = np.array(sorted(wanted), kind.dtype)  # type: ignore[type-var]
    first, rest = items[:1], [items[at : at + 1] for at in range(1, len(items))]

    def run_few(scope: Scope) -> Vector:
        x = node.run(scope)
        out = np.equal(x.values, first)
        one = np.empty_like(out)
        for item in rest:
            np.equal(x.values, item, one)
            out |= one
        return Vector(out, x.valid)

    if len(items) <= _SOME:
        return run_few

    def run(scope: Scope) -> Vector:
        x = node.run(scope)
        return Vector(np.isin(x.values, items), x.valid)

    return run
