"""Pick whole windows of some keys. The groups of keys (``record/key_groups``) stand in a circle. In each span a stretch
of the circle goes, as long as the share asks. It begins a golden step further in the next span, so every key loses its
windows evenly in time.

The stretch is measured in tuples: a group weighs as much as it brought lately, so the share holds where a few keys have
most of the tuples. What one span drops too little or too much is made up for in the next ones.

A share that rises, and stays up for ``STAYS_NS``, takes effect within the span: more groups go, and their windows that
have begun are withheld. This wastes the work on them, but the next window may be far away. A group that goes is gone
until the span ends, so a peak of the share must not decide: a span begins with the mean of the last shares.

Owner: the thread that moves the trains of the arc, one at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from load_shedder.apply.picks import golden_fraction
from load_shedder.record.key_groups import KEY_GROUPS, Groups
from load_shedder.record.losses import WindowGrid, first_and_last_spans

Flags = npt.NDArray[np.bool_]
Times = npt.NDArray[np.int64]

GROWS = 0.02  # of the share: a smaller rise waits for the next span
STAYS_NS = 300_000_000
MEMORY = 0.5  # of the tuples of a group, from one span to the next
REMEMBERED, ASKED_AT_MOST = 1_024, 16


class KeyedPick:
    """``grids`` are the windows of the boxes behind the arc. ``span_ns`` is at least as long as the longest window."""

    def __init__(self, grids: Sequence[WindowGrid], span_ns: int) -> None:
        self.span_ns = max(span_ns, *(g.size_ns for g in grids), 1)
        self._grids = tuple(grids)
        self._gone: dict[int, Flags] = {}  # by span: the groups that go
        self._share: dict[int, float] = {}  # by span: the share that was asked for
        self._weights = np.zeros(KEY_GROUPS)  # tuples lately, by group
        self._seen = np.zeros(KEY_GROUPS)  # in the latest span
        self._latest: int | None = None
        self._owed = 0.0  # shares of spans that should have gone and did not
        self._asked: deque[tuple[int, float]] = deque()  # the shares of the last STAYS_NS, each with its time

    def pick(self, times_ns: Times, groups: Groups, share: float, now_ns: int) -> Flags:
        """Return which tuples go: those whose windows all go. ``now_ns`` is the time of their arrival."""
        self._ask(share, now_ns)
        ranges = [first_and_last_spans(grid, self.span_ns, times_ns) for grid in self._grids]
        self._count(max(int(last.max()) for _, last in ranges), groups)
        dropped = np.ones(times_ns.shape[0], np.bool_)
        for first, last in ranges:
            dropped &= self._look_up(last, groups)
            if first is not last and dropped.any():
                dropped &= self._look_up(first, groups)
        return dropped

    def _ask(self, share: float, now_ns: int) -> None:
        if not self._asked or self._asked[-1][1] != share:
            self._asked.append((now_ns, share))
        # The oldest one may have been in force until the next began.
        while len(self._asked) > 1 and (self._asked[1][0] <= now_ns - STAYS_NS or len(self._asked) > ASKED_AT_MOST):
            self._asked.popleft()

    def _count(self, span: int, groups: Groups) -> None:
        if self._latest is None or span > self._latest:
            self._latest = span
            self._weights = MEMORY * self._weights + self._seen
            self._seen = np.zeros(KEY_GROUPS)
        self._seen += np.bincount(groups, minlength=KEY_GROUPS)

    def _look_up(self, spans: Times, groups: Groups) -> Flags:
        low, high = int(spans.min()), int(spans.max())
        if low == high:
            return self.decide(low).take(groups)
        found = np.zeros(spans.shape[0], np.bool_)
        for span in np.unique(spans).tolist():
            mine = spans == span
            found[mine] = self.decide(span).take(groups[mine])
        return found

    def decide(self, span: int) -> Flags:
        """Return the groups whose windows that begin in this span go."""
        known = self._gone.get(span)
        shares = [asked for _, asked in self._asked]
        share = min(shares) if known is not None else shares[-1] and sum(shares) / len(shares)
        if known is not None and share <= self._share[span] + GROWS:
            return known
        weights = self._weights + self._seen
        weights = weights / weights.sum() if weights.any() else np.full(KEY_GROUPS, 1 / KEY_GROUPS)
        order = np.roll(np.arange(KEY_GROUPS), int(golden_fraction(span) * KEY_GROUPS))
        ends = np.cumsum(weights[order])
        target = 1.0 if share >= 1.0 else min(max(share + self._owed, 0.0), 1.0)
        gone = np.zeros(KEY_GROUPS, np.bool_)
        gone[order] = ends - weights[order] / 2 < target
        if share <= 0:
            gone[:] = False
        if known is None:
            self._owed = min(max(self._owed + share - float(weights[gone].sum()), -0.5), 0.5) if share > 0 else 0.0
        else:
            gone |= known
        self._gone[span], self._share[span] = gone, share
        if len(self._gone) > REMEMBERED:
            for old in sorted(self._gone)[: REMEMBERED // 2]:
                del self._gone[old], self._share[old]
        return gone

    def begin(self) -> None:
        """Take effect again, after a time in which everything passed."""
        self._gone, self._share, self._owed = {}, {}, 0.0
        self._asked.clear()

    def is_open(self, now_ns: int) -> bool:
        """Return whether a dropped window may still be open at this event time."""
        last = max((span for span, gone in self._gone.items() if gone.any()), default=None)
        return last is not None and (last + 2) * self.span_ns > now_ns
