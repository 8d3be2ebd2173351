"""Confidence intervals of an approximate aggregate: where the value would lie if no tuple had been dropped.

The tuples of a window are a random sample: each was kept with the share that the window saw, p. Let n values with mean
m, sum of squared deviations S and skewness g have been seen, and let z be the quantile of the confidence, t Student's.

- count: by Horvitz and Thompson n / p tuples are expected. The interval holds every N for which n is no surprise,
  (n - N p)^2 <= z^2 N p (1 - p). Unlike n / p +- z sqrt(n (1 - p)) / p it also holds for a few tuples.
- avg: m - s T, with s = sqrt((1 - p) S / (n - 1) / n) and T from -t to t; less the closer p is to 1. A sample of values
  with a long tail mostly misses the tail, so its mean and its spread are both too small, and Student's interval holds
  too seldom. Hall's transformation (1992) corrects T for the skewness: T + g T^2 / (3 sqrt n) + g^2 T^3 / (27 n) +
  g / (6 sqrt n) is normal to the next order. The interval is the union of Hall's and Student's: of few values the
  skewness is seen badly, too.
- sum: the count times the mean; the errors of both add up as squares.

A sum or a mean of fewer than ``LEAST_VALUES`` values has no interval: it is NULL. With all tuples seen, low and high
are the value itself. What a sample cannot show, no interval holds: of 100 values by a lognormal law with sigma 1, a
tenth of them seen, that of the mean holds in 91 % of all cases instead of 95 % (Student's alone: 85 %); and a value
that only a few tuples have, such as a rare flag, is not in the sample at all. ``count(*) filter (where flag)`` is exact
there, ``sum(flag)`` is not.

``max_error`` asks the other way round: which share must be kept, so that the relative error is at most e? N is the
number of values without drops, c their coefficient of variation, sqrt(S / (n - 1)) / m:

- count: p >= z^2 / (z^2 + e^2 N), because the relative error is z sqrt((1 - p) / (p N));
- sum: p >= t^2 (1 + c^2) / (t^2 (1 + c^2) + e^2 N), because the variance of the sum is (1 - p) / p times the sum of the
  squared values, N m^2 (1 + c^2);
- avg: p >= t^2 c^2 / (t^2 c^2 + e^2 N).

t is that of p N values, widened as Hall's interval is. Other functions have no such bound: a maximum may be the one
tuple that was dropped.

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
from engine.operators.windows.accumulators import Accumulator, Count, Partial, SkewedMoments

Floats = npt.NDArray[np.float64]

LOW, HIGH = "_low", "_high"
LEAST_VALUES = 5
HAVE_BARS = frozenset({"count", "sum", "avg"})
ROUNDS = 4  # to find the share whose own number of values says that it is enough


class Sampled(NamedTuple):
    """The values that some windows have seen: one row for each result."""

    counts: Floats
    means: Floats
    squares: Floats  # sums of squared deviations
    cubes: Floats  # sums of cubed deviations

    @property
    def skewness(self) -> Floats:
        """Return the adjusted skewness; 0 where there are too few values, or all are equal."""
        n = np.maximum(self.counts, 3.0)
        scale = (self.squares / n) ** 1.5
        plain = np.divide(self.cubes / n, scale, out=np.zeros_like(scale), where=scale > 0)
        found: Floats = plain * np.sqrt(n * (n - 1.0)) / (n - 2.0)
        return found


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
        if self.function == "count":
            return [Vector(bound) for bound in count_bounds(_counts(partial, rows), shares, z)]
        seen = _sampled(partial)
        bounds = (sum_bounds if self.function == "sum" else mean_bounds)(seen, shares, z)
        is_known = np.where(shares >= 1.0, seen.counts > 0, seen.counts >= LEAST_VALUES)
        return [Vector(bound, None if is_known.all() else is_known) for bound in bounds]

    def needed(
        self, partial: Partial | None, rows: npt.NDArray[np.int64], shares: Floats, z: float, error: float
    ) -> Floats:
        """Return, by result, the share that must be kept for this relative error at most."""
        if self.function == "count":
            return needed_for_count(_counts(partial, rows) / shares, z, error)
        return needed_for_values(_sampled(partial), shares, z, error, is_sum=self.function == "sum")


def error_bars(select: dict[str, AggregatedExpression]) -> tuple[ErrorBar, ...]:
    """Return the fields that have an interval: those that are a count, sum or avg and nothing else."""
    return tuple(
        ErrorBar(name, e.calls[0].function, _accumulator(e.calls[0])) for name, e in select.items() if has_bar(e)
    )


def quantile_of(confidence: float) -> float:
    return NormalDist().inv_cdf((1.0 + confidence) / 2.0)


# -- intervals ---------------------------------------------------------------------------------------------------------


def count_bounds(counts: Floats, shares: Floats, z: float) -> tuple[Floats, Floats]:
    middle = 2.0 * counts + z * z * (1.0 - shares)
    root = np.sqrt(np.maximum(middle * middle - 4.0 * counts * counts, 0.0))
    low = np.maximum(np.floor((middle - root) / (2.0 * shares) + 1e-9), counts)
    return low, np.ceil((middle + root) / (2.0 * shares) - 1e-9)


def mean_bounds(seen: Sampled, shares: Floats, z: float) -> tuple[Floats, Floats]:
    variance = seen.squares / np.maximum(seen.counts - 1.0, 1.0)
    spread = np.sqrt((1.0 - shares) * variance / np.maximum(seen.counts, 1.0))
    below, above = reaches(seen.counts, seen.skewness, z)
    return seen.means - below * spread, seen.means + above * spread


def sum_bounds(seen: Sampled, shares: Floats, z: float) -> tuple[Floats, Floats]:
    low, high = count_bounds(seen.counts, shares, z)
    spread = np.sqrt((1.0 - shares) * seen.squares * seen.counts / np.maximum(seen.counts - 1.0, 1.0)) / shares
    below, above = reaches(seen.counts, seen.skewness, z)
    by_count = np.abs(seen.means) * (high - low) / 2.0
    middle = seen.means * (low + high) / 2.0
    return middle - np.hypot(by_count, below * spread), middle + np.hypot(by_count, above * spread)


def reaches(counts: Floats, skewness: Floats, z: float) -> tuple[Floats, Floats]:
    """Return how many standard errors an interval reaches below and above the mean of a number of values."""
    t = student(z, counts)
    lean = skewness / np.sqrt(np.maximum(counts, 1.0))
    return np.maximum(t, _hall(t, lean)), np.maximum(t, -_hall(-t, lean))


def student(z: float, counts: Floats) -> Floats:
    """Return the quantile of Student's t for samples of this size, by the expansion of Cornish and Fisher."""
    freedom = np.maximum(counts - 1.0, 1.0)
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    found: Floats = z + first / freedom + second / freedom**2 + third / freedom**3
    return found


