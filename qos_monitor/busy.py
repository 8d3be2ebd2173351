"""Record which boxes used the workers in the last minute: the cause of a tuple's wait, for ``aurorad explain``."""

from __future__ import annotations

from collections import deque

import numpy as np

from catalog.stats import Floats
from qos_monitor.sampler import Sample

KEPT = 700  # ticks: a little more than a minute


class BusyHistory:
    """The monitor thread appends, any thread reads. An entry is never changed."""

    def __init__(self) -> None:
        self._ticks: deque[tuple[int, int, Floats]] = deque(maxlen=KEPT)  # start, end, ns of work by box

    def note(self, sample: Sample) -> None:
        work_ns = (sample.box_busy * sample.elapsed_ns).astype(np.float32).astype(np.float64)
        self._ticks.append((sample.at_ns - sample.elapsed_ns, sample.at_ns, work_ns))

    def during(self, begun_ns: int, ended_ns: int) -> Floats | None:
        """Return, by box, its share of all work done in this time; None when nothing is known of it."""
        total: Floats | None = None
        for tick_begun_ns, tick_ended_ns, work_ns in list(self._ticks):
            overlap_ns = min(ended_ns, tick_ended_ns) - max(begun_ns, tick_begun_ns)
            if overlap_ns > 0:
                part = work_ns * (overlap_ns / max(1, tick_ended_ns - tick_begun_ns))
                total = part if total is None else total + part
        if total is None or not total.any():
            return None
        shares: Floats = total / total.sum()
        return shares
