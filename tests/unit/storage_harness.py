"""A storage manager whose events are ignored, for tests of queues and budgets."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from storage.manager import StorageManager
from storage.train import Train


def ignore_room() -> None: ...


def ignore_expired(arc: int, dropped: Sequence[Train]) -> None: ...


def make_storage(arcs: int, budget_bytes: int, on_room: Callable[[], None] = ignore_room) -> StorageManager:
    return StorageManager(arcs, budget_bytes, on_room=on_room, on_expired=ignore_expired)