def _hall(t: Floats, lean: Floats) -> Floats:
    """Return the T of which Hall's transformation is t. ``lean`` is the skewness over the root of the number."""
    safe = np.where(np.abs(lean) < 1e-6, 1e-6, lean)  # without skewness it is t itself
    found: Floats = 3.0 / safe * (np.cbrt(1.0 + safe * t - safe * safe / 6.0) - 1.0)
    return found


# -- the share that must be kept ---------------------------------------------------------------------------------------


def needed_for_count(whole: Floats, z: float, error: float) -> Floats:
    """``whole`` are the numbers of values without drops."""
    found: Floats = z * z / (z * z + error * error * np.maximum(whole, 1e-9))
    return found


def needed_for_values(seen: Sampled, shares: Floats, z: float, error: float, *, is_sum: bool) -> Floats:
    """1 where there are too few values to say."""
    whole = seen.counts / shares
    variance = seen.squares / np.maximum(seen.counts - 1.0, 1.0)
    means = seen.means * seen.means
    relative = np.divide(variance, means, out=np.full(len(means), np.inf), where=means > 0)
    scale = np.where(variance > 0, relative, 0.0) + (1.0 if is_sum else 0.0)
    share = np.ones(len(means))
    for _ in range(ROUNDS):
        kept = np.maximum(share * whole, LEAST_VALUES)
        reach = np.max(reaches(kept, seen.skewness, z), axis=0)
        needs = np.minimum(reach * reach * scale, 1e300)
        share = np.maximum(needs / (needs + error * error * whole), np.minimum(LEAST_VALUES / np.maximum(whole, 1), 1))
    return np.where(seen.counts >= LEAST_VALUES, share, 1.0)


def has_bar(expression: AggregatedExpression) -> bool:
    if len(expression.calls) != 1 or expression.outer.key != "`#0`":
        return False
    call = expression.calls[0]
    return call.function in HAVE_BARS and not call.distinct


def _accumulator(call: AggregateCall) -> Accumulator | None:
    if call.argument is None:
        return None
    return Count(call.argument) if call.function == "count" else SkewedMoments(call.argument)


def _counts(partial: Partial | None, rows: npt.NDArray[np.int64]) -> Floats:
    return (rows if partial is None else partial[0]).astype(np.float64)


def _sampled(partial: Partial | None) -> Sampled:
    assert partial is not None
    return Sampled(partial[0].astype(np.float64), *partial[1:])
