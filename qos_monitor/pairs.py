"""The pair rate of joins: how many pairs a join makes for the tuples that meet there.

Tuples meet by their own time, not by the time at which the join gets to them. While a join lags behind, tuples that
came close together are joined at half of the speed at which they came, and still make all of their pairs. So the meter
remembers by tick how many tuples each input got, behind the drops of plans. What waits on the queues are the newest of
them, so it knows which ticks the join is through with; of these it multiplies both inputs.

Owner: the monitor thread.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np

from catalog.network import Network
from catalog.stats import Floats

TICKS_AT_MOST = 600  # that a join may lag behind: what came before counts as joined


class _Tick(NamedTuple):
    tuples: tuple[float, float]  # by input
    seconds: float


class _Meter(NamedTuple):
    box: int
    arcs: tuple[int, int]
    ticks: deque[_Tick]


class PairMeter:
    def __init__(self, network: Network) -> None:
        pairs = [n for n in network.boxes if n.kind == "join" and len(n.in_arcs) == 2]
        self._meters = [_Meter(n.number, (n.in_arcs[0], n.in_arcs[1]), deque()) for n in pairs]

    @property
    def boxes(self) -> list[int]:
        """The joins."""
        return [meter.box for meter in self._meters]

    def fold(self, passed: Floats, waiting: Floats, joined: Floats, expired: Floats, elapsed_ns: int) -> Floats:
        """Return, by join, how much met since the last tick: tuples of both inputs, multiplied, per second. All arrays
        are by arc: tuples put on it, that wait there now, that the join took and that expired."""
        return np.array([self._met(m, passed, waiting, joined, expired, elapsed_ns / 1e9) for m in self._meters])

    def _met(
        self, meter: _Meter, passed: Floats, waiting: Floats, joined: Floats, expired: Floats, elapsed_s: float
    ) -> float:
        ticks, arcs = meter.ticks, list(meter.arcs)
        left, right = passed[arcs].tolist()
        ticks.append(_Tick((left, right), elapsed_s))
        done = min(_ticks_done(ticks, side, float(waiting[a])) for side, a in enumerate(arcs))
        done = max(done, len(ticks) - TICKS_AT_MOST)
        gone = joined[arcs] + expired[arcs]
        lived = np.divide(joined[arcs], gone, out=np.ones(2), where=gone > 0).prod()
        met = 0.0
        for _ in range(done):
            tick = ticks.popleft()
            met += tick.tuples[0] * tick.tuples[1] / tick.seconds
        return float(met * lived)


def _ticks_done(ticks: deque[_Tick], side: int, waiting: float) -> int:
    """Return of how many ticks, from the oldest on, no tuple of this input waits."""
    newer = 0.0
    for i, tick in enumerate(reversed(ticks)):
        if newer >= waiting:
            return len(ticks) - i
        newer += tick.tuples[side]
    return 0
