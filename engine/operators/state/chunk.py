"""Chunks: rows in order of time, found by key and time; and needles, which are searched for in them.

A chunk sorts its rows by key only on demand. Many chunks are merged into a longer one, or expire, before anything
searches them: sorting each of them took 40 % of a join with few matches. For the same reason a chunk that is searched
for few keys is scanned for them, until it has been scanned often enough to pay for the sort.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from engine.operators.compiled.searching import KEY_BOUNDS
from engine.operators.state.columns import Numbers, fitted
from storage.train import Mask

_NONE: Numbers = np.empty(0, np.int64)
_SCANS = 4  # scans of a chunk that cost about as much as sorting it
_FEW = 8  # a scan pays when a chunk has this many rows for each key that is searched for


class RowsByKey:
    """How many rows of each key are held, so that a search leaves out the keys that have none."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: Numbers = np.zeros(1, np.int64)  # by key; the last cell stays 0, and the key -1 reads it

    @property
    def nbytes(self) -> int:
        return self._counts.nbytes

    def add(self, keys: Numbers, sign: int = 1) -> None:
        if keys.shape[0]:
            self._counts = fitted(self._counts, int(keys.max()) + 2, 0)
            np.add.at(self._counts, keys, sign)
            self._counts[-1] = 0

    def remove(self, keys: Numbers) -> None:
        self.add(keys, -1)

    def held(self, keys: Numbers) -> Mask:
        """Mark the keys with rows. They may be higher than all that were added."""
        counts = self._counts
        if keys.shape[0] and int(keys.max()) >= counts.shape[0]:
            return counts.take(np.where(keys < counts.shape[0], keys, -1)) > 0
        return counts.take(keys) > 0

    def keys(self) -> Numbers:
        """Return the keys with rows, ascending."""
        return np.flatnonzero(self._counts)

    def renumber(self, remap: Numbers) -> None:
        keys = self.keys()
        counts = self._counts.take(keys)
        keys = remap.take(keys)
        self._counts = np.zeros(2 * int(keys.max(initial=0)) + 2, np.int64)
        self._counts[keys] = counts


