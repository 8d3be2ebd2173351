"""The last event time of each key, for boxes that go by key on one input and forget with time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from catalog.schema import Schema
from engine.operators.state.columns import START, Numbers, fitted, renumbered, vector_at
from engine.operators.state.keys import group_keys
from engine.operators.state.time_index import clamped
from storage.train import NO_WATERMARK, Mask, Train

_CHECK = 4_096  # keys before it pays to look for those that have passed


class LastTimes:
    """A key whose time is ``keep_ns`` or more below the watermark counts as never seen.

    Such keys are dropped when as many keys again have come, or when all have passed: a constant effort for each new
    key. Owned by the worker that runs the box.
    """

    __slots__ = ("_check", "_columns", "_newest_ns", "keep_ns", "keys", "times", "watermark_ns")

    def __init__(self, schema: Schema, columns: Sequence[int], keep_ns: int | None) -> None:
        self._columns = tuple(columns)
        self.keep_ns = keep_ns  # None: for ever
        self.keys = group_keys([schema.fields[c] for c in columns])
        self.times = np.full(START, NO_WATERMARK, np.int64)  # by number
        self.watermark_ns = NO_WATERMARK
        self._newest_ns = NO_WATERMARK
        self._check = _CHECK

    @property
    def nbytes(self) -> int:
        return self.keys.nbytes + self.times.nbytes

    def numbers(self, train: Train) -> Numbers:
        """Return the number of each tuple's key."""
        numbers = self.keys.numbers([vector_at(train, c) for c in self._columns], train.count)
        self.times = fitted(self.times, self.keys.count, NO_WATERMARK)
        return numbers

    def last(self, numbers: Numbers) -> Numbers:
        """Return the last times, NO_WATERMARK for a key that was never seen or has passed."""
        times = self.times.take(numbers)
        horizon_ns = self._horizon_ns()
        return times if horizon_ns is None else np.where(times <= horizon_ns, NO_WATERMARK, times)

    def set(self, numbers: Numbers, times: Numbers) -> None:
        if times.shape[0]:
            self.times[numbers] = times
            self._newest_ns = max(self._newest_ns, int(times.max()))

    def _horizon_ns(self) -> int | None:
        return None if self.keep_ns is None else clamped(self.watermark_ns - self.keep_ns)

    def forget(self) -> Numbers | None:
        """Drop the keys that have passed, if it pays; return the new number by the old, None if nothing was dropped."""
        horizon_ns = self._horizon_ns()
        if horizon_ns is None:
            return None
        all_passed = self._newest_ns <= horizon_ns and self.keys.count > START
        if not all_passed and self.keys.count < self._check:
            return None
        live = np.flatnonzero(self.times[: self.keys.count] > horizon_ns)
        self._check = max(_CHECK, 2 * live.shape[0])
        if 2 * live.shape[0] > self.keys.count:
            return None
        remap = self.keys.keep(live)
        self.times = renumbered(self.times, remap, self.keys.count, NO_WATERMARK)
        return remap

    # -- as plain data -----------------------------------------------------------------------------------------------

    def live(self, chosen: Mask | None = None) -> Numbers:
        """Return the numbers of keys that count as seen, of all keys or of the chosen ones."""
        live = self.last(np.arange(self.keys.count)) != NO_WATERMARK
        if chosen is not None:
            live &= chosen[: self.keys.count]
        return np.flatnonzero(live)

    def snapshot(self, live: Numbers) -> dict[str, Any]:
        return {
            "keys": self.keys.snapshot(live),
            "times": self.times.take(live),
            "watermark_ns": self.watermark_ns,
        }

    def restore(self, data: dict[str, Any]) -> Numbers:
        """Return the numbers of the keys, in the order of the snapshot's ``live``."""
        self.watermark_ns = int(data["watermark_ns"])
        numbers = self.keys.restore(data["keys"])
        self.times = fitted(self.times, self.keys.count, NO_WATERMARK)
        self.set(numbers, np.asarray(data["times"], np.int64))
        return numbers
