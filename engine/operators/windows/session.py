"""Session windows: the tuples of a key with less than ``gap`` between neighbours.

A pane is as long as the gap, so all tuples of one key in one pane are in one session. A session is a run of
neighbouring panes of its key, each of which begins less than a gap after the last tuple of the one before. Rows are
therefore added as for tumbling windows, whatever their order, and sessions are found only when they close. The box
looks at a group when the watermark reaches its last tuple plus the gap. If the next pane of the key continues the
session, the group is added to that pane; else the session comes out. An open session is never more than a few groups,
however long it lasts.

As in Spark, a session ends a gap after its last tuple, and a tuple at that very moment begins a new one. A tuple is
late when the watermark has passed it by a gap.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from engine.operators.state.chunk import Chunk
from engine.operators.state.columns import Numbers
from engine.operators.state.time_index import TimeIndex
from engine.operators.windows.gather import gather, take_windows
from engine.operators.windows.groups import Groups
from engine.operators.windows.layout import WindowLayout
from engine.operators.windows.windows import LiveRows, Send, Windows
from storage.train import NO_WATERMARK


class SessionWindows(Windows):
    def __init__(self, layout: WindowLayout, gap_ns: int, *, has_timeout: bool = False) -> None:
        super().__init__(layout)
        self.gap_ns = gap_ns
        self.groups = Groups(layout.accumulators, has_bounds=True)
        self._timers = TimeIndex()  # slots by the time at which their session may end
        self._has_timeout = has_timeout
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

    def add(self, batch: LiveRows, send: Send) -> None:
        groups = self.groups
        if batch.low_ns // self.gap_ns == batch.high_ns // self.gap_ns:
            panes = np.array([batch.low_ns // self.gap_ns])
        else:
            panes = batch.times_ns // self.gap_ns
        slots, fresh = groups.locate(panes, batch.keys)
        groups.add(slots, batch.columns, batch.arrival_ns, batch.times_ns, batch.times_ns)
        if fresh.shape[0]:
            self._enroll(fresh)
        if self._has_timeout:
            self._touched.update(np.unique(panes).tolist())

    def _enroll(self, fresh: Numbers) -> None:
        self._timers.insert(Chunk(self.groups.last_ns.take(fresh) + self.gap_ns, fresh))

    def advance(self, watermark_ns: int, send: Send) -> None:
        if watermark_ns <= self.closed_ns:
            return
        self.closed_ns = watermark_ns
        self.forget()
        groups = self.groups
        due = self._timers.expire(watermark_ns + 1)
        if due is None:
            return
        slots = due.rows
        end_ns = groups.last_ns.take(slots) + self.gap_ns
        ready = end_ns <= watermark_ns
        if not ready.all():  # these got tuples since their timer was set
            self._timers.insert(Chunk(end_ns[~ready], slots[~ready]))
        if ready.any():
            self._close(slots[ready], send)

    def due_ns(self) -> int:
        return self._timers.first_ns

    def first_due_ns(self, low_ns: int) -> int:
        return low_ns + self.gap_ns

    def reach(self, start_ns: Numbers, end_ns: Numbers) -> tuple[Numbers, Numbers]:
        """Include the gap before the first tuple: a tuple there would have begun the session earlier."""
        return start_ns - self.gap_ns + 1, end_ns

    def _close(self, slots: Numbers, send: Send) -> None:
        """Link the panes of each session. When a pane is ready, all earlier panes of its session are ready too."""
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
                following.take(last.take(open_ones)), take_windows(sessions, open_ones, self.layout.accumulators)
            )
            closed = np.flatnonzero(~goes_on.take(last))
            sessions = take_windows(sessions, closed, self.layout.accumulators)
        end_ns = sessions.last_ns + self.gap_ns
        self.emit(sessions, sessions.first_ns, end_ns, end_ns - 1, send)
        groups.release(slots)
        self.forget_much()

    def tick(self, now_ns: int, timeout_ns: int, send: Send) -> None:
        """Close, in order, the sessions that end in panes without a tuple for the timeout.

        Tuples that still come for them are late.
        """
        self._touched_ns.update(dict.fromkeys(self._touched, now_ns))
        self._touched.clear()
        for pane in sorted(self._touched_ns):
            if self._touched_ns[pane] + timeout_ns > now_ns:
                return
            del self._touched_ns[pane]
            # A session with its last tuple in this pane ends at this moment at the latest. The next pane stays open.
            self.advance((pane + 2) * self.gap_ns - 1, send)

    def renumbered(self, remaps: Sequence[Numbers], keys: Numbers | None) -> None:
        groups = self.groups
        live = groups.live_slots()
        self._timers = TimeIndex()
        if live.shape[0]:
            self._enroll(live)

    def restore_more(self, data: dict[str, Any], slots: Sequence[Numbers], numbers: Numbers) -> None:
        if slots[0].shape[0]:
            self._enroll(slots[0])
            self._touched.update(np.unique(self.groups.pane.take(slots[0])).tolist() if self._has_timeout else ())
