"""Which boxes had the workers in the last minute: what a tuple that waited then waited for."""

from __future__ import annotations

from collections import deque

import numpy as np

from catalog.stats import Floats
from qos_monitor.sampler import Sample

KEPT = 700  # ticks: a minute and some


class BusyHistory:
    """Written by the monitor's thread, read by any: an entry is never changed."""

    def __init__(self) -> None:
        self._ticks: deque[tuple[int, int, Floats]] = deque(maxlen=KEPT)  # begun, ended, ns of work by box

    def note(self, sample: Sample) -> None:
        work_ns = (sample.box_busy * sample.elapsed_ns).astype(np.float32).astype(np.float64)
        self._ticks.append((sample.at_ns - sample.elapsed_ns, sample.at_ns, work_ns))

    def during(self, begun_ns: int, ended_ns: int) -> Floats | None:
        """By box, its share of all the work that was done then; None where nothing is known."""
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