class Chunk:
    """Rows in order of time: fewer than 2**31, as keys are. Constant but for ``start``: rows before it have expired."""

    __slots__ = ("_places", "_scans", "_starts", "bits", "keys", "rows", "start", "times")

    def __init__(self, times: Numbers, rows: Numbers, keys: Numbers = _NONE) -> None:
        """Take rows in any order. Without ``keys`` they can only expire. A key of -1 is never found."""
        if times.shape[0] > 1 and bool(np.any(times[1:] < times[:-1])):
            order = np.argsort(times, kind="stable")
            times, rows = times.take(order), rows.take(order)
            keys = keys.take(order) if keys.shape[0] else keys
        self.times = times if times.flags.carray else times.copy()
        self.rows = rows
        self.keys = keys  # empty where rows have none
        self.start = 0
        self.bits = times.shape[0].bit_length()
        self._places: Numbers | None = None
        self._starts: Numbers | None = None
        self._scans = 0

    @property
    def places(self) -> Numbers:
        """(key, place in time) of each row with a key, sorted. Computed on first use: expired rows rarely need it."""
        if self._places is None:
            keys = self.keys
            places = (keys << self.bits) | np.arange(keys.shape[0])
            if keys.shape[0] and int(keys.min()) < 0:
                places = places[keys >= 0]
            places.sort()
            self._places = places
        return self._places

    @property
    def live(self) -> int:
        return int(self.times.shape[0]) - self.start

    @property
    def nbytes(self) -> int:
        more = sum([a.nbytes for a in (self._places, self._starts) if a is not None])
        return int(self.times.nbytes + self.keys.nbytes + self.rows.nbytes + more)

    def part(self, begin: int, end: int | None = None) -> Chunk:
        """Return a stretch of the chunk."""
        stretch = slice(begin, end)
        return Chunk(self.times[stretch], self.rows[stretch], self.keys[stretch])

    def by_key(self) -> tuple[Numbers, Numbers]:
        """Return keys in order, and the place in time of each."""
        return self.places >> self.bits, self.places & ((1 << self.bits) - 1)

    def around(self, keys: Numbers) -> Chunk:
        """Return a chunk in which these keys, ascending, are found: this one, or only their rows where that is cheaper
        than sorting all rows."""
        if self._places is not None or self._scans >= _SCANS or _FEW * keys.shape[0] > self.live:
            return self
        self._scans += 1
        mine = self.keys[self.start :]
        if keys[0] == keys[-1]:
            hits = np.flatnonzero(mine == keys[0])
        else:
            wanted = np.zeros(max(int(keys[-1]), int(mine.max())) + 2, np.bool_)  # the key -1 reads the last one
            wanted[keys] = True
            hits = np.flatnonzero(wanted.take(mine))
        hits += self.start
        return Chunk(self.times.take(hits), self.rows.take(hits), self.keys.take(hits))

    def stretches(self, keys: Numbers, at: Numbers, low: Numbers, high: Numbers) -> tuple[Numbers, Numbers]:
        """For each needle, return where in ``places`` the rows of its key with a time in its band begin and end.

        ``keys`` ascend; ``low`` and ``high`` are by needle and ascend, and ``at`` is the needle of each key.
        """
        if not self.start and self.times.shape[0] and low[-1] <= self.times[0] and high[0] >= self.times[-1]:
            return self._whole(keys)
        return self.bounds(keys, at, low, "left"), self.bounds(keys, at, high, "right")

    def _whole(self, keys: Numbers) -> tuple[Numbers, Numbers]:
        """Return the stretch of each key when all rows lie in all bands: no search by time."""
        places, bits = self.places, self.bits
        if not places.shape[0]:
            return np.zeros_like(keys), np.zeros_like(keys)
        first, last = int(places[0] >> bits), int(places[-1] >> bits)
        if last - first > 4 * places.shape[0]:
            return np.searchsorted(places, keys << bits), np.searchsorted(places, (keys + 1) << bits)
        if self._starts is None:
            counts = np.bincount((places >> bits) - first)
            self._starts = np.append(0, np.cumsum(counts))  # by key, from the first on; then the end
        inside = keys - first
        end = last - first + 1
        return self._starts.take(np.clip(inside, 0, end)), self._starts.take(np.clip(inside + 1, 0, end))

    def bounds(self, keys: Numbers, at: Numbers, limit: Numbers, side: Literal["left", "right"]) -> Numbers:
        """For each (key, time ``limit[at]``), return the position in ``places`` of that time.

        ``limit`` ascends, ``keys`` ascend, and so does ``at`` within a key.
        """
        place = np.empty(keys.shape[0], np.int64)
        KEY_BOUNDS.run(self.places, self.bits, self.times, keys, at, limit, side == "right", place)
        return place

    def rows_at(self, places: Numbers) -> tuple[Numbers, Numbers]:
        """Return the times and rows at positions of ``places``."""
        at = self.places.take(places) & ((1 << self.bits) - 1)
        return self.times.take(at), self.rows.take(at)


class Needles:
    """What to search for: key, lowest and highest time, both inclusive. Answered by number."""

    __slots__ = ("_keys", "count", "high", "low", "numbers")

    def __init__(self, train: Chunk, low: Numbers, high: Numbers) -> None:
        """``low`` and ``high`` belong to the chunk's times, ascending like them; ``numbers`` are the chunk's rows."""
        self._keys = train.keys
        self.low = low
        self.high = high
        self.numbers = train.rows
        self.count = train.times.shape[0]

    def among(self, held: RowsByKey) -> tuple[Numbers, Numbers]:
        """Return the keys that have rows, ascending, and the place in time of each: the cheapest order to search in."""
        at = np.flatnonzero(held.held(self._keys))
        bits = self.count.bit_length()
        packed = (self._keys.take(at) << bits) | at
        packed.sort()
        return packed >> bits, packed & ((1 << bits) - 1)
