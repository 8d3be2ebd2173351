"""Sorted runs of growing size: what must be found again by its number or its time, without a Python object for each.

A batch that comes in is sorted and becomes a run; runs of like size are merged, so there are O(log n) of them and
each entry is moved O(log n) times. Looking up is a binary search in each run. A ``ValueLog`` forgets lazily: it drops
what belongs to groups that are gone when that is more than half of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.windows.numbers import Array, Numbers

_SMALL = 1_024


class Run:
    """Entries sorted by ``keys``; ``columns`` are what belongs to each."""

    __slots__ = ("columns", "keys")

    def __init__(self, keys: Numbers, columns: tuple[Array, ...]) -> None:
        self.keys = keys
        self.columns = columns

    def __len__(self) -> int:
        return int(self.keys.shape[0])

    def slice(self, start: int) -> Run:
        return Run(self.keys[start:], tuple([c[start:] for c in self.columns]))


def sorted_run(keys: Numbers, columns: tuple[Array, ...]) -> Run:
    if (keys[1:] < keys[:-1]).any():
        order = np.argsort(keys, kind="stable")  # equal keys stay in the order in which they came
        return Run(keys.take(order), tuple([c.take(order, axis=0) for c in columns]))
    return Run(keys, columns)


def push(runs: list[Run], run: Run) -> None:
    """Add a run and merge the last ones while they are of like size."""
    runs.append(run)
    while len(runs) > 1 and len(runs[-2]) <= 2 * len(runs[-1]):
        newer, older = runs.pop(), runs.pop()
        runs.append(joined([older, newer]))


def joined(runs: Sequence[Run]) -> Run:
    keys = np.concatenate([r.keys for r in runs])
    columns = tuple([np.concatenate(parts) for parts in zip(*[r.columns for r in runs], strict=True)])
    return sorted_run(keys, columns)


class ValueLog:
    """Values by the serial number of their group. Serials are never used twice, so what is left of a group that is gone
    can be found by nobody. ``width`` columns of values for each entry."""

    __slots__ = ("_gone", "_runs", "width")

    def __init__(self, width: int) -> None:
        self.width = width
        self._runs: list[Run] = []
        self._gone = 0  # entries of groups that are no more

    def __len__(self) -> int:
        return sum(len(r) for r in self._runs)

    @property
    def nbytes(self) -> int:
        return sum(r.keys.nbytes + sum(c.nbytes for c in r.columns) for r in self._runs)

    def append(self, serials: Numbers, columns: tuple[Array, ...]) -> None:
        if serials.shape[0]:
            push(self._runs, sorted_run(serials, columns))

    def read(self, serials: Numbers, segments: Numbers) -> tuple[Numbers, tuple[Array, ...]]:
        """All values of these groups with the segment of each; sorted by segment, then as they came."""
        found: list[Run] = []
        for run in self._runs:
            low = np.searchsorted(run.keys, serials, "left")
            counts = np.searchsorted(run.keys, serials, "right") - low
            index = np.repeat(low - np.cumsum(counts) + counts, counts) + np.arange(int(counts.sum()))
            found.append(Run(np.repeat(segments, counts), tuple([c.take(index) for c in run.columns])))
        if not found:
            return np.empty(0, np.int64), tuple(np.empty(0, np.int64) for _ in range(self.width))
        whole = joined(found)
        return whole.keys, whole.columns

    def forget(self, serials: Numbers) -> bool:
        """These groups are gone. True when it is time to ``sweep``."""
        for run in self._runs:
            low, high = np.searchsorted(run.keys, serials, "left"), np.searchsorted(run.keys, serials, "right")
            self._gone += int((high - low).sum())
        size = len(self)
        return 0 < size == self._gone or (self._gone > _SMALL and 2 * self._gone > size)

    def sweep(self, live: Numbers) -> None:
        """Keep only what belongs to these serials (ascending)."""
        kept: list[Run] = []
        for run in self._runs:
            at = np.searchsorted(live, run.keys)
            alive = np.append(live, -1).take(at) == run.keys
            index = np.flatnonzero(alive)
            if index.shape[0]:
                kept.append(Run(run.keys.take(index), tuple([c.take(index) for c in run.columns])))
        self._runs = kept
        self._gone = 0


class Timers:
    """Numbers by the time at which to look at them. Who gives a number back must have been told of it before."""

    __slots__ = ("_runs",)

    def __init__(self) -> None:
        self._runs: list[Run] = []

    @property
    def nbytes(self) -> int:
        return sum(16 * len(r) for r in self._runs)

    def set(self, due_ns: Numbers, numbers: Numbers) -> None:
        if numbers.shape[0]:
            push(self._runs, sorted_run(due_ns, (numbers,)))

    def due(self, until_ns: int) -> Numbers:
        """Take out the numbers whose time has come."""
        numbers: list[Numbers] = []
        runs: list[Run] = []
        for run in self._runs:
            end = int(np.searchsorted(run.keys, until_ns, "right"))
            if end:
                numbers.append(run.columns[0][:end])
            if end < len(run):
                runs.append(run.slice(end) if end else run)
        self._runs = runs
        return np.concatenate(numbers) if numbers else np.empty(0, np.int64)
