"""Functions that need all values of a window: percentiles, distinct values, lists. And a sketch that needs only a few
bytes.

The first three keep their values in a ``ValueLog`` until the window closes: exact, at the price of memory. Distinct
values are kept once for each group and train. ``approx_count_distinct`` keeps 2**p bytes for each group instead
(HyperLogLog, with Ertl's estimator, which needs no correction of bias at small counts). Its relative standard error is
about 1.04 / sqrt(2**p). p is chosen as Spark does for the ``rsd`` asked for: 5 % by default, which gives p = 9, 512
bytes and an error of 4.6 %.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from catalog.errors import BindError
from engine.operators.expressions import Expression, Vector
from engine.operators.state.columns import Array, Numbers
from engine.operators.state.distinct import bits_of, distinct_rows
from engine.operators.windows.accumulators import Accumulator, AccumulatorCell, Partial, Reducible, decoded
from engine.operators.windows.slotted import SlottedRows
from engine.operators.windows.value_log import ValueLog


class Logged(Accumulator):
    """An accumulator with a log: its partial is not cells but entries ``(segment, values...)``."""

    logged = True
    width = 1

    def entries(self, rows: SlottedRows, column: Vector) -> tuple[Numbers, tuple[Array, ...]]:
        """Return the serials and values of a train that the log keeps."""
        rows, values = rows.where(column.valid, column.values)
        if column.pool is not None:
            values = decoded(Vector(values, None, column.pool))
        return rows.serials.take(rows.slots), (values,)

    def log(self, log: ValueLog, rows: SlottedRows, column: Vector) -> None:
        serials, columns = self.entries(rows, column)
        log.append(serials, columns)

    def add(self, cells: Sequence[Array], rows: SlottedRows, column: Vector) -> None:
        raise AssertionError("use log() for a log")

    def reduce(self, partial: Partial, starts: Numbers) -> Partial:
        raise AssertionError("the entries of a log are read by segment")

    def merge(self, cells: Sequence[Array], slots: Numbers, partial: Partial) -> None:
        raise AssertionError("use ValueLog.append for a log")


class LoggedValues(Logged):
    """All values."""


class Distinct(Logged):
    """Each distinct value at least once, as bits (strings as they are); equal as in GROUP BY."""

    def entries(self, rows: SlottedRows, column: Vector) -> tuple[Numbers, tuple[Array, ...]]:
        rows, values = rows.where(column.valid, column.values)
        bits = bits_of(values)
        first, _ = distinct_rows((rows.slots, bits))
        kept = decoded(Vector(values.take(first), None, column.pool)) if column.pool is not None else bits.take(first)
        return rows.serials.take(rows.slots.take(first)), (kept,)


class Ordered(Logged):
    """All values with their order."""

    width = 2

    def entries(self, rows: SlottedRows, column: Vector) -> tuple[Numbers, tuple[Array, ...]]:
        serials, columns = super().entries(rows, column)
        order = rows.order if column.valid is None else rows.order[column.valid]
        return serials, (*columns, order)


class DistinctSketch(Reducible):
    """HyperLogLog registers, one byte each."""

    ufuncs = (np.maximum,)

    def __init__(self, argument: Expression, precision: int) -> None:
        super().__init__(argument)
        self.precision = precision
        self.key = f"sketch({argument.key}, {precision})"
        self.cells = (AccumulatorCell(np.uint8, 0, 1 << precision),)

    def add(self, cells: Sequence[Array], rows: SlottedRows, column: Vector) -> None:
        rows, values = rows.where(column.valid, column.values)
        hashes = hashes_of(values, column)
        p = np.uint64(self.precision)
        register = (hashes >> (np.uint64(64) - p)).astype(np.int64)
        rest = ((hashes << p) >> np.uint64(11)).astype(np.float64)  # 53 bits are exact in a double
        zeros = np.minimum(53 - np.frexp(rest)[1], 64 - self.precision)  # frexp(0) is 0: all bits are zero
        zeros[rest == 0] = 64 - self.precision
        flat = cells[0].reshape(-1)
        np.maximum.at(flat, rows.slots * (1 << self.precision) + register, (zeros + 1).astype(np.uint8))

    def reduce(self, partial: Partial, starts: Numbers) -> Partial:
        return [np.maximum.reduceat(partial[0], starts, axis=0)]


def precision_for(rsd: float) -> int:
    """Return the number of index bits for a relative standard error, chosen as Spark does."""
    precision = int(np.ceil(2.0 * np.log2(1.106 / rsd))) if rsd > 0 else 99
    if not 4 <= precision <= 16:
        raise BindError(f"approx_count_distinct takes an error between 0.5 % and 27 %, not {rsd:g}", hint="write 0.05")
    return precision


def hashes_of(values: Array, column: Vector) -> npt.NDArray[np.uint64]:
    """Return a hash of 64 bits for each value, the same in every process."""
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
    """Return Ertl's improved raw estimate (2017, algorithm 6) for each row of registers."""
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
    for _ in range(64):  # converges long before; x = 1 (no value seen) goes to infinity, and the estimate to 0
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
    """Return values sorted within their segments (NaN last), and the start and the length of each segment."""
    order = np.lexsort((values, segments))
    counts = np.bincount(segments, minlength=count)
    return values.take(order), np.cumsum(counts) - counts, counts


def quantile(segments: Numbers, values: Array, count: int, share: float) -> tuple[Array, Numbers]:
    """Return the interpolated percentile of each segment, as Spark does, and its number of values."""
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
    """Return the lowest value with at least ``share`` of all values at or below it, and the number of values."""
    ordered, starts, counts = ranked(segments, values, count)
    rank = np.maximum(np.ceil(counts * share).astype(np.int64) - 1, 0)
    padded = np.append(ordered, ordered.dtype.type(0))
    return padded.take(np.minimum(starts + rank, padded.shape[0] - 1)), counts


def unique_entries(segments: Numbers, values: Array) -> tuple[Numbers, Array]:
    """Return each value once in its segment."""
    if not values.shape[0]:
        return segments, values
    if values.dtype == object:
        pairs = list(dict.fromkeys(zip(segments.tolist(), values.tolist(), strict=True)))
        return np.array([s for s, _ in pairs], np.int64), np.array([v for _, v in pairs], object)
    order = np.lexsort((values, segments))
    s, v = segments.take(order), values.take(order)
    first = np.append(True, (s[1:] != s[:-1]) | (v[1:] != v[:-1]))
    return s[first], v[first]
