"""Bugs planted on purpose, to see that the tests catch them.

A test of a guarantee is worth what it catches. Each name here is a mistake that a storage engine has really been
shipped with; ``AURORAD_PLANT=ack_before_sync`` in the environment makes it, and the suite must then fail
(``tests/crash/test_plants.py``). Without the variable, ``planted`` is false everywhere. Asked for only where a mistake
would be made, never per tuple.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

PLANTS = {
    "ack_before_sync": "acknowledge a group when it is written and not yet synced",
    "retry_sync": "call sync again after it failed, and believe it",
    "cut_damage": "take damage in the middle of the log for a torn tail",
    "dedup_in_memory": "forget at a restart which batches were admitted",
    "accept_gap": "admit a batch although the ones before it never came",
    "unlink_before_persist": "remove log segments before the checkpoint that replaces them is on disk",
    "checkpoint_in_place": "give a checkpoint its name before its bytes are synced",
    "cut_without_queues": "leave the trains that wait on arcs out of a checkpoint",
    "window_off_by_one": "restore a stream's clock one window too far",
    "spill_overtakes": "let a train bypass a queue that has older trains on disk",
    "forget_sent": "number the outputs again from the checkpoint after a crash",
    "replay_twice": "replay the first record behind the checkpoint twice",
}

_active = set(filter(None, os.environ.get("AURORAD_PLANT", "").split(",")))


def planted(name: str) -> bool:
    assert name in PLANTS, name
    return name in _active


@contextmanager
def plant(name: str) -> Iterator[None]:
    """Make this mistake inside. For tests."""
    assert name in PLANTS, name
    _active.add(name)
    try:
        yield
    finally:
        _active.discard(name)


def crash_before() -> int | None:
    """``AURORAD_CRASH_BEFORE=17``: the process kills itself before the 17th deed on its files."""
    text = os.environ.get("AURORAD_CRASH_BEFORE", "")
    return int(text) if text else None
