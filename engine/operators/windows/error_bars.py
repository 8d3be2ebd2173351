"""Confidence intervals of an approximate aggregate: where the value would lie if no tuple had been dropped.

The tuples of a window are a random sample: each was kept with the share that the window saw, p. Let n values with mean
m and sum of squared deviations S have been seen, and let z be the quantile of the confidence.

- count: by Horvitz and Thompson n / p tuples are expected. The interval holds every N for which n is no surprise,
  (n - N p)^2 <= z^2 N p (1 - p). Unlike n / p +- z sqrt(n (1 - p)) / p it also holds for a few tuples.
- avg: m +- t sqrt((1 - p) S / (n - 1) / n), with Student's t, and less the closer p is to 1.
- sum: the count times the mean; the errors of both add up as squares.

A sum or a mean of fewer than ``LEAST_VALUES`` values has no interval: it is NULL. With all tuples seen, low and high
are the value itself. Values with few very large ones among them need more tuples: of 100 values by a lognormal law
(sigma 1), half of them seen, the interval of the mean holds in 91 % of all cases instead of 95 %.

Refused: a bootstrap, which would keep every value.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from catalog.schema import Field, Type
from engine.operators.expressions import Vector
from engine.operators.expressions.aggregates.split import AggregateCall, AggregatedExpression
from engine.operators.windows.accumulators import Accumulator, Count, Moments, Partial

Floats = npt.NDArray[np.float64]

LOW, HIGH = "_low", "_high"
LEAST_VALUES = 5
HAVE_BARS = frozenset({"count", "sum", "avg"})


class ErrorBar(NamedTuple):
    """The interval of one field of the result. ``accumulator`` is what it needs to know; None: the number of rows."""

    name: str
    function: str
    accumulator: Accumulator | None

    @property
    def fields(self) -> tuple[Field, Field]:
        is_known = self.function == "count"
        low, high = (Field(self.name + end, Type.DOUBLE, nullable=not is_known) for end in (LOW, HIGH))
        return low, high

    def bounds(self, partial: Partial | None, rows: npt.NDArray[np.int64], shares: Floats, z: float) -> list[Vector]:
        """Return low and high, by result. ``shares`` are the shares of their tuples that the windows saw."""
        counts = (rows if partial is None else partial[0]).astype(np.float64)
        if self.function == "count":
            return [Vector(bound) for bound in count_bounds(counts, shares, z)]
        assert partial is not None
        bounds = (sum_bounds if self.function == "sum" else mean_bounds)(counts, partial[1], partial[2], shares, z)
        is_known = np.where(shares >= 1.0, counts > 0, counts >= LEAST_VALUES)
        return [Vector(bound, None if is_known.all() else is_known) for bound in bounds]


def error_bars(select: dict[str, AggregatedExpression]) -> tuple[ErrorBar, ...]:
    """Return the fields that have an interval: those that are a count, sum or avg and nothing else."""
    return tuple(ErrorBar(name, e.calls[0].function, _accumulator(e.calls[0])) for name, e in select.items() if _has(e))


def quantile_of(confidence: float) -> float:
    return NormalDist().inv_cdf((1.0 + confidence) / 2.0)


def count_bounds(counts: Floats, shares: Floats, z: float) -> tuple[Floats, Floats]:
    middle = 2.0 * counts + z * z * (1.0 - shares)
    root = np.sqrt(np.maximum(middle * middle - 4.0 * counts * counts, 0.0))
    low = np.maximum(np.floor((middle - root) / (2.0 * shares) + 1e-9), counts)
    return low, np.ceil((middle + root) / (2.0 * shares) - 1e-9)


def mean_bounds(counts: Floats, means: Floats, squares: Floats, shares: Floats, z: float) -> tuple[Floats, Floats]:
    variance = squares / np.maximum(counts - 1.0, 1.0)
    half = student(z, counts) * np.sqrt((1.0 - shares) * variance / np.maximum(counts, 1.0))
    return means - half, means + half


def sum_bounds(counts: Floats, means: Floats, squares: Floats, shares: Floats, z: float) -> tuple[Floats, Floats]:
    low, high = count_bounds(counts, shares, z)
    spread = squares * counts / np.maximum(counts - 1.0, 1.0)
    by_values = student(z, counts) * np.sqrt((1.0 - shares) * spread) / shares
    half = np.hypot(np.abs(means) * (high - low) / 2.0, by_values)
    middle = means * (low + high) / 2.0
    return middle - half, middle + half


def student(z: float, counts: Floats) -> Floats:
    """Return the quantile of Student's t for samples of this size, by the expansion of Cornish and Fisher."""
    freedom = np.maximum(counts - 1.0, 1.0)
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    found: Floats = z + first / freedom + second / freedom**2 + third / freedom**3
    return found


def _has(expression: AggregatedExpression) -> bool:
    if len(expression.calls) != 1 or expression.outer.key != "`#0`":
        return False
    call = expression.calls[0]
    return call.function in HAVE_BARS and not call.distinct


def _accumulator(call: AggregateCall) -> Accumulator | None:
    if call.argument is None:
        return None
    return Count(call.argument) if call.function == "count" else Moments(call.argument)
