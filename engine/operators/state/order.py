"""Order over whole columns: rows by key, the running maximum within a key, and integers that sort as values do."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine.operators.expressions import Vector
from engine.operators.state.columns import Numbers

LOWEST = -(2**63)


class ByKey:
    """The rows of a train in order of key, within a key in order of arrival."""

    __slots__ = ("first", "keys", "order", "segment", "starts")

    def __init__(self, numbers: Numbers) -> None:
        count = numbers.shape[0]
        bits = count.bit_length()
        packed = (numbers << bits) | np.arange(count)
        packed.sort()  # sorting plain integers is several times cheaper than a stable argsort
        self.order: Numbers = packed & ((1 << bits) - 1)
        self.keys: Numbers = packed >> bits
        self.first = np.ones(count, np.bool_)  # the first row of its key
        self.first[1:] = self.keys[1:] != self.keys[:-1]
        self.segment: Numbers = np.cumsum(self.first) - 1  # the number of each row's key among those of the train
        self.starts: Numbers = np.flatnonzero(self.first)

    def ranks(self) -> Numbers:
        """Return how many rows of the same key come before each row."""
        places = np.arange(self.order.shape[0])
        return places - self.starts.take(self.segment)


class Ranked:
    """The times of a train, ordered by key, as integers (key, rank of the time).

    One binary search then finds the first row of a key at or above a time.
    """

    __slots__ = ("_by_key", "_distinct", "_highest", "_width", "running_max")

    def __init__(self, by_key: ByKey, times: Numbers) -> None:
        """``times`` are in the order of ``by_key``."""
        self._by_key = by_key
        self._distinct = np.unique(times)
        rank = np.searchsorted(self._distinct, times)  # cheaper than an inverse, because times nearly ascend
        self._width = self._distinct.shape[0] + 1
        self._highest = np.maximum.accumulate(by_key.segment * self._width + rank)
        self.running_max: Numbers = self._distinct.take(self._highest - by_key.segment * self._width)

    def first_at_least(self, segment: Numbers, times: Numbers) -> Numbers:
        """Return the place of the first row of a key with at least this time; the number of rows if there is none."""
        rank = np.searchsorted(self._distinct, times)
        place = np.searchsorted(self._highest, segment * self._width + rank)
        count = self._by_key.order.shape[0]
        inside = np.append(self._by_key.segment, -1).take(place) == segment
        found: Numbers = np.where(inside, place, count)
        return found


def running_max(by_key: ByKey, times: Numbers) -> Numbers:
    """Return the highest time of the same key so far; ``times`` are in the order of ``by_key``."""
    if bool(np.all((times[1:] >= times[:-1]) | by_key.first[1:])):
        return times  # in order already, as most trains are
    return Ranked(by_key, times).running_max


def reachable(start: Numbers, after: Numbers) -> npt.NDArray[np.bool_]:
    """Mark the places that are reached from ``start`` by steps to ``after``; ``len(after)`` is the end.

    The length of a step doubles in each round: the number of rounds is the logarithm of the longest way.
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


def sortable(vector: Vector) -> Numbers:
    """Return integers in the order of the values: NULL lowest, then numbers, NaN highest; -0.0 and 0.0 are equal."""
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
