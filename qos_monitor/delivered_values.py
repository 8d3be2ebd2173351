"""The operating point of an output on its value graph: the mean value of the tuples delivered in the last ten seconds,
and their mean utility by the graph.

The shedder drops the least valuable tuples first, so the point moves to the right while it sheds. Values are counted by
second, as latencies are (``histogram.py``). A column of 1,000 values takes about 10 us, and only outputs with a value
graph have one.
"""

from __future__ import annotations

from collections import deque
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from catalog.qos import QoSGraph

SECOND_NS = 1_000_000_000
SECONDS = 10


class _Second(NamedTuple):
    second: int
    tuples: int
    values: float  # their sum
    utilities: float


class DeliveredValues:
    """Any worker calls ``record``, any thread calls ``point``."""

    def __init__(self, graph: QoSGraph) -> None:
        self._graph = graph
        self._seconds: deque[_Second] = deque(maxlen=SECONDS)
        self._lock = Lock()

    def record(self, values: npt.NDArray[Any], valid: npt.NDArray[np.bool_] | None, now_ns: int) -> None:
        """Record the values of a train that is delivered now. NULL and NaN have no place on the graph."""
        floats = (values if valid is None else values[valid]).astype(np.float64)
        floats = floats[np.isfinite(floats)]
        if not floats.shape[0]:
            return
        second, total, worth = now_ns // SECOND_NS, float(floats.sum()), float(self._graph.utilities(floats).sum())
        with self._lock:
            last = self._seconds[-1] if self._seconds else None
            if last is not None and last.second == second:
                self._seconds[-1] = _Second(
                    second, last.tuples + floats.shape[0], last.values + total, last.utilities + worth
                )
            else:
                self._seconds.append(_Second(second, floats.shape[0], total, worth))

    def point(self, now_ns: int) -> tuple[float, float] | None:
        """Return the mean value and the mean utility of the last ten seconds; None when nothing was delivered."""
        oldest = now_ns // SECOND_NS - SECONDS
        with self._lock:
            recent = [s for s in self._seconds if s.second > oldest]
        count = sum(s.tuples for s in recent)
        if not count:
            return None
        return sum(s.values for s in recent) / count, sum(s.utilities for s in recent) / count
