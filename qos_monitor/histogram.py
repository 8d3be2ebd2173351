"""The latency of an output's tuples, recorded at delivery, on the worker's thread, one train at a time.

Problem: one pass over the train must answer two questions. Metrics need exact counts at the breakpoints of the output's
QoS graph. People need p50, p99 and p99.9 of the last ten seconds, not since the start.

Design: one set of cells answers both. A cell covers 1/32 of a power of two, so a quantile is off by at most 1.6 %. A
cell that contains a bound of the exported histogram is split exactly there. The cell of a latency is read off the bits
of its floating-point form: no logarithm, no search. Cells are kept in a ring of one-second slots; a slot that leaves
the ring is added to the total.

A typical train has one arrival stamp for all its tuples (stride 0): that path touches no array but the one counter, in
about 2 us. Otherwise equal neighbours are first counted as runs, because a train joined from many has few distinct
stamps.

Two workers may deliver to one output at once. A lock guards the additions, 0.1 us when it is free; all that takes time
is computed before the lock is taken. Refused: a shard per worker (ten times the memory for no measurable gain),
t-digests and reservoirs (a Python loop, or not exact at the breakpoints).
"""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from threading import Lock

import numpy as np
import numpy.typing as npt

from catalog.qos import QoS, QoSGraph
from catalog.readings import HistogramReading, LatencyReading
from qos_monitor.delivered_values import DeliveredValues

STANDARD_BOUNDS_NS = tuple(
    int(mantissa * 10**exponent) for exponent in range(5, 11) for mantissa in (1, 2.5, 5)
)  # 100 us to 50 s
SLOT_NS = 1_000_000_000
SLOTS = 10
FEW_RUNS = 10  # up to here one by one is faster than in columns: 2.5 us each against 30 us for any number
IDEAL_FLOOR_NS = 1_000.0  # an output without a box before it has no ideal time: slowdown is relative to 1 us

_LOW_BIT = 10  # all latencies below 1,024 ns share one cell
_HIGH_BIT = 41  # and so do all above 2^41 ns, 37 minutes
_SUB_BITS = 5
_FINE = ((_HIGH_BIT - _LOW_BIT) << _SUB_BITS) + 2
_BASE = (_LOW_BIT + 1023) << _SUB_BITS  # the biased exponent of 2^_LOW_BIT, above its sub-bits

Ints = npt.NDArray[np.int64]


