"""Values of groups, kept until the group is gone: sorted runs of growing size, without a Python object for each value.

A batch that comes in is sorted by group and becomes a run. Runs of like size are merged, so there are O(log n) of them
and each entry is moved O(log n) times. A lookup is a binary search in each run. The log forgets lazily: it drops the
entries of groups that are gone when they are more than half of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.operators.state.columns import Array, Numbers

_SMALL = 1_024


class SortedRun:
    """Entries sorted by ``keys``; ``columns`` hold their values."""

    __slots__ = ("columns", "keys")

    def __init__(self, keys: Numbers, columns: tuple[Array, ...]) -> None:
        self.keys = keys
        self.columns = columns

    def __len__(self) -> int:
        return int(self.keys.shape[0])


def sorted_run(keys: Numbers, columns: tuple[Array, ...]) -> SortedRun:
    if (keys[1:] < keys[:-1]).any():
        order = np.argsort(keys, kind="stable")  # equal keys stay in the order of arrival
        return SortedRun(keys.take(order), tuple([c.take(order, axis=0) for c in columns]))
    return SortedRun(keys, columns)


def push(runs: list[SortedRun], run: SortedRun) -> None:
    """Add a run and merge the last ones while they are of like size."""
    runs.append(run)
    while len(runs) > 1 and len(runs[-2]) <= 2 * len(runs[-1]):
        newer, older = runs.pop(), runs.pop()
        runs.append(joined([older, newer]))


def joined(runs: Sequence[SortedRun]) -> SortedRun:
    keys = np.concatenate([r.keys for r in runs])
    columns = tuple([np.concatenate(parts) for parts in zip(*[r.columns for r in runs], strict=True)])
    return sorted_run(keys, columns)


class ValueLog:
    """Values by the serial number of their group, ``width`` columns for each entry.

    Serials are never used twice, so no lookup finds the entries of a group that is gone.
    """

    __slots__ = ("_gone", "_runs", "width")

    def __init__(self, width: int) -> None:
        self.width = width
        self._runs: list[SortedRun] = []
        self._gone = 0  # entries of groups that are gone

    def __len__(self) -> int:
        return sum(len(r) for r in self._runs)

    @property
    def nbytes(self) -> int:
        return sum(r.keys.nbytes + sum(c.nbytes for c in r.columns) for r in self._runs)

    def append(self, serials: Numbers, columns: tuple[Array, ...]) -> None:
        if serials.shape[0]:
            push(self._runs, sorted_run(serials, columns))

    def read(self, serials: Numbers, segments: Numbers) -> tuple[Numbers, tuple[Array, ...]]:
        """Return all values of these groups with their segments, sorted by segment, then by arrival."""
        found: list[SortedRun] = []
        for run in self._runs:
            low = np.searchsorted(run.keys, serials, "left")
            counts = np.searchsorted(run.keys, serials, "right") - low
            index = np.repeat(low - np.cumsum(counts) + counts, counts) + np.arange(int(counts.sum()))
            found.append(SortedRun(np.repeat(segments, counts), tuple([c.take(index) for c in run.columns])))
        if not found:
            return np.empty(0, np.int64), tuple(np.empty(0, np.int64) for _ in range(self.width))
        whole = joined(found)
        return whole.keys, whole.columns

    def forget(self, serials: Numbers) -> bool:
        """Take note that these groups are gone. Return True when it pays to ``sweep``."""
        for run in self._runs:
            low, high = np.searchsorted(run.keys, serials, "left"), np.searchsorted(run.keys, serials, "right")
            self._gone += int((high - low).sum())
        size = len(self)
        return 0 < size == self._gone or (self._gone > _SMALL and 2 * self._gone > size)

    def sweep(self, live: Numbers) -> None:
        """Keep only the entries of these serials (ascending)."""
        kept: list[SortedRun] = []
        for run in self._runs:
            at = np.searchsorted(live, run.keys)
            alive = np.append(live, -1).take(at) == run.keys
            index = np.flatnonzero(alive)
            if index.shape[0]:
                kept.append(SortedRun(run.keys.take(index), tuple([c.take(index) for c in run.columns])))
        self._runs = kept
        self._gone = 0
