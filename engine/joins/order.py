"""Orders over whole columns: rows by key, the running maximum within a key, and numbers that sort as values do."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine.expressions import Vector

Column = npt.NDArray[np.int64]

LOWEST = -(2**63)


class ByKey:
    """The rows of a train in order of key, within a key in order of arrival."""

    __slots__ = ("first", "keys", "order", "segment", "starts")

    def __init__(self, numbers: Column) -> None:
        count = numbers.shape[0]
        bits = count.bit_length()
        packed = (numbers << bits) | np.arange(count)
        packed.sort()  # one sort of plain integers is several times cheaper than a stable argsort
        self.order: Column = packed & ((1 << bits) - 1)
        self.keys: Column = packed >> bits
        self.first = np.ones(count, np.bool_)  # the first row of its key
        self.first[1:] = self.keys[1:] != self.keys[:-1]
        self.segment: Column = np.cumsum(self.first) - 1  # which of the train's keys
        self.starts: Column = np.flatnonzero(self.first)

    def ranks(self) -> Column:
        """How many rows of the same key come before each."""
        places = np.arange(self.order.shape[0])
        return places - self.starts.take(self.segment)


class Ranked:
    """Times of a train in order of key as (key, rank of the time) in one integer, so that one binary search finds the
    first row of a key at or above a time."""

    __slots__ = ("_by_key", "_distinct", "_highest", "_width", "running_max")

    def __init__(self, by_key: ByKey, times: Column) -> None:
        """``times`` in order of key."""
        self._by_key = by_key
        self._distinct = np.unique(times)
        rank = np.searchsorted(self._distinct, times)  # cheaper than an inverse, because times nearly ascend
        self._width = self._distinct.shape[0] + 1
        self._highest = np.maximum.accumulate(by_key.segment * self._width + rank)
        self.running_max: Column = self._distinct.take(self._highest - by_key.segment * self._width)

    def first_at_least(self, segment: Column, times: Column) -> Column:
        """The place of the first row of a key whose time is at least this; the number of rows where there is none."""
        rank = np.searchsorted(self._distinct, times)
        place = np.searchsorted(self._highest, segment * self._width + rank)
        count = self._by_key.order.shape[0]
        inside = np.append(self._by_key.segment, -1).take(place) == segment
        found: Column = np.where(inside, place, count)
        return found


def running_max(by_key: ByKey, times: Column) -> Column:
    """The highest time of the same key so far; ``times`` in order of key."""
    if bool(np.all((times[1:] >= times[:-1]) | by_key.first[1:])):
        return times  # in order already, as most are
    return Ranked(by_key, times).running_max


def reachable(start: Column, after: Column) -> npt.NDArray[np.bool_]:
    """The places reached from ``start`` by going from each place to the one ``after`` it; ``len(after)`` is the end.

    By doubling the length of the steps: as many rounds as the logarithm of the longest way.
    """
    count = after.shape[0]
    reached = np.zeros(count + 1, np.bool_)
    reached[start] = True
    step = np.append(after, count)
    while True:
        ahead = step[reached]
        if bool((ahead == count).all()):
            return reached[:count]
        reached[ahead] = True
        step = step.take(step)


def sortable(vector: Vector) -> Column:
    """Integers in the order of the values: NULL lowest, then numbers, NaN highest; -0.0 and 0.0 are one."""
    values = vector.values
    if values.dtype.kind == "f":
        wide = values.astype(np.float64) + 0.0
        bits = wide.view(np.int64)
        keys = bits ^ ((bits >> 63) & 0x7FFF_FFFF_FFFF_FFFF)
        keys[np.isnan(wide)] = 2**63 - 1
    else:
        keys = values.astype(np.int64)
    if vector.valid is not None:
        keys[~vector.valid] = LOWEST
    return keys
