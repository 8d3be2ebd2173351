"""The key group of a tuple or a window (``load_shedder/record/key_groups``): its key's hash, in a few bits.

The seed is a constant: a group must be the same on every arc, and after a restart. A sender that chooses keys of one
group makes the drops uneven, and no answer wrong.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.operators.bounded.hashing import KeyHash
from engine.operators.expressions import Vector
from engine.operators.state.columns import Numbers, vector_at
from load_shedder.record.key_groups import KEY_GROUPS
from storage.train import Train

_HASH = KeyHash(0x5DEECE66D)


def key_groups(key: Sequence[Vector], rows: int) -> Numbers:
    """Return the group of each row's key."""
    return (_HASH.of(key, rows) % np.uint64(KEY_GROUPS)).astype(np.int64)


def tuple_groups(train: Train, fields: Sequence[str]) -> Numbers:
    """Return the group of each tuple, by these fields."""
    return key_groups([vector_at(train, train.schema.index(name)) for name in fields], train.count)
