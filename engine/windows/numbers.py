"""Small numbers given out and taken back, and columns that are indexed by them.

Numbers that were given back are used again before new ones are made, so the columns stay as short as the most that was
ever alive at once; ``Numbered.shrunk`` says when that was so long ago that it pays to number anew.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Numbers = npt.NDArray[np.int64]

_START = 64
_IDLE = 262_144  # so many forgotten keys are kept at most, for a while
_ROOMY = 8  # number anew when fewer than one in so many numbers is alive


class Free:
    """The numbers 0 .. size-2 that are free. The last number is never given out: see ``index``."""

    __slots__ = ("_count", "_stack", "size")

    def __init__(self, size: int = 0) -> None:
        self.size = size = size or _START
        self._stack: Numbers = np.arange(size - 2, -1, -1)  # the lowest on top
        self._count = size - 1

    @property
    def live(self) -> int:
        return self.size - 1 - self._count

    def lacks(self, count: int) -> int:
        """The size to grow to so that ``count`` numbers can be taken; 0 when they are there."""
        if count <= self._count:
            return 0
        return max(2 * self.size, self.live + count + 1)

    def grow(self, size: int) -> None:
        fresh = np.arange(size - 2, self.size - 2, -1)
        self._stack = np.concatenate([fresh, self._stack[: self._count]])
        self._count += fresh.shape[0]
        self.size = size

    def take(self, count: int) -> Numbers:
        assert count <= self._count
        self._count -= count
        return self._stack[self._count : self._count + count][::-1].copy()

    def give_back(self, numbers: Numbers) -> None:
        end = self._count + numbers.shape[0]
        if end > self._stack.shape[0]:
            self._stack = np.concatenate([self._stack[: self._count], np.empty(self.size, np.int64)])
        self._stack[self._count : end] = numbers
        self._count = end

    @property
    def is_roomy(self) -> bool:
        return self.size > 4 * _START and self.live * _ROOMY < self.size


class References:
    """How often each number is referred to, and which may have come to nothing."""

    __slots__ = ("_candidates", "_waiting", "counts")

    def __init__(self, size: int) -> None:
        self.counts = np.zeros(size, np.int64)
        self._candidates: list[Numbers] = []
        self._waiting = 0

    def grow(self, size: int) -> None:
        self.counts = grown(self.counts, size, 0)

    def retain(self, numbers: Numbers) -> None:
        np.add.at(self.counts, numbers, 1)

    def release(self, numbers: Numbers) -> bool:
        """True when so many have come to nothing that they should not wait."""
        np.subtract.at(self.counts, numbers, 1)
        zero = numbers[self.counts.take(numbers) == 0]
        if zero.shape[0]:
            self._candidates.append(zero)
            self._waiting += zero.shape[0]
        return self._waiting > _IDLE

    def unused(self) -> Numbers:
        """Those without a reference, told once."""
        if not self._candidates:
            return np.empty(0, np.int64)
        numbers = np.unique(np.concatenate(self._candidates))
        self._candidates.clear()
        self._waiting = 0
        unused: Numbers = numbers[self.counts.take(numbers) == 0]
        return unused


def fitting_size(count: int) -> int:
    return max(_START, 2 * count + 1)


def grown(column: Array, size: int, fill: Any) -> Array:
    """A longer copy; the new rows (and the old last one, which was never used) hold ``fill``."""
    out = np.full((size, *column.shape[1:]), fill, column.dtype)
    out[: column.shape[0]] = column
    return out