class LatencyRecorder:
    """The latencies of one output. Any worker calls ``record``, any thread calls ``reading``.

    ``ideal_ns`` is the time that a tuple would take on an idle engine. The monitor sets it; slowdown is relative to it.
    """

    def __init__(self, qos: QoS, bounds_ns: tuple[int, ...] = STANDARD_BOUNDS_NS) -> None:
        self.ideal_ns = IDEAL_FLOOR_NS
        self.lag_ns = 0  # from a delivery until the reader's socket has it; the monitor sets it
        self.values = None if qos.value is None else DeliveredValues(qos.value)
        self._cells = BucketGrid.of(merge_bounds(bounds_ns, qos.latency))
        self._graph = qos.latency
        self._xs = tuple(x for x, _ in qos.latency.points) if qos.latency else ()
        self._ys = tuple(y for _, y in qos.latency.points) if qos.latency else ()
        self._deadline_ns = qos.deadline_ns
        self._late_ns = qos.deadline_ns if qos.deadline_ns is not None else 2**63 - 1
        self._lock = Lock()
        self._slots = [_Slot(self._cells.count) for _ in range(SLOTS)]
        self._total = _Slot(self._cells.count)
        self._recorded = 0  # tuples
        self._last: tuple[int, int, LatencyReading] | None = None  # (tuples so far, second, reading)

    def record(self, arrival_ns: npt.NDArray[np.int64], now_ns: int) -> None:
        """Record that a train with these arrival times was delivered now."""
        count = arrival_ns.shape[0]
        if count == 0:
            return
        now_ns += self.lag_ns
        if count == 1 or arrival_ns.strides[0] == 0:
            self._record_one(max(0, now_ns - int(arrival_ns[0])), count, now_ns)
        else:
            self._record_many(arrival_ns, now_ns)

    def _record_one(self, latency_ns: int, count: int, now_ns: int) -> None:
        cell = self._cells.find(latency_ns)
        utility = self._utility(latency_ns) * count
        slowdown = latency_ns / self.ideal_ns
        with self._lock:
            slot = self._slot(now_ns)
            slot.cells[cell] += count
            slot.count += count
            self._recorded += count
            slot.sum_ns += latency_ns * count
            slot.utility_sum += utility
            slot.slowdown_sum += slowdown * count
            slot.slowdown_square_sum += slowdown * slowdown * count
            if latency_ns > slot.max_ns:
                slot.max_ns = latency_ns
            if slowdown > slot.slowdown_max:
                slot.slowdown_max = slowdown
            if latency_ns > self._late_ns:
                slot.missed += count

    def _record_many(self, arrival_ns: npt.NDArray[np.int64], now_ns: int) -> None:
        arrivals, lengths = runs(arrival_ns)
        if lengths.shape[0] <= FEW_RUNS:
            for stamp_ns, length in zip(arrivals.tolist(), lengths.tolist(), strict=True):
                self._record_one(max(0, now_ns - stamp_ns), length, now_ns)
            return
        latency_ns = np.maximum(now_ns - arrivals, 0)
        floats, weights = latency_ns.astype(np.float64), lengths.astype(np.float64)
        cells = self._cells.find_many(latency_ns, floats)
        count, longest = arrival_ns.shape[0], int(latency_ns.max())
        weighted = floats * weights
        fresh_sum = float(weighted.sum())
        squares = float(weighted.dot(floats))
        utility = float(self._graph.utilities(floats).dot(weights)) if self._graph else float(count)
        missed = int(lengths[latency_ns > self._late_ns].sum()) if longest > self._late_ns else 0
        ideal = self.ideal_ns
        with self._lock:
            slot = self._slot(now_ns)
            np.add.at(slot.cells, cells, lengths)
            slot.count += count
            self._recorded += count
            slot.sum_ns += fresh_sum
            slot.utility_sum += utility
            slot.slowdown_sum += fresh_sum / ideal
            slot.slowdown_square_sum += squares / ideal**2
            slot.max_ns = max(slot.max_ns, longest)
            slot.slowdown_max = max(slot.slowdown_max, longest / ideal)
            slot.missed += missed

    def reading(self, now_ns: int) -> LatencyReading:
        """Return totals since the start, and quantiles over the last ``SLOTS`` seconds."""
        second, last = now_ns // SLOT_NS, self._last
        if last is not None and last[:2] == (
            self._recorded,
            second,
        ):  # unchanged: of 200 outputs most are idle at any tick
            return last[2]
        total, window = _Slot(self._cells.count), _Slot(self._cells.count)
        with self._lock:
            total.add(self._total)
            for slot in self._slots:
                total.add(slot)
                if slot.epoch > second - SLOTS:
                    window.add(slot)
        p50, p99, p999 = self._cells.quantiles(window.cells, (0.5, 0.99, 0.999), window.max_ns)
        reading = LatencyReading(
            histogram=HistogramReading(self._cells.bounds, self._cells.fold(total.cells), total.sum_ns),
            tuples=total.count,
            max_ns=total.max_ns,
            utility_sum=total.utility_sum,
            missed=total.missed,
            deadline_ns=self._deadline_ns,
            slowdown_sum=total.slowdown_sum,
            slowdown_max=total.slowdown_max,
            slowdown_square_sum=total.slowdown_square_sum,
            window_tuples=window.count,
            p50_ns=p50,
            p99_ns=p99,
            p999_ns=p999,
            mean_ns=window.sum_ns / window.count if window.count else 0.0,
            window_max_ns=window.max_ns,
            window_utility=window.utility_sum / window.count if window.count else 1.0,
            window_missed=window.missed,
            value_point=None if self.values is None else self.values.point(now_ns),
        )
        self._last = (total.count, second, reading)
        return reading

    def quantiles(self, shares: tuple[float, ...]) -> tuple[float, ...]:
        """Return quantiles since the start, in ns; for reports at the end of a run."""
        total = _Slot(self._cells.count)
        with self._lock:
            for slot in (self._total, *self._slots):
                total.add(slot)
        return self._cells.quantiles(total.cells, shares, total.max_ns)

    def _slot(self, now_ns: int) -> _Slot:
        """Return the slot of this second; first empty it into the total if it holds an older one. Under the lock."""
        epoch = now_ns // SLOT_NS
        slot = self._slots[epoch % SLOTS]
        if slot.epoch != epoch:
            if slot.epoch > epoch:  # this worker read the clock before another one reused the slot
                return slot
            self._total.add(slot)
            slot.clear()
            slot.epoch = epoch
        return slot

    def _utility(self, latency_ns: int) -> float:
        """Compute ``QoSGraph.utility`` without numpy: 0.3 us instead of 3."""
        xs, ys = self._xs, self._ys
        if not xs:
            return 1.0
        i = bisect_right(xs, latency_ns)
        if i == 0:
            return ys[0]
        if i == len(xs):
            return ys[-1]
        return ys[i - 1] + (ys[i] - ys[i - 1]) * (latency_ns - xs[i - 1]) / (xs[i] - xs[i - 1])


