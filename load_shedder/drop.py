"""Which tuples of a train are dropped: the picks behind a mask. Each gives True where a tuple goes.

- ``RandomPick``: by a draw for each tuple, from its number on the arc and a seed: the same tuples whatever the trains.
  The draws are stratified: of 64 tuples in a row each gets one of 64 places, shuffled anew each time, and the places
  move by a golden step from one 64 to the next. So the share holds to a tuple in 64 over any stretch and to far less
  over a long one, and no period of the input (every other tuple is of one symbol) meets a period of ours.
  Refused: every n-th tuple, which does meet; and a free draw for each, whose share wanders with the square root.
- ``ValuePick``: the tuples of least utility first. A histogram of utilities over the last few thousand tuples says
  where the threshold lies; within the interval that it cuts, a draw decides. What was dropped too little or too much
  before is made up for, so the share holds over time also when the values drift.
- ``WindowPick``: whole windows, by number and not by chance: window ``n`` goes when the fraction of ``n`` golden steps
  is below the share, so a larger share drops all that a smaller one does, two arcs agree without a word, and the
  windows that go are spread as evenly as can be. A window that has begun is finished as it began: what was decided
  stays, and what was under way when the pick came into force is kept. Sliding windows go in spans: those that begin
  within one are kept or dropped together, and a tuple goes only when every window that it is in does.

Owner: whoever moves the trains of the arc, one thread at a time. ``share`` may be set by another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

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
"""How many tuples the histogram remembers: a hundred trains of one still see the distribution, and a burst of other
values moves the threshold within milliseconds at the rates where shedding matters."""

DECIDED_AT_MOST = 4_096
"""Windows whose fate is remembered. One that is forgotten is decided again, by number and so mostly alike."""


class RandomPick:
    """Draws are made for ``AHEAD`` tuples at once, so that a short train costs a slice of them and a comparison."""

    __slots__ = ("_ahead", "_count", "_first", "_seed")

    def __init__(self, seed: int) -> None:
        self._seed = (seed * _MIX) & _WORD
        self._count = 0  # tuples so far
        self._ahead: Utilities = np.zeros(0)  # the draws, in [0, 1), of the tuples from number _first on
        self._first = 0

    def pick(self, count: int, share: float) -> Flags:
        """Which of the next tuples go."""
        first = self._count
        self._count = first + count
        if self._count > self._first + self._ahead.shape[0]:
            self._look_ahead(first, max(count, AHEAD))
        return self._ahead[first - self._first : self._count - self._first] < share

    def _look_ahead(self, first: int, count: int) -> None:
        """In bytes as far as it goes, a row for each stratum: 2 ns a tuple."""
        low, high = first // STRATUM, (first + count - 1) // STRATUM + 1
        strata = np.arange(low, high, dtype=np.uint64)
        bits = (strata + np.uint64(self._seed)) * np.uint64(_ODD)  # wraps, as it should
        factor = ((bits >> np.uint64(40)) | np.uint64(1)).astype(np.uint8)  # odd: a shuffle of the 64 places
        shift = (bits >> np.uint64(20)).astype(np.uint8)
        places = (_POSITIONS * factor[:, None] + shift[:, None]) & np.uint8(STRATUM - 1)
        self._ahead = ((places + ((strata * GOLDEN) % 1.0)[:, None]) / STRATUM).reshape(-1)
        self._first = low * STRATUM


class ValuePick:
    """``histogram`` is over utilities in [0, 1], the sums over the outputs scaled down; it sums to about
    ``MEMORY_TUPLES`` at most."""

    __slots__ = ("_draw", "_owed", "histogram")

    def __init__(self, seed: int) -> None:
        self._draw = RandomPick(seed)
        self._owed = 0.0  # tuples that should have been dropped and were not, or the other way round
        self.histogram: Utilities = np.zeros(BINS)

    def observe(self, utilities: Utilities) -> npt.NDArray[np.intp]:
        """The interval of each utility, after they are counted."""
        bins = np.minimum((utilities * BINS).astype(np.intp), BINS - 1)
        count = bins.shape[0]
        seen = np.bincount(bins, minlength=BINS) * min(1.0, MEMORY_TUPLES / max(count, 1))
        self.histogram *= max(0.0, 1.0 - count / MEMORY_TUPLES)
        self.histogram += seen
        return bins

    def pick(self, utilities: Utilities, share: float) -> Flags:
        count = utilities.shape[0]
        if share >= 1.0:  # no histogram knows better than all
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


class Grid(NamedTuple):
    """Windows of event time: they begin ``step_ns`` apart, from ``offset_ns`` on, and last for ``size_ns``."""

    step_ns: int
    size_ns: int
    offset_ns: int


class WindowPick:
    """``grids`` are those of the boxes behind the arc; ``span_ns`` is the place's, made as long as a window at
    least."""

    __slots__ = ("_decided", "_grids", "_kept_through", "span_ns")

    def __init__(self, grids: Sequence[Grid], span_ns: int) -> None:
        longest_ns = max([g.size_ns for g in grids], default=1)
        self.span_ns = max(span_ns, longest_ns, 1)
        self._grids = tuple(grids) or (Grid(self.span_ns, self.span_ns, 0),)
        self._decided: dict[int, bool] = {}  # by number of a span: whether it is dropped
        self._kept_through: int | None = None

    def pick(self, times_ns: Times, share: float) -> Flags:
        ranges = [self._spans(grid, times_ns) for grid in self._grids]
        if self._kept_through is None:  # what came before us is in some windows already
            self._kept_through = max(int(last.max()) for _, last in ranges)
        dropped = np.ones(times_ns.shape[0], np.bool_)
        for first, last in ranges:
            dropped &= self._look_up(last, share)
            if dropped.any() and not np.array_equal(first, last):
                dropped &= self._look_up(first, share)
        return dropped

    def _spans(self, grid: Grid, times_ns: Times) -> tuple[Times, Times]:
        """The spans in which the first and the last window of each tuple begin: neighbours, or the same."""
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
        """Whether the windows that begin in this span go."""
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
        """Into force again, after a while in which everything passed."""
        self._decided = {}
        self._kept_through = None

    def is_open(self, now_ns: int) -> bool:
        """Whether a window that is dropped may not be over yet, by this event time."""
        last = max((span for span, gone in self._decided.items() if gone), default=None)
        return last is not None and (last + 2) * self.span_ns > now_ns


def golden_fraction(number: int) -> float:
    """In [0, 1), the most even sequence there is; exact for any integer, where a float would lose its digits."""
    return float(((number * _ODD) & _WORD) / 2**64)
