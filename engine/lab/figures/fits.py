"""Fits that decide what a curve is: a line, or an exponential."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np


class Fit(NamedTuple):
    """The share of a curve's variance that a line explains, the root mean square of a line's relative error, and how
    much faster the logarithm rises in the second half of the range than in the first.

    The last one is 1 for an exponential, more where growth is faster still, and less than 1 for a line.
    """

    line_r2: float
    line_off: float
    bend: float


def fit(curve: Mapping[float, float]) -> Fit:
    x, y = np.array(sorted(curve)), np.array([curve[key] for key in sorted(curve)])
    ones = np.ones(len(x))
    a, b = np.linalg.lstsq(np.stack([ones, x], 1), y, rcond=None)[0]
    spread = float(np.sum((y - y.mean()) ** 2))
    r2 = 1 - float(np.sum((y - a - b * x) ** 2)) / spread if spread else 1.0
    a, b = np.linalg.lstsq(np.stack([ones / y, x / y], 1), ones, rcond=None)[0]
    line_off = float(np.sqrt(np.mean(((a + b * x) / y - 1) ** 2)))
    middle = (x[0] + x[-1]) / 2
    first, half, last = np.log(np.interp([x[0], middle, x[-1]], x, y))
    bend = float((last - half) / (half - first)) if half > first else float("inf") if last > half else 0.0
    return Fit(r2, line_off, bend)
