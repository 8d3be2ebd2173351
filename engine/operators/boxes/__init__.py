"""The boxes: each module of this folder but ``base`` and ``keyed`` defines one ``Box``; its kind is the module's name.

A module is imported when its kind is first used, so a network of filters does not wait for the import of windows and
joins.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator, Mapping
from functools import cache

from engine.operators.boxes.base import Box

_NO_BOXES = ("base", "keyed")


class _Kinds(Mapping[str, type[Box]]):
    def __init__(self) -> None:
        self._names = sorted(info.name for info in pkgutil.iter_modules(__path__) if info.name not in _NO_BOXES)

    def __getitem__(self, kind: str) -> type[Box]:
        if kind not in self._names:
            raise KeyError(kind)
        return _load(kind)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, kind: object) -> bool:
        return kind in self._names


@cache
def _load(kind: str) -> type[Box]:
    module = importlib.import_module(f"{__name__}.{kind}")
    found = [c for c in vars(module).values() if inspect.isclass(c) and issubclass(c, Box) and "kind" in vars(c)]
    boxes = [box for box in found if box.__module__ == module.__name__]
    assert [box.kind for box in boxes] == [kind], (
        f"engine/operators/boxes/{kind}.py must define one box, of kind {kind}"
    )
    return boxes[0]


@cache
def box_kinds() -> Mapping[str, type[Box]]:
    """Return every kind of box by its word in the network file."""
    return _Kinds()
