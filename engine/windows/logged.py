"""What needs all values of a window: percentiles, distinct values, lists; and a sketch that only pretends to.

These keep their values in a ``ValueLog`` until the window closes: exact, at the price of memory. Distinct values are
kept once per group and train. ``approx_count_distinct`` keeps 2**p bytes per group instead (HyperLogLog, with Ertl's
estimator, which has no bias to correct at small counts): its relative standard error is about 1.04 / sqrt(2**p), p
chosen as Spark does for the ``rsd`` asked for (5 % unless said: p = 9, 512 bytes, 4.6 %).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from catalog.errors import BindError
from engine.expressions import Expression, Vector
from engine.windows.accumulators import Accumulator, Cell, Partial, Reducible, decoded
from engine.windows.distinct import bits_of, distinct_rows
from engine.windows.numbers import Array, Numbers
from engine.windows.rows import Rows
from engine.windows.runs import ValueLog


class Logged(Accumulator):
    """Entries ``(segment, values...)`` take the place of cells when windows are put together."""

    logged = True
    width = 1

    def entries(self, rows: Rows, column: Vector) -> tuple[Numbers, tuple[Array, ...]]:
        """The serials and values to keep of a train."""
        rows, values = rows.where(column.valid, column.values)
        if column.pool is not None:
            values = decoded(Vector(values, None, column.pool))
        return rows.serials.take(rows.slots), (values,)

    def log(self, log: ValueLog, rows: Rows, column: Vector) -> None:
        serials, columns = self.entries(rows, column)
        log.append(serials, columns)

    def add(self, cells: Sequence[Array], rows: Rows, column: Vector) -> None:
        raise AssertionError("a log is added to with log()")

    def reduce(self, partial: Partial, starts: Numbers) -> Partial:
        raise AssertionError("a log is read by segment already")

    def merge(self, cells: Sequence[Array], slots: Numbers, partial: Partial) -> None:
        raise AssertionError("a log is appended to")


class Values(Logged):
    """Every value."""


class Distinct(Logged):
    """Every value at least once, by its bits (strings by themselves); equal where GROUP BY would have it."""

    def entries(self, rows: Rows, column: Vector) -> tuple[Numbers, tuple[Array, ...]]:
        rows, values = rows.where(column.valid, column.values)
        bits = bits_of(values)
        first, _ = distinct_rows((rows.slots, bits))
        kept = decoded(Vector(values.take(first), None, column.pool)) if column.pool is not None else bits.take(first)
        return rows.serials.take(rows.slots.take(first)), (kept,)


class Ordered(Logged):
    """Every value with what it is ordered by."""

    width = 2

    def entries(self, rows: Rows, column: Vector) -> tuple[Numbers, tuple[Array, ...]]:
        serials, columns = super().entries(rows, column)
        order = rows.order if column.valid is None else rows.order[column.valid]
        return serials, (*columns, order)


class Sketch(Reducible):
    """HyperLogLog registers, one byte each."""

    ufuncs = (np.maximum,)

    def __init__(self, argument: Expression, precision: int) -> None:
        super().__init__(argument)
        self.precision = precision
        self.key = f"sketch({argument.key}, {precision})"
        self.cells = (Cell(np.uint8, 0, 1 << precision),)

    def add(self, cells: Sequence[Array], rows: Rows, column: Vector) -> None:
        rows, values = rows.where(column.valid, column.values)
        hashes = hashes_of(values, column)
        p = np.uint64(self.precision)
        register = (hashes >> (np.uint64(64) - p)).astype(np.int64)
        rest = ((hashes << p) >> np.uint64(11)).astype(np.float64)  # 53 bits are exact in a double
        zeros = np.minimum(53 - np.frexp(rest)[1], 64 - self.precision)  # frexp(0) is 0: all of them are zero
        zeros[rest == 0] = 64 - self.precision
        flat = cells[0].reshape(-1)
        np.maximum.at(flat, rows.slots * (1 << self.precision) + register, (zeros + 1).astype(np.uint8))

    def reduce(self, partial: Partial, starts: Numbers) -> Partial:
        return [np.maximum.reduceat(partial[0], starts, axis=0)]


def precision_for(rsd: float) -> int:
    """As Spark chooses it."""
    precision = int(np.ceil(2.0 * np.log2(1.106 / rsd))) if rsd > 0 else 99
    if not 4 <= precision <= 16:
        raise BindError(f"approx_count_distinct takes an error between 0.5 % and 27 %, not {rsd:g}", hint="write 0.05")
    return precision


def hashes_of(values: Array, column: Vector) -> npt.NDArray[np.uint64]:
    """64 bits for each value, the same in every process."""
    if column.pool is not None:
        if not len(column.pool):
            return np.zeros(values.shape[0], np.uint64)
        table: npt.NDArray[np.uint64] = column.pool.lookup("blake2b-64", _text_hashes)
        return table.take(values)
    x = bits_of(values).view(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _text_hashes(texts: Sequence[str]) -> npt.NDArray[np.uint64]:
    digests = b"".join([hashlib.blake2b(t.encode("utf-8", "surrogatepass"), digest_size=8).digest() for t in texts])
    return np.frombuffer(digests, np.uint64)


def estimate(registers: npt.NDArray[np.uint8], precision: int) -> Numbers:
    """Ertl's improved raw estimator (2017, algorithm 6), for each row of registers."""
    m, q = 1 << precision, 64 - precision
    counts = np.stack([np.count_nonzero(registers == k, axis=1) for k in range(q + 2)], axis=1).astype(np.float64)
    z = m * _tau(1.0 - counts[:, q + 1] / m)
    for k in range(q, 0, -1):
        z = 0.5 * (z + counts[:, k])
    z = z + m * _sigma(counts[:, 0] / m)
    out: Numbers = np.rint(m * m / (2.0 * np.log(2.0)) / z).astype(np.int64)
    return out


