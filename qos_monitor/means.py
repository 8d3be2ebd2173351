"""Figures for people: shares of busy time and costs over the last seconds, steady enough to read.

A box reports the cost of a call when the call ends, so a call of 300 ms adds three ticks' worth of work to one tick.
Taken alone that tick would show a box that is busy for 300 % of the time, though a box runs in one plan at a time.
``BusyShares`` spreads the work over the ticks after it, so no share exceeds 1 and no work is lost.

The statistics (``catalog/stats``) split a cost into a part per call and a part per tuple, for policies and simulations.
That split moves from tick to tick. ``BoxMeans`` has what a call and a tuple cost, all in all.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from catalog.stats import Floats

BUSY_TAU_S = 2.0
COST_TAU_S = 10.0
OWED_AT_MOST_S = 60.0  # work that is spread over later ticks


class BusyShares:
    """Shares of the time, by box or by worker. Owner: the monitor thread."""

    def __init__(self, count: int) -> None:
        self.shares = np.zeros(count)
        self._owed_ns = np.zeros(count)  # reported, and not yet in the shares
        self._is_first = True

    def fold(self, spent_ns: Floats, elapsed_ns: int) -> Floats:
        self._owed_ns = np.minimum(self._owed_ns + spent_ns, OWED_AT_MOST_S * 1e9)
        now_ns = np.minimum(self._owed_ns, elapsed_ns)
        self._owed_ns -= now_ns
        gain = 1.0 if self._is_first else mean_gain(elapsed_ns, BUSY_TAU_S)
        self._is_first = False
        self.shares = self.shares + gain * (now_ns / elapsed_ns - self.shares)
        return self.shares


class BoxMeans(NamedTuple):
    """By box, over the last seconds. A box that rests keeps its last figures."""

    busy: Floats  # share of one worker's time, at most 1
    tuple_ns: Floats  # what a tuple costs, its share of the call included
    call_ns: Floats
    call_tuples: Floats  # the mean length of a train


class BoxMeter:
    """Owner: the monitor thread."""

    def __init__(self, boxes: int) -> None:
        self._busy = BusyShares(boxes)
        self._calls, self._tuples, self._cost_ns = (np.zeros(boxes) for _ in range(3))

    def fold(self, calls: Floats, tuples: Floats, cost_ns: Floats, elapsed_ns: int) -> BoxMeans:
        keep = 1.0 - mean_gain(elapsed_ns, COST_TAU_S)
        self._calls = keep * self._calls + calls
        self._tuples = keep * self._tuples + tuples
        self._cost_ns = keep * self._cost_ns + cost_ns
        return BoxMeans(
            self._busy.fold(cost_ns, elapsed_ns),
            _ratio(self._cost_ns, self._tuples),
            _ratio(self._cost_ns, self._calls),
            _ratio(self._tuples, self._calls),
        )


def mean_gain(elapsed_ns: int, tau_s: float) -> float:
    """Return the weight of a new value, for an exponential mean with this time constant."""
    return float(-np.expm1(-elapsed_ns / 1e9 / tau_s))


def _ratio(above: Floats, below: Floats) -> Floats:
    out: Floats = np.divide(above, below, out=np.zeros(len(above)), where=below > 0)
    return out
