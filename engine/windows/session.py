"""Session windows: the tuples of a key with less than ``gap`` between neighbours.

A pane is as wide as the gap, so that all tuples of one key in one pane are in one session, and a session is a run of
neighbouring panes of its key, each beginning less than a gap after the last tuple of the one before. Rows are
therefore added exactly as for tumbling windows, whatever their order; sessions are found only when they close. A
group is looked at when the watermark reaches its last tuple plus the gap: it is then added to the next pane of its
key, or, when that does not continue it, comes out. An open session is never more than a few groups, however long it
lasts.

As in Spark a session ends a gap after its last tuple, and a tuple at that very moment begins a new one.
A tuple is late when the watermark has passed it by a gap.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from engine.windows.gather import gather, take_windows
from engine.windows.groups import Groups
from engine.windows.numbers import Numbers
from engine.windows.plan import Plan
from engine.windows.runs import Timers
from engine.windows.windows import Batch, Send, Windows
from storage.train import NO_WATERMARK


class SessionWindows(Windows):
    def __init__(self, plan: Plan, gap_ns: int, *, quiet: bool = False) -> None:
        super().__init__(plan)
        self.gap_ns = gap_ns
        self.groups = Groups(plan.accumulators)
        self._timers = Timers()
        self._quiet = quiet
        self._touched: set[int] = set()
        self._touched_ns: dict[int, int] = {}

    def tables(self) -> list[Groups]:
        return [self.groups]

    @property
    def nbytes(self) -> int:
        return super().nbytes + self._timers.nbytes

    @property
    def late_below_ns(self) -> int:
        return NO_WATERMARK if self.closed_ns == NO_WATERMARK else self.closed_ns - self.gap_ns + 1

    def add(self, batch: Batch, send: Send) -> None:
        groups = self.groups
        if batch.low_ns // self.gap_ns == batch.high_ns // self.gap_ns:
            panes = np.array([batch.low_ns // self.gap_ns])
        else:
            panes = batch.times_ns // self.gap_ns
        slots, fresh = groups.locate(panes, batch.keys)
        groups.add(slots, batch.columns, batch.arrival_ns, batch.times_ns, batch.times_ns)
        if fresh.shape[0]:
            self._enroll(fresh)
        if self._quiet:
            self._touched.update(np.unique(panes).tolist())

    def _enroll(self, fresh: Numbers) -> None:
        groups = self.groups
        self.keys.retain(groups.key.take(fresh))
        self._timers.set(groups.last_ns.take(fresh) + self.gap_ns, fresh)

    def advance(self, watermark_ns: int, send: Send) -> None:
        if watermark_ns <= self.closed_ns:
            return
        self.closed_ns = watermark_ns
        self.forget()
        groups = self.groups
        slots = self._timers.due(watermark_ns)
        if not slots.shape[0]:
            return
        end_ns = groups.last_ns.take(slots) + self.gap_ns
        ready = end_ns <= watermark_ns
        self._timers.set(end_ns[~ready], slots[~ready])  # got tuples since their timer was set
        if ready.any():
            self._close(slots[ready], send)

    def reach(self, start_ns: Numbers, end_ns: Numbers) -> tuple[Numbers, Numbers]:
        """A tuple less than a gap before the first one would have begun the session earlier."""
        return start_ns - self.gap_ns + 1, end_ns

    def _close(self, slots: Numbers, send: Send) -> None:
        """Link the panes of each session. When a pane is ready, so are all earlier ones of its session."""
        groups = self.groups
        order = np.lexsort((groups.pane.take(slots), groups.key.take(slots)))
        slots = slots.take(order)
        following = groups.find(groups.pane.take(slots) + 1, groups.key.take(slots))
        goes_on = (following >= 0) & (groups.first_ns.take(following) < groups.last_ns.take(slots) + self.gap_ns)
        inside = goes_on[:-1] & (following[:-1] == slots[1:])
        starts = np.flatnonzero(np.append(True, ~inside))
        last = np.append(starts[1:], slots.shape[0]) - 1
        sessions = gather([(groups, slots)], None, starts)
        open_ones = np.flatnonzero(goes_on.take(last))
        if open_ones.shape[0]:
            groups.merge(
                following.take(last.take(open_ones)), take_windows(sessions, open_ones, self.plan.accumulators)
            )
            closed = np.flatnonzero(~goes_on.take(last))
            sessions = take_windows(sessions, closed, self.plan.accumulators)
        end_ns = sessions.last_ns + self.gap_ns
        self.emit(sessions, sessions.first_ns, end_ns, end_ns - 1, send)
        self.release(groups, slots)
        self.forget_much()

    def tick(self, now_ns: int, timeout_ns: int, send: Send) -> None:
        """Close, in order, the sessions that end in panes without a tuple for so long. What still comes is late."""
        self._touched_ns.update(dict.fromkeys(self._touched, now_ns))
        self._touched.clear()
        for pane in sorted(self._touched_ns):
            if self._touched_ns[pane] + timeout_ns > now_ns:
                return
            del self._touched_ns[pane]
            # The last moment at which a session with its last tuple in this pane can end: the next pane stays open.
            self.advance((pane + 2) * self.gap_ns - 1, send)

    def renumbered(self, remaps: Sequence[Numbers], keys: Numbers | None) -> None:
        groups = self.groups
        live = groups.live_slots()
        self._timers = Timers()
        self._timers.set(groups.last_ns.take(live) + self.gap_ns, live)

    def restore_more(self, data: dict[str, Any], slots: Sequence[Numbers], numbers: Numbers) -> None:
        if slots[0].shape[0]:
            self._enroll(slots[0])
            self._touched.update(np.unique(self.groups.pane.take(slots[0])).tolist() if self._quiet else ())
