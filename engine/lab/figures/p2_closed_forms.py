"""The closed forms of P2: waiting times of two segments that share an output or meet in a join.

Means of an M/G/1 queue with two priorities, no preemption: Poisson arrivals, one server, a service time of mean E(B)
and coefficient of variation c. Numbers of equations are the paper's.

Two of them have errors. The file has both forms, and the figures show which one a simulation follows:

- Equation 2 treats the two copies of a tuple as independent arrivals. But they come at the same moment, and the copy in
  the second queue waits for its own twin in the first: E(W2) grows by E(B1)/(1 - rho1 - rho2) (``copied_wait``).
- The cubic for P does not follow from equations 3 and 4. With n >> 1, rho1 = x(1-P), rho2 = x(1+P), R1 = n(1-P),
  R2 = n(1+P) and x = lambda n they give 2 x^2 (1+P^2)(1-P) = P^2 (1 - x(1-P))(1 - 2x), and sorted by powers of P
  x P^3 + (1 - 3x) P^2 + 2 x^2 P - 2 x^2 = 0. The paper prints x P^3 + P^2 + (2 x^2 - 3x) P - 2 x^2: the -3x stands
  with P where it belongs to P^2. Its root is above the load of the whole system, impossible for a share of time.
"""

from __future__ import annotations

import numpy as np


def residual(mean: float, variation: float) -> float:
    """Compute E(R), the residual time of a service that is under way."""
    return (variation**2 + 1) * mean / 2


def high_wait(rate: float, first: float, second: float, variation: float) -> float:
    """Compute E(W1), of the segment with priority. ``first`` and ``second`` are E(B1) and E(B2)."""
    under_way = rate * first * residual(first, variation) + rate * second * residual(second, variation)
    return under_way / (1 - rate * first)


def low_wait(rate: float, first: float, second: float, variation: float) -> float:
    """Compute E(W2), of the segment without priority, with arrivals of its own."""
    return high_wait(rate, first, second, variation) / (1 - rate * (first + second))


def copied_wait(rate: float, first: float, second: float, variation: float) -> float:
    """Compute E(W2) if every arrival is a copy of one at the first queue, at the same moment."""
    return (high_wait(rate, first, second, variation) + first) / (1 - rate * (first + second))


def base_wait(rate: float, first: float, second: float, variation: float) -> float:
    """Compute E(W_base): no priorities, both segments as one service whose parts vary independently."""
    mean = first + second
    spread = variation * float(np.hypot(first, second)) / mean
    return rate * mean * residual(mean, spread) / (1 - rate * mean)


def memory_ratio(load: float, ratio: float, variation: float) -> float:
    """Compute Mem_sos / Mem_base (equation 2) from rho1 and r = E(B1)/E(B2)."""
    squares = variation**2 * ratio**2 + variation**2 + ratio**2 + 1
    return (squares / ((1 - load) * (squares + 2 * ratio))) ** 2


def ids_wait(rate: float, n: float, broken: float) -> float:
    """Compute E(W2) of a join's second segment (equation 3), both streams at one rate; ``broken`` is P."""
    first, second = 1 + n - broken * n, 1 + n + broken * n
    load1, load2 = rate * first, rate * second
    return (load1 * first + load2 * second) / ((1 - load1) * (1 - load1 - load2))


def queue_wait(rate: float, broken: float) -> float:
    """Compute E(W2) of the second queue by itself (equation 4)."""
    return broken**2 / (rate * (1 - broken))


def printed_cubic(x: float) -> tuple[float, float, float, float]:
    """Return the coefficients of P^3, P^2, P and 1 as the paper prints them; x is lambda n."""
    return x, 1.0, 2 * x**2 - 3 * x, -2 * x**2


def derived_cubic(x: float) -> tuple[float, float, float, float]:
    """Return the coefficients that follow from equations 3 and 4."""
    return x, 1 - 3 * x, 2 * x**2, -2 * x**2


def broken_share(cubic: tuple[float, float, float, float]) -> float:
    """Find the root that is a probability."""
    real = [root.real for root in np.roots(cubic) if abs(root.imag) < 1e-9]
    return float(min(root for root in real if -1e-12 <= root <= 1 + 1e-9))