def _sigma(x: Array) -> Array:
    total, y = x.copy(), np.ones_like(x)
    for _ in range(64):  # converges long before; x = 1 (nothing seen) goes to infinity, and the estimate to 0
        x = x * x
        total = total + x * y
        y = y + y
    return total


def _tau(x: Array) -> Array:
    total, y = 1.0 - x, np.ones_like(x)
    for _ in range(64):
        x = np.sqrt(x)
        y = 0.5 * y
        total = total - (1.0 - x) ** 2 * y
    return total / 3.0


def ranked(segments: Numbers, values: Array, count: int) -> tuple[Array, Numbers, Numbers]:
    """Values sorted within their segments (NaN last), and where each segment starts and how long it is."""
    order = np.lexsort((values, segments))
    counts = np.bincount(segments, minlength=count)
    return values.take(order), np.cumsum(counts) - counts, counts


def quantile(segments: Numbers, values: Array, count: int, share: float) -> tuple[Array, Numbers]:
    """Interpolated as Spark's percentile; with the number of values of each segment."""
    ordered, starts, counts = ranked(segments, values.astype(np.float64), count)
    position = (np.maximum(counts, 1) - 1) * share
    low = np.floor(position).astype(np.int64)
    high = np.ceil(position).astype(np.int64)
    padded = np.append(ordered, 0.0)  # an empty segment at the end may point there
    last = padded.shape[0] - 1
    below = padded.take(np.minimum(starts + low, last))
    above = padded.take(np.minimum(starts + high, last))
    mixed = (high - position) * below + (position - low) * above
    return np.where(low == high, below, mixed), counts


def nearest_rank(segments: Numbers, values: Array, count: int, share: float) -> tuple[Array, Numbers]:
    """The least value with at least ``share`` of all at or below it."""
    ordered, starts, counts = ranked(segments, values, count)
    rank = np.maximum(np.ceil(counts * share).astype(np.int64) - 1, 0)
    padded = np.append(ordered, ordered.dtype.type(0))
    return padded.take(np.minimum(starts + rank, padded.shape[0] - 1)), counts


def unique_entries(segments: Numbers, values: Array) -> tuple[Numbers, Array]:
    """Each value once in its segment."""
    if not values.shape[0]:
        return segments, values
    if values.dtype == object:
        pairs = list(dict.fromkeys(zip(segments.tolist(), values.tolist(), strict=True)))
        return np.array([s for s, _ in pairs], np.int64), np.array([v for _, v in pairs], object)
    order = np.lexsort((values, segments))
    s, v = segments.take(order), values.take(order)
    first = np.append(True, (s[1:] != s[:-1]) | (v[1:] != v[:-1]))
    return s[first], v[first]
