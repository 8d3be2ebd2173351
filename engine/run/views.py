"""Views of a running engine: their rows, while the network goes on."""

from __future__ import annotations

from typing import Any

from catalog.schema import Type
from engine.operators.boxes.view import View
from engine.operators.expressions import Scope, compile_expression
from engine.run.core import Engine
from engine.run.runtime import BoxRuntime
from storage.train import Train


def list_views(engine: Engine) -> list[dict[str, Any]]:
    """Return every view: its key, how many rows a key keeps, and how many keys there are."""
    return [
        {
            "name": runtime.node.name,
            "key": box.parameters.key,
            "last": box.parameters.last,
            "keys": runtime.box.state_keys(runtime.state),
            "keys_at_most": box.parameters.keys,
            "schema": [{"name": f.name, "type": str(f.type), "nullable": f.nullable} for f in box.schema],
        }
        for runtime in engine.runtimes
        if isinstance(box := runtime.box, View)
    ]


def view_rows(engine: Engine, name: str, where: str) -> Train:
    """Return the rows of a view for which a condition holds; empty: all. Raises ExpressionError. Any thread."""
    box, runtime = _view(engine, name)
    predicate = compile_expression(where, box.schema, expect=Type.BOOLEAN) if where.strip() else None
    state: Any = runtime.state
    rows = box.asked(state)
    mask = None if predicate is None else predicate.mask(Scope(rows))
    return rows if mask is None else rows.where(mask)


def _view(engine: Engine, name: str) -> tuple[View, BoxRuntime]:
    runtime = engine.runtimes[engine.network.box(name).number]
    assert isinstance(runtime.box, View)
    return runtime.box, runtime