class _Slot:
    """Sums over one second, or over all seconds. ``epoch`` is the second; -1: unused."""

    __slots__ = (
        "cells", "count", "epoch", "max_ns", "missed", "slowdown_max", "slowdown_square_sum", "slowdown_sum",
        "sum_ns", "utility_sum",
    )  # fmt: skip

    def __init__(self, cells: int) -> None:
        self.cells: Ints = np.zeros(cells, np.int64)
        self.epoch = -1
        self.clear()

    def clear(self) -> None:
        self.cells[:] = 0
        self.count = 0
        self.missed = 0
        self.max_ns = 0
        self.sum_ns = 0.0
        self.utility_sum = 0.0
        self.slowdown_sum = 0.0
        self.slowdown_square_sum = 0.0
        self.slowdown_max = 0.0

    def add(self, other: _Slot) -> None:
        if other.count == 0:
            return
        self.cells += other.cells
        self.count += other.count
        self.missed += other.missed
        self.max_ns = max(self.max_ns, other.max_ns)
        self.sum_ns += other.sum_ns
        self.utility_sum += other.utility_sum
        self.slowdown_sum += other.slowdown_sum
        self.slowdown_square_sum += other.slowdown_square_sum
        self.slowdown_max = max(self.slowdown_max, other.slowdown_max)


