"""Which rows have this key and a time in this band, and which rows have expired, for a whole train at once.

A **chunk** holds rows in order of time (``times``, ``rows``). Where rows have keys it also holds every (key, place in
time) as one int64, sorted (``places``). The rows of a key in a band of time are then a stretch of ``places`` between
two binary searches: one over ``times`` turns the bound into a place, one over ``places`` finds it within the key. The
cost does not depend on how many keys there are. Keys that have no row at all are not searched for.

New rows come as a chunk of their own. Chunks are merged when the one before is not much longer than the one after, so
there are about as many as the logarithm of the rows, and a row is moved about as often. Rows leave in order of time:
``expire`` moves the start of each chunk, and the next merge leaves out the rows before the start.

Refused: a dict from key to list of rows (a Python step for each tuple), and one sorted array (an insertion moves all of
it).

All times are event times in ns. Rows that come together keep the order of their arrival where their times are equal.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from engine.operators.state.chunk import Chunk, Needles, RowsByKey
from engine.operators.state.columns import Numbers

MIN_NS, MAX_NS = -(2**63), 2**63 - 1
_SMALL = 1_024  # chunks below are merged at once: searching one more costs as much
_NONE: Numbers = np.empty(0, np.int64)


def shifted(times: Numbers, by_ns: int) -> Numbers:
    """Return ``times + by_ns``, stopping at the ends of time instead of wrapping around."""
    if not by_ns or not times.shape[0]:
        return times
    if by_ns > 0:
        return np.minimum(times, max(MAX_NS - by_ns, MIN_NS)) + by_ns
    return np.maximum(times, min(MIN_NS - by_ns, MAX_NS)) + by_ns


def clamped(ns: int) -> int:
    """Return a bound that was computed from a watermark, as an int64."""
    return min(max(ns, MIN_NS), MAX_NS)


class TimeIndex:
    """Rows by time, and by key if they have one. Owned by the worker that runs the box."""

    __slots__ = ("_by_key", "_chunks", "latest_only_ns")

    def __init__(self) -> None:
        self._by_key = RowsByKey()
        self._chunks: list[Chunk] = []  # the longest first
        # Set where only the latest row at or before a time is asked for: of the rows of a key below this time, all but
        # the latest may go.
        self.latest_only_ns: int | None = None

    @property
    def live(self) -> int:
        return sum([c.live for c in self._chunks])

    @property
    def nbytes(self) -> int:
        return self._by_key.nbytes + sum(c.nbytes for c in self._chunks)

    @property
    def first_ns(self) -> int:
        """The lowest time of a row; above all times when there is none."""
        return min([int(c.times[c.start]) for c in self._chunks], default=2**63)

    def insert(self, chunk: Chunk) -> None:
        """Take in a train's rows, and merge chunks of like length."""
        self._by_key.add(chunk.keys)
        tail = [chunk]
        size = chunk.live
        while self._chunks and self._chunks[-1].live <= max(2 * size, _SMALL):
            last = self._chunks.pop()
            tail.append(last)
            size += last.live
        merged = chunk if len(tail) == 1 else self._merged(tail[::-1])
        if merged.live:
            self._chunks.append(merged)

    def _merged(self, chunks: Sequence[Chunk]) -> Chunk:
        merged = Chunk(
            np.concatenate([c.times[c.start :] for c in chunks]),
            np.concatenate([c.rows[c.start :] for c in chunks]),
            np.concatenate([c.keys[c.start :] for c in chunks]),
        )
        if self.latest_only_ns is None:
            return merged
        keep = _not_superseded(merged, self.latest_only_ns)
        if keep.all():
            return merged
        self._by_key.remove(merged.keys[~keep])
        return Chunk(merged.times[keep], merged.rows[keep], merged.keys[keep])

    # -- searching ---------------------------------------------------------------------------------------------------

    def band(self, needles: Needles) -> tuple[Numbers, Numbers]:
        """Return every (needle number, row) with the same key and a time in the band, ordered by both."""
        low, high = needles.low[0], needles.high[-1]
        near = [c for c in self._chunks if c.times[-1] >= low and c.times[c.start] <= high]
        keys, at = needles.among(self._by_key) if near else (_NONE, _NONE)
        if not keys.shape[0]:
            return _NONE, _NONE
        pairs = np.concatenate([_pairs(chunk.around(keys), needles, keys, at) for chunk in near])
        pairs.sort()
        return pairs >> 32, pairs & 0xFFFF_FFFF

    def latest(self, needles: Needles) -> tuple[Numbers, Numbers]:
        """Return rows and their times by the needles' place in time.

        The row of the key with the highest time up to ``high`` (of equal times the last to arrive) that is not below
        ``low``; -1 where there is none.
        """
        return self._nearest(needles, after=False)

    def earliest(self, needles: Needles) -> tuple[Numbers, Numbers]:
        """Return the same with the lowest time from ``low`` on (of equal times the first to arrive), up to ``high``."""
        return self._nearest(needles, after=True)

    def _nearest(self, needles: Needles, after: bool) -> tuple[Numbers, Numbers]:
        rows = np.full(needles.count, -1, np.int64)
        times = np.full(needles.count, MAX_NS if after else MIN_NS, np.int64)
        keys, at = needles.among(self._by_key)
        if not keys.shape[0]:
            return rows, times
        for chunk in self._chunks:
            if not chunk.places.shape[0]:
                continue
            if after:
                place = chunk.bounds(keys, at, needles.low, "left")
            else:
                place = chunk.bounds(keys, at, needles.high, "right") - 1
            inside = (place >= 0) & (place < chunk.places.shape[0])
            place = np.where(inside, place, 0)
            hit = inside & (chunk.places.take(place) >> chunk.bits == keys)
            chosen = np.flatnonzero(hit)
            where = at.take(chosen)
            found_times, found_rows = chunk.rows_at(place.take(chosen))
            known_times, known_rows = times.take(where), rows.take(where)
            if after:
                fits = found_times <= needles.high.take(where)
                better = (found_times < known_times) | ((found_times == known_times) & (found_rows < known_rows))
            else:
                fits = found_times >= needles.low.take(where)
                better = (found_times > known_times) | ((found_times == known_times) & (found_rows > known_rows))
            better = (better | (known_rows < 0)) & fits
            times[where[better]] = found_times[better]
            rows[where[better]] = found_rows[better]
        return rows, times

    # -- forgetting --------------------------------------------------------------------------------------------------

    def expire(self, horizon_ns: int) -> Chunk | None:
        """Take out the rows with a time below the horizon, as a chunk; None when there are none."""
        gone: list[Chunk] = []
        for i, chunk in enumerate(self._chunks):
            if chunk.times[chunk.start] >= horizon_ns:
                continue
            end = int(np.searchsorted(chunk.times, horizon_ns))
            gone.append(chunk.part(chunk.start, end))
            self._by_key.remove(gone[-1].keys)
            chunk.start = end
            if 0 < 2 * chunk.live < chunk.times.shape[0]:
                self._chunks[i] = chunk.part(end)
        if not gone:
            return None
        self._chunks = [c for c in self._chunks if c.live]
        if len(gone) == 1:
            return gone[0]
        rows = np.concatenate([c.rows for c in gone])
        by_arrival = np.argsort(rows)  # so that equal times come out in the order of their arrival
        times, keys = np.concatenate([c.times for c in gone]), np.concatenate([c.keys for c in gone])
        return Chunk(times.take(by_arrival), rows.take(by_arrival), keys.take(by_arrival) if keys.shape[0] else keys)

    def rows(self, chosen: npt.NDArray[np.bool_] | None = None) -> Numbers:
        """Return the rows that are still here, ascending; only those of the keys that are chosen, if given."""
        rows = [c.rows[c.start :] for c in self._chunks]
        if chosen is not None:
            rows = [r[chosen.take(c.keys[c.start :])] for r, c in zip(rows, self._chunks, strict=True)]
        return np.sort(np.concatenate([_NONE, *rows]))

    def last_times(self, count: int) -> Numbers:
        """Return the highest time of each of ``count`` keys, the lowest of all for a key without rows."""
        last = np.full(count, MIN_NS)
        for c in self._chunks:
            keys = c.keys[c.start :]
            there = np.flatnonzero(keys >= 0)
            np.maximum.at(last, keys.take(there), c.times[c.start :].take(there))
        return last

    def keys(self) -> Numbers:
        """Return the keys that are still here, ascending, each once, without -1."""
        return self._by_key.keys()

    def renumber_rows(self, kept: Numbers) -> None:
        """Call row ``kept[i]`` ``i`` from now on."""
        for chunk in self._chunks:
            chunk.rows = np.searchsorted(kept, chunk.rows)  # an expired row gets any number: nothing reads it

    def renumber_keys(self, remap: Numbers) -> None:
        """Take up the new numbers of keys: ``remap`` by the old number, keeping their order."""
        self._by_key.renumber(remap)
        self._chunks = [
            Chunk(c.times[c.start :], c.rows[c.start :], remap.take(c.keys[c.start :])) for c in self._chunks
        ]


def _pairs(chunk: Chunk, needles: Needles, keys: Numbers, at: Numbers) -> Numbers:
    """Return (needle number << 32 | row) for every match in a chunk. ``keys`` ascend; ``at`` are their needles."""
    begin, end = chunk.stretches(keys, at, needles.low, needles.high)
    counts = end - begin
    some = np.flatnonzero(counts > 0)
    counts = counts.take(some)
    total = int(counts.sum())
    first = np.repeat(begin.take(some) - (np.cumsum(counts) - counts), counts)
    _, rows = chunk.rows_at(first + np.arange(total))
    numbers = needles.numbers.take(at.take(some))
    return (np.repeat(numbers, counts) << 32) | rows


def _not_superseded(chunk: Chunk, before_ns: int) -> npt.NDArray[np.bool_]:
    """Mark the rows that can still be the latest at or before some time from ``before_ns`` on."""
    keys, at = chunk.by_key()
    next_times = chunk.times.take(at[1:])
    superseded = (keys[1:] == keys[:-1]) & (next_times <= before_ns)
    keep = np.ones(chunk.times.shape[0], np.bool_)
    keep[at[:-1][superseded]] = False
    return keep
