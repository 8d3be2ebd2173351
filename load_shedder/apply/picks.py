"""Picks: which tuples of a train are dropped, once a plan says which share. Each pick returns True for a tuple that
goes.

- ``RandomPick`` makes one draw for each tuple, from its number on the arc and a seed, so the choice does not depend on
  how tuples are grouped into trains. The draws are stratified: each of 64 consecutive tuples gets one of 64 positions,
  shuffled anew for every 64, and the positions move by a golden step from one 64 to the next. So the share holds to one
  tuple in 64 over any stretch and to far less over a long one, and no period of the input (every second tuple is of one
  symbol) coincides with a period of the draws. Refused: every n-th tuple, which does coincide; and an independent draw
  for each, whose share wanders with the square root of the count.
- ``ValuePick`` drops the tuples of least utility. A histogram of the utilities of the last few thousand tuples gives
  the threshold; inside the bin of the threshold a draw decides. The difference between the tuples dropped and the share
  asked for is carried over, so the share holds over time even when the values drift.
- ``WindowPick`` drops whole windows, by number and not by chance: window ``n`` goes when the fraction of ``n`` golden
  steps is below the share. So a larger share drops every window that a smaller one does, two arcs agree without
  communication, and the dropped windows are spread as evenly as possible. A window that has begun ends as it began:
  a decision stays, and the windows in progress when the pick takes effect are kept. Sliding windows go in spans: the
  windows that begin within one span are kept or dropped together, and a tuple goes only when all its windows go.

Owner: the thread that moves the trains of the arc, one at a time. Another thread may set the share.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from load_shedder.record.losses import WindowGrid

Flags = npt.NDArray[np.bool_]
Times = npt.NDArray[np.int64]
Utilities = npt.NDArray[np.float64]

STRATUM = 64
AHEAD = 4_096
GOLDEN = 0.6180339887498949
_ODD = 0x9E3779B97F4A7C15
_MIX = 0xBF58476D1CE4E5B9
_WORD = 2**64 - 1
_POSITIONS = np.arange(STRATUM, dtype=np.uint8)

BINS = 256
MEMORY_TUPLES = 4_096
"""How many tuples the histogram remembers. Enough that a hundred trains of one tuple see the distribution; few enough
that a burst of other values moves the threshold within milliseconds at the rates where shedding matters."""

DECIDED_AT_MOST = 4_096
"""Spans whose decision is remembered. A forgotten span is decided again, by its number and so mostly alike."""


class RandomPick:
    """Pick at random. Draws are made for ``AHEAD`` tuples at once: a short train costs a slice and a comparison."""

    __slots__ = ("_ahead", "_count", "_first", "_seed")

    def __init__(self, seed: int) -> None:
        self._seed = (seed * _MIX) & _WORD
        self._count = 0  # tuples seen so far
        self._ahead: Utilities = np.zeros(0)  # draws in [0, 1), for the tuples from number _first on
        self._first = 0

    def pick(self, count: int, share: float) -> Flags:
        """Return which of the next tuples go."""
        first = self._count
        self._count = first + count
        if self._count > self._first + self._ahead.shape[0]:
            self._look_ahead(first, max(count, AHEAD))
        return self._ahead[first - self._first : self._count - self._first] < share

    def _look_ahead(self, first: int, count: int) -> None:
        """Make the draws, one row for each stratum. In bytes as long as possible: 2 ns a tuple."""
        low, high = first // STRATUM, (first + count - 1) // STRATUM + 1
        strata = np.arange(low, high, dtype=np.uint64)
        bits = (strata + np.uint64(self._seed)) * np.uint64(_ODD)  # wraps on purpose
        factor = ((bits >> np.uint64(40)) | np.uint64(1)).astype(np.uint8)  # odd, so it permutes the 64 positions
        shift = (bits >> np.uint64(20)).astype(np.uint8)
        places = (_POSITIONS * factor[:, None] + shift[:, None]) & np.uint8(STRATUM - 1)
        self._ahead = ((places + ((strata * GOLDEN) % 1.0)[:, None]) / STRATUM).reshape(-1)
        self._first = low * STRATUM


class ValuePick:
    """Pick by value. ``histogram`` is over utilities in [0, 1] and sums to about ``MEMORY_TUPLES`` at most."""

    __slots__ = ("_draw", "_owed", "histogram")

    def __init__(self, seed: int) -> None:
        self._draw = RandomPick(seed)
        self._owed = 0.0  # tuples asked for minus tuples dropped
        self.histogram: Utilities = np.zeros(BINS)

    def observe(self, utilities: Utilities) -> npt.NDArray[np.intp]:
        """Count these utilities in the histogram; return the bin of each."""
        bins = np.minimum((utilities * BINS).astype(np.intp), BINS - 1)
        count = bins.shape[0]
        seen = np.bincount(bins, minlength=BINS) * min(1.0, MEMORY_TUPLES / max(count, 1))
        self.histogram *= max(0.0, 1.0 - count / MEMORY_TUPLES)
        self.histogram += seen
        return bins

    def pick(self, utilities: Utilities, share: float) -> Flags:
        """Return which tuples go: those of least utility, so that this share goes over time."""
        count = utilities.shape[0]
        if share >= 1.0:  # all go: no threshold is needed
            self.observe(utilities)
            return np.ones(count, np.bool_)
        bins = self.observe(utilities)
        target = min(max(share + self._owed / MEMORY_TUPLES, 0.0), 1.0)
        below = np.cumsum(self.histogram)
        wanted = target * below[-1]
        edge = int(np.searchsorted(below, wanted, "right"))
        dropped: Flags = bins < edge
        if edge < BINS and self.histogram[edge] > 0:
            part = (wanted - (below[edge - 1] if edge else 0.0)) / self.histogram[edge]
            dropped |= (bins == edge) & self._draw.pick(count, part)
        self._owed += share * count - int(np.count_nonzero(dropped))
        self._owed = min(max(self._owed, -float(MEMORY_TUPLES)), float(MEMORY_TUPLES))
        return dropped


class WindowPick:
    """Pick whole windows. ``grids`` are the windows of the boxes behind the arc. ``span_ns`` is the span of the place,
    at least as long as the longest window."""

    __slots__ = ("_decided", "_grids", "_kept_through", "span_ns")

    def __init__(self, grids: Sequence[WindowGrid], span_ns: int) -> None:
        longest_ns = max([g.size_ns for g in grids], default=1)
        self.span_ns = max(span_ns, longest_ns, 1)
        self._grids = tuple(grids) or (WindowGrid(self.span_ns, self.span_ns, 0),)
        self._decided: dict[int, bool] = {}  # by number of the span: whether it is dropped
        self._kept_through: int | None = None  # spans up to this one began before the pick took effect

    def pick(self, times_ns: Times, share: float) -> Flags:
        """Return which tuples go: those whose windows all go."""
        ranges = [self._spans(grid, times_ns) for grid in self._grids]
        if self._kept_through is None:  # tuples before the pick are already in these windows
            self._kept_through = max(int(last.max()) for _, last in ranges)
        dropped = np.ones(times_ns.shape[0], np.bool_)
        for first, last in ranges:
            dropped &= self._look_up(last, share)
            if dropped.any() and not np.array_equal(first, last):
                dropped &= self._look_up(first, share)
        return dropped

    def _spans(self, grid: WindowGrid, times_ns: Times) -> tuple[Times, Times]:
        """Return the spans in which the first and the last window of each tuple begin: equal, or neighbours."""
        since = times_ns - grid.offset_ns
        last = (since // grid.step_ns * grid.step_ns + grid.offset_ns) // self.span_ns
        if grid.size_ns == grid.step_ns:
            return last, last
        first = (((since - grid.size_ns) // grid.step_ns + 1) * grid.step_ns + grid.offset_ns) // self.span_ns
        return first, last

    def _look_up(self, spans: Times, share: float) -> Flags:
        low, high = int(spans.min()), int(spans.max())
        if low == high:
            return np.full(spans.shape[0], self.decide(low, share))
        numbers, where = np.unique(spans, return_inverse=True)
        return np.array([self.decide(n, share) for n in numbers.tolist()])[where]

    def decide(self, span: int, share: float) -> bool:
        """Return whether the windows that begin in this span go."""
        known = self._decided.get(span)
        if known is None:
            begun = self._kept_through is not None and span <= self._kept_through
            known = not begun and golden_fraction(span) < share
            self._decided[span] = known
            if len(self._decided) > DECIDED_AT_MOST:
                for old in sorted(self._decided)[: DECIDED_AT_MOST // 2]:
                    del self._decided[old]
        return known

    def begin(self) -> None:
        """Take effect again, after a time in which everything passed."""
        self._decided = {}
        self._kept_through = None

    def is_open(self, now_ns: int) -> bool:
        """Return whether a dropped window may still be open at this event time."""
        last = max((span for span, gone in self._decided.items() if gone), default=None)
        return last is not None and (last + 2) * self.span_ns > now_ns


def golden_fraction(number: int) -> float:
    """Return the fraction of ``number`` golden steps, in [0, 1): the most even sequence. Exact for any integer, where a
    float would lose digits."""
    return float(((number * _ODD) & _WORD) / 2**64)
