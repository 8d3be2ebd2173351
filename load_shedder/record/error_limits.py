"""``max_error`` of an output: which share of the tuples must be kept, as the windows that closed last say.

An approximate aggregate knows, when it closes a window, how many values it has and how they vary; so it knows which
share keeps the relative error of each result within ``max_error`` (``operators/windows/error_bars``). The *floor* of an
output is the share that is enough for as many of the results as the confidence says: a key with a handful of tuples
would otherwise forbid every drop. It is the highest of the last ``RECENT`` times that windows closed. Before a whole
window has closed nothing is known, and the floor is ``UNKNOWN``: if nothing might be dropped, a start under overload
would pile up the work of a whole window.

Threads: the worker that runs the box writes; the monitor reads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from catalog.network import Network

Floats = npt.NDArray[np.float64]

RECENT = 3
UNKNOWN, LEAST = 0.5, 0.01  # a floor before anything is known; the least one: without tuples nothing would be known
MARGIN = 0.95  # of the error: a plan that keeps exactly the floor misses by chance in half of the windows


class OutputError(NamedTuple):
    """``max_error`` of an output, and what the last windows say."""

    limit: float
    floor: float = UNKNOWN  # the share of its tuples that must be kept
    error: float | None = None  # relative, of the last windows; None before the first

    @property
    def is_kept(self) -> bool:
        return self.error is None or self.error <= self.limit


class ErrorLimit:
    """The limit of one approximate box."""

    def __init__(self, error: float) -> None:
        self.limit = error
        self.aim = MARGIN * error  # that the floor is computed for
        self._known: deque[tuple[float, float]] = deque(maxlen=RECENT)  # floor and error of the last times
        self._is_first = True  # the first window began before the first tuple came, and may have a few tuples only

    def note(self, needed: Floats, shares: Floats, confidence: float) -> None:
        """Note results of closed windows: the share that each needs, and the one that it had."""
        if self._is_first:
            self._is_first = False
            return
        at = np.quantile(needed, confidence, method="higher")
        lost, spare = (1.0 - shares) / shares, (1.0 - needed) / np.maximum(needed, 1e-12)
        # The squared error is in proportion to (1 - p) / p.
        ratio = np.divide(lost, spare, out=np.where(lost > 0, np.inf, 0.0), where=spare > 0)
        errors = self.aim * np.sqrt(ratio)
        self._known.append((float(at), float(np.quantile(errors, confidence, method="higher"))))

    def reading(self) -> OutputError:
        known = list(self._known)
        if not known:
            return OutputError(self.limit)
        return OutputError(self.limit, max(LEAST, *(floor for floor, _ in known)), known[-1][1])


def find_limits(network: Network) -> dict[int, float]:
    """Return, by approximate box, the least ``max_error`` of the outputs behind it."""
    found: dict[int, float] = {}
    for node in network.boxes:
        if node.box.under_loss() == "approximate":
            limits = [
                e for o in network.box_outputs[node.number] if (e := network.outputs[o].qos.max_error) is not None
            ]
            if limits:
                found[node.number] = min(limits)
    return found


def output_errors(network: Network, limits: Mapping[int, ErrorLimit]) -> dict[int, OutputError]:
    """Return, by output with ``max_error``, the strictest of the boxes before it."""
    found: dict[int, OutputError] = {}
    for box, limit in limits.items():
        mine = limit.reading()
        for o in network.box_outputs[box]:
            if network.outputs[o].qos.max_error is None:
                continue
            other = found.get(o, mine)
            error = None if mine.error is None or other.error is None else max(mine.error, other.error)
            found[o] = OutputError(network.outputs[o].qos.max_error or mine.limit, max(mine.floor, other.floor), error)
    return found
