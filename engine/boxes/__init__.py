"""The boxes, found by being here: every module of this folder that defines a ``Box`` with a kind."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from functools import cache

from engine.boxes.base import Box


@cache
def box_kinds() -> dict[str, type[Box]]:
    """Every kind of box by its word in the network file."""
    kinds: dict[str, type[Box]] = {}
    for module_info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{module_info.name}")
        for member in vars(module).values():
            if inspect.isclass(member) and issubclass(member, Box) and "kind" in vars(member):
                assert kinds.setdefault(member.kind, member) is member, f"two boxes of kind {member.kind}"
    return dict(sorted(kinds.items()))
