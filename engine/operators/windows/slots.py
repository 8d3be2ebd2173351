"""Slots of groups, given out and taken back.

A slot that was given back is used again before a new one is made, so the columns indexed by slots stay as short as the
most that were ever alive at once. ``is_roomy`` tells when that was long ago and it pays to number the live slots anew.
"""

from __future__ import annotations

import numpy as np

from engine.operators.state.columns import Numbers, longer

_START = 64
_ROOMY = 8  # number anew when fewer than one slot in eight is alive


class Slots:
    """The slots 0 .. size-2 that are free. The last slot is never given out: see ``HashIndex``."""

    __slots__ = ("_count", "_stack", "size")

    def __init__(self, size: int = 0) -> None:
        self.size = size = size or _START
        self._stack: Numbers = np.arange(size - 2, -1, -1)  # the lowest on top
        self._count = size - 1

    @classmethod
    def fitting(cls, count: int) -> Slots:
        """Make slots with room for ``count`` and as many again."""
        return cls(max(_START, 2 * count + 1))

    @property
    def live(self) -> int:
        return self.size - 1 - self._count

    def lacks(self, count: int) -> int:
        """Return the size to grow to so that ``count`` slots can be taken; 0 when there are enough."""
        if count <= self._count:
            return 0
        return max(longer(self.size), self.live + count + 1)

    def grow(self, size: int) -> None:
        fresh = np.arange(size - 2, self.size - 2, -1)
        self._stack = np.concatenate([fresh, self._stack[: self._count]])
        self._count += fresh.shape[0]
        self.size = size

    def take(self, count: int) -> Numbers:
        assert count <= self._count
        self._count -= count
        return self._stack[self._count : self._count + count][::-1].copy()

    def give_back(self, slots: Numbers) -> None:
        end = self._count + slots.shape[0]
        if end > self._stack.shape[0]:
            self._stack = np.concatenate([self._stack[: self._count], np.empty(self.size, np.int64)])
        self._stack[self._count : end] = slots
        self._count = end

    @property
    def is_roomy(self) -> bool:
        return self.size > 4 * _START and self.live * _ROOMY < self.size