class BucketGrid:
    """The fine buckets, split at the bounds into cells. Immutable, so outputs with the same bounds share one: to make
    it takes half a millisecond."""

    @classmethod
    @lru_cache(maxsize=1_024)
    def of(cls, bounds_ns: tuple[int, ...]) -> BucketGrid:
        return cls(bounds_ns)

    def __init__(self, bounds_ns: tuple[int, ...]) -> None:
        self.bounds: tuple[float, ...] = bounds_ns
        fine_low = [fine_edge(i) for i in range(_FINE)]
        # A bound B splits between B and B + 1, since le means "at most"; merge_bounds leaves one bound a bucket.
        splits = {_fine(b): b for b in bounds_ns if fine_low[_fine(b)] <= b}
        assert len(splits) == len(bounds_ns), "two bounds in one cell"
        self._split: Ints = np.array([splits.get(i, 2**62) for i in range(_FINE)], np.int64)
        self._start: Ints = np.arange(_FINE) + np.concatenate([[0], np.cumsum([i in splits for i in range(_FINE - 1)])])
        lows: list[int] = []
        for i, low in enumerate(fine_low):
            lows += [low, splits[i] + 1] if i in splits else [low]
        self._lows = np.array(lows, np.float64)
        self.count = len(lows)
        # The exported bucket of each cell is the number of bounds below it.
        self._bucket = np.searchsorted(np.array(bounds_ns, np.float64), self._lows, side="left")
        self._starts: list[int] = self._start.tolist()
        self._splits: list[int] = self._split.tolist()

    def find(self, latency_ns: int) -> int:
        """Return the cell of a latency."""
        fine = _fine(latency_ns)
        return self._starts[fine] + (latency_ns > self._splits[fine])

    def find_many(self, latency_ns: Ints, floats: npt.NDArray[np.float64]) -> Ints:
        """Return the cells of many latencies, given as integers and as floats."""
        fine = (floats.view(np.int64) >> (52 - _SUB_BITS)) - (_BASE - 1)
        fine = np.minimum(np.maximum(fine, 0), _FINE - 1)
        cells: Ints = self._start.take(fine) + (latency_ns > self._split.take(fine))
        return cells

    def fold(self, cells: Ints) -> tuple[int, ...]:
        """Return the counts by exported bucket; the last bucket lies above all bounds."""
        return tuple(np.bincount(self._bucket, cells, len(self.bounds) + 1).astype(np.int64).tolist())

    def quantiles(self, cells: Ints, shares: tuple[float, ...], max_ns: int) -> tuple[float, ...]:
        """Interpolate linearly inside the cell that holds the rank; never above the maximum seen."""
        cumulative = np.cumsum(cells)
        total = int(cumulative[-1])
        if total == 0:
            return (0.0,) * len(shares)
        highs = np.append(self._lows[1:], max(float(max_ns), self._lows[-1]))
        out: list[float] = []
        for share in shares:
            rank = share * (total - 1) + 0.5  # the middle of the tuple with that rank
            i = int(np.searchsorted(cumulative, rank, side="left"))
            into = (rank - (cumulative[i] - cells[i])) / cells[i]
            out.append(min(float(self._lows[i] + into * (highs[i] - self._lows[i])), float(max_ns)))
        return tuple(out)


def _fine(latency_ns: int) -> int:
    """Return the fine bucket of one latency; ``find_many`` computes the same from the bits of a float64."""
    exponent = latency_ns.bit_length() - 1
    if exponent < _LOW_BIT:
        return 0
    if exponent >= _HIGH_BIT:
        return _FINE - 1
    sub: int = (latency_ns >> (exponent - _SUB_BITS)) - (1 << _SUB_BITS)
    return ((exponent - _LOW_BIT) << _SUB_BITS) + sub + 1


def fine_edge(fine: int) -> int:
    """Return the smallest latency in a fine bucket."""
    if fine == 0:
        return 0
    octave, sub = divmod(fine - 1, 1 << _SUB_BITS)
    return ((1 << _SUB_BITS) + sub) << (octave + _LOW_BIT - _SUB_BITS)


def merge_bounds(standard_ns: tuple[int, ...], graph: QoSGraph | None) -> tuple[int, ...]:
    """Return the graph's breakpoints and the standard bounds that are not next to one of them, ascending.

    At most one bound falls into a fine bucket: of two breakpoints within 3 % of each other the first is kept.
    """
    chosen: dict[int, int] = {}
    for bound in [*(round(x) for x, _ in (graph.points if graph else ()) if x >= 1), *standard_ns]:
        chosen.setdefault(_fine(bound), bound)
    return tuple(sorted(chosen.values()))


def runs(values: npt.NDArray[np.int64]) -> tuple[Ints, Ints]:
    """Return the runs of equal neighbours: their values and lengths."""
    changes = np.flatnonzero(values[1:] != values[:-1])
    starts = np.zeros(changes.shape[0] + 1, np.int64)
    np.add(changes, 1, out=starts[1:])
    lengths = np.empty_like(starts)
    np.subtract(starts[1:], starts[:-1], out=lengths[:-1])
    lengths[-1] = values.shape[0] - starts[-1]
    return values.take(starts), lengths
