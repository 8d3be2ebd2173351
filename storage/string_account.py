"""The memory of strings that trains refer to. A train's own bytes have only codes; the strings are in pools.

Without them 60,000 tuples with a string of 10 kB each would count as 700 kB, and take 700 MB.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from storage.strings import StringPool
from storage.train import Train


def pools_of(train: Train) -> tuple[StringPool, ...]:
    """Return the pools of a train, each once."""
    columns = train.schema.string_columns
    if not columns:
        return ()
    found = {id(pool): pool for i in columns if (pool := train.pools[i]) is not None}
    return tuple(found.values())


def string_share(train: Train) -> int:
    """Return about how many bytes the distinct strings of a train have, at the mean size of its pools.

    That is what a train costs when it leaves its pools behind: written to disk and read back. 15 us for 10,000 tuples.
    """
    total = 0
    for pool in pools_of(train):
        entries = len(pool)
        if not entries:
            continue
        used = np.zeros(entries, np.bool_)
        for i in train.schema.string_columns:
            if train.pools[i] is pool:
                used[train.columns[i]] = True
        total += int(np.count_nonzero(used)) * pool.nbytes // entries
    return total


FEW_TUPLES = 64


def waiting_bytes(train: Train) -> int:
    """Return the bytes of a train that waits, with its strings. In a short train every string counts as another one: a
    look at the pools would take longer than the rest of its way."""
    if train.count > FEW_TUPLES:
        return train.nbytes + string_share(train)
    strings = 0
    for pool in pools_of(train):
        columns = sum([train.pools[i] is pool for i in train.schema.string_columns])
        strings += min(train.count * columns, len(pool)) * pool.nbytes // max(1, len(pool))
    return train.nbytes + strings


class StringAccount:
    """Counts every pool that waiting trains refer to once. Owner: the storage manager, under its lock."""

    def __init__(self) -> None:
        self._pools: dict[int, list[int]] = {}  # by id: trains that refer to it, bytes that are counted
        self.nbytes = 0

    def enter(self, pools: Iterable[StringPool]) -> None:
        """Count the pools of one more train, with the strings that have been added to them since the last one."""
        for pool in pools:
            entry = self._pools.setdefault(id(pool), [0, 0])
            entry[0] += 1
            self.nbytes += pool.nbytes - entry[1]
            entry[1] = pool.nbytes

    def leave(self, pools: Iterable[StringPool]) -> None:
        """Forget the pools of a train. A pool that no train refers to any more is not counted."""
        for pool in pools:
            entry = self._pools[id(pool)]
            entry[0] -= 1
            if not entry[0]:
                self.nbytes -= entry[1]
                del self._pools[id(pool)]
