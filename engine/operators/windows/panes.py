"""Windows on a grid of event time: tumbling and sliding.

Time is divided into panes of the greatest common divisor of size and advance. Window w covers the panes ``w * advance``
to ``w * advance + size`` (both in panes). Windows close in order, when the watermark reaches their end. A tuple is late
when its last window is closed. A tuple that is late for some of its windows counts in the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import gcd
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.operators.bounded.waiting import NEVER_NS
from engine.operators.state.columns import Numbers
from engine.operators.windows.gather import gather
from engine.operators.windows.groups import Gathered, Groups
from engine.operators.windows.layout import WindowLayout
from engine.operators.windows.level import PaneLevel, blocks, level_count
from engine.operators.windows.windows import MAX_TRAIN, LiveRows, Send, Windows, take_rows
from storage.train import NO_WATERMARK


class PaneWindows(Windows):
    def __init__(
        self,
        layout: WindowLayout,
        size_ns: int,
        advance_ns: int,
        offset_ns: int,
        *,
        update: bool = False,
        has_timeout: bool = False,
    ) -> None:
        super().__init__(layout)
        self.pane_ns = gcd(size_ns, advance_ns)
        self.size = size_ns // self.pane_ns  # in panes
        self.step = advance_ns // self.pane_ns
        self.offset_ns = offset_ns
        self.update = update
        levels = level_count(self.size, layout.is_logged or update)
        self.levels = [PaneLevel(layout.accumulators, self.keys) for _ in range(levels)]
        self._first_window = -(2**63)  # the first open window
        self._has_timeout = has_timeout  # whether there is a timeout
        self._touched: set[int] = set()  # panes with a tuple since the last tick
        self._touched_ns: dict[int, int] = {}  # the tick after the last tuple of each pane
        self._seen: dict[int, int] = {}  # tuples by pane, for the share that windows saw

    def tables(self) -> list[Groups]:
        return [level.groups for level in self.levels]

    @property
    def nbytes(self) -> int:
        return super().nbytes + sum([level.nbytes for level in self.levels])

    @property
    def late_below_ns(self) -> int:
        return NO_WATERMARK if self._first_window == -(2**63) else self._start_ns(self._first_window)

    def _start_ns(self, window: int) -> int:
        return window * self.step * self.pane_ns + self.offset_ns

    # -- tuples come in ------------------------------------------------------------------------------------------------

    def add(self, batch: LiveRows, send: Send) -> None:
        low = (batch.low_ns - self.offset_ns) // self.pane_ns
        high = (batch.high_ns - self.offset_ns) // self.pane_ns
        if low == high:  # the usual case: no division for each row
            panes = np.array([low])
        else:
            panes = (batch.times_ns - self.offset_ns) // self.pane_ns
        base = self.levels[0]
        slots = base.locate(panes, batch.keys)
        base.groups.add(slots, batch.columns, batch.arrival_ns, None, batch.times_ns)
        if len(self.levels) > 1 and low < base.sealed:
            self._add_above(panes, batch)
        if self.layout.with_share:
            self._count(panes, batch.keys.shape[0])
        if self._has_timeout:
            self._touched.update(np.unique(panes).tolist())
        if self.update:
            self._emit_open(np.unique(slots), send)

    def _count(self, panes: Numbers, rows: int) -> None:
        numbers, counts = np.unique(panes, return_counts=True)
        for pane, count in zip(numbers.tolist(), counts.tolist(), strict=True):
            self._seen[pane] = self._seen.get(pane, 0) + (rows if numbers.shape[0] == 1 else count)

    def _add_above(self, panes: Numbers, batch: LiveRows) -> None:
        """Add rows of sealed panes to the levels above, which have taken up the pane without them."""
        panes = np.broadcast_to(panes, batch.keys.shape[0])
        for height in range(1, len(self.levels)):
            below = self.levels[height - 1]
            index = np.flatnonzero(panes >> (height - 1) < below.sealed)
            if not index.shape[0]:
                return
            level = self.levels[height]
            slots = level.locate(panes.take(index) >> height, batch.keys.take(index))
            columns = [take_rows(v, index) for v in batch.columns]
            level.groups.add(slots, columns, batch.arrival_ns.take(index), None, batch.times_ns.take(index))

    def shares(self, start_ns: Numbers) -> npt.NDArray[np.float64] | None:
        """Return, for each window, the tuples that its panes saw over those that they would have seen."""
        assert self.losses is not None
        short = self.losses.short_panes()
        if not short:
            return None
        starts, where = np.unique(start_ns, return_inverse=True)
        panes = sorted(short | self._seen.keys())  # a window may have a million, most of them empty
        seen = [self._seen.get(pane, 0) for pane in panes]
        full = [self.losses.full(pane, n) if pane in short else n for pane, n in zip(panes, seen, strict=True)]
        before = np.cumsum([[0, *seen], [0, *full]], axis=1)
        first = (starts - self.offset_ns) // self.pane_ns
        ends = np.searchsorted(panes, [first, first + self.size])
        saw, would = before.take(ends[1], axis=1) - before.take(ends[0], axis=1)
        shares: npt.NDArray[np.float64] = np.divide(saw, would, out=np.ones(starts.shape[0]), where=would > saw)
        return shares.take(where)

    # -- the state by key --------------------------------------------------------------------------------------------

    def last_of(self, groups: Groups, slots: Numbers) -> Numbers:
        height = next(n for n, level in enumerate(self.levels) if level.groups is groups)
        return ((groups.pane.take(slots) + 1) << height) * self.pane_ns + self.offset_ns - 1

    def due_ns(self) -> int:
        pane = self.levels[0].first_pane
        return NEVER_NS if pane is None else self._first_end_ns(pane, self._first_window)

    def first_due_ns(self, low_ns: int) -> int:
        return self._first_end_ns((low_ns - self.offset_ns) // self.pane_ns, -(2**63))

    def _first_end_ns(self, pane: int, first_window: int) -> int:
        """Return the end of the first open window with this pane."""
        window = max(first_window, -((self.size - 1 - pane) // self.step))
        return (window * self.step + self.size) * self.pane_ns + self.offset_ns

    # -- windows close -----------------------------------------------------------------------------------------------

    def advance(self, watermark_ns: int, send: Send) -> None:
        if watermark_ns <= self.closed_ns:
            return
        self.closed_ns = watermark_ns
        self.forget()
        now = (watermark_ns - self.offset_ns) // self.pane_ns  # panes below have passed
        self._seal(now)
        first_open = (now - self.size) // self.step + 1
        if first_open <= self._first_window:
            return
        if not self.update and self.size > 1:
            self._close_sliding(first_open, send)
        self._first_window = first_open
        self._expire(first_open * self.step, send)

    def _seal(self, now: int) -> None:
        for height, (level, above) in enumerate(zip(self.levels, self.levels[1:], strict=False)):
            found = level.seal(now >> height)
            if not found:
                continue
            slots = np.concatenate(found)
            groups = level.groups
            parents = above.locate(groups.pane.take(slots) >> 1, groups.key.take(slots))
            order = np.argsort(parents, kind="stable")
            parents = parents.take(order)
            starts = np.flatnonzero(np.append(True, parents[1:] != parents[:-1]))
            above.groups.merge(parents.take(starts), gather([(groups, slots)], order, starts))

    def _expire(self, first_pane: int, send: Send) -> None:
        """Release the panes that no open window needs. A tumbling window is a pane, and closes here."""
        for height, level in enumerate(self.levels):
            gone = level.expire(first_pane >> height)
            if not gone:
                continue
            slots = np.concatenate([s for _, s in gone])
            if self.size == 1 and not self.update:
                self._emit_panes(slots, send)
            level.groups.release(slots)
            if not height:
                for pane, _ in gone:
                    self._touched_ns.pop(pane, None)
                    self._touched.discard(pane)
        if self._seen:
            for pane in [p for p in self._seen if p < first_pane]:
                del self._seen[pane]
        self.forget_much()

    def _emit_panes(self, slots: Numbers, send: Send) -> None:
        groups = self.levels[0].groups
        start_ns = groups.pane.take(slots) * self.pane_ns + self.offset_ns
        end_ns = start_ns + self.pane_ns
        self.emit(gather([(groups, slots)]), start_ns, end_ns, end_ns - 1, send)

    def _close_sliding(self, first_open: int, send: Send) -> None:
        """Emit all windows below ``first_open`` that have tuples, many at a time."""
        windows: list[int] = []
        nodes: list[tuple[int, int, Numbers]] = []  # level, window, slots
        size = 0
        for window in self._filled_windows(first_open):
            for height, node in blocks(window * self.step, window * self.step + self.size, len(self.levels)):
                slots = self.levels[height].slots_of(node)
                if slots is not None:
                    nodes.append((height, len(windows), slots))
                    size += slots.shape[0]
            windows.append(window)
            if size >= MAX_TRAIN:
                self._emit_nodes(windows, nodes, send)
                windows, nodes, size = [], [], 0
        if nodes:
            self._emit_nodes(windows, nodes, send)

    def _filled_windows(self, first_open: int) -> Iterator[int]:
        done = self._first_window - 1
        for pane in sorted(self.levels[0].members):
            window = max(done + 1, -((self.size - 1 - pane) // self.step))
            last = min(pane // self.step, first_open - 1)
            while window <= last:
                yield window
                done = window
                window += 1
            if done >= first_open - 1:
                return

    def _emit_nodes(self, windows: Sequence[int], nodes: list[tuple[int, int, Numbers]], send: Send) -> None:
        parts: list[tuple[Groups, Numbers]] = []
        owners: list[Numbers] = []
        for height, level in enumerate(self.levels):
            mine = [(w, s) for h, w, s in nodes if h == height]
            if mine:
                parts.append((level.groups, np.concatenate([s for _, s in mine])))
                owners.append(np.repeat([w for w, _ in mine], [s.shape[0] for _, s in mine]))
        self._emit_together(parts, np.concatenate(owners), np.array(windows), send)

    def _emit_together(self, parts: list[tuple[Groups, Numbers]], owner: Numbers, windows: Numbers, send: Send) -> None:
        """Put the groups of each window and key together and emit them.

        ``owner`` gives the position of each group's window in ``windows``.
        """
        keys = np.concatenate([groups.key.take(slots) for groups, slots in parts])
        order = np.lexsort((keys, owner))
        owner, keys = owner.take(order), keys.take(order)
        starts = np.flatnonzero(np.append(True, (owner[1:] != owner[:-1]) | (keys[1:] != keys[:-1])))
        gathered: Gathered = gather(parts, order, starts)
        start_ns = windows.take(owner.take(starts)) * (self.step * self.pane_ns) + self.offset_ns
        end_ns = start_ns + self.size * self.pane_ns
        self.emit(gathered, start_ns, end_ns, end_ns - 1, send)

    # -- windows that are still open -----------------------------------------------------------------------------------

    def _emit_open(self, slots: Numbers, send: Send) -> None:
        """Emit every open window of these groups as it is now."""
        if self.size == 1:
            self._emit_panes(slots, send)
            return
        groups = self.levels[0].groups
        panes, keys = groups.pane.take(slots), groups.key.take(slots)
        last = panes // self.step
        first = np.maximum(-((self.size - 1 - panes) // self.step), self._first_window)
        counts = last - first + 1
        windows = np.repeat(first - np.cumsum(counts) + counts, counts) + np.arange(int(counts.sum()))
        pairs = np.unique(np.stack([windows, np.repeat(keys, counts)]), axis=1)
        chunk = max(1, MAX_TRAIN // self.size)
        for start in range(0, pairs.shape[1], chunk):
            part = pairs[:, start : start + chunk]
            members = (part[0][:, None] * self.step + np.arange(self.size)).reshape(-1)
            found = groups.find(members, np.repeat(part[1], self.size))
            there = np.flatnonzero(found >= 0)
            self._emit_together([(groups, found.take(there))], there // self.size, part[0], send)

    # -- real time -----------------------------------------------------------------------------------------------------

    def tick(self, now_ns: int, timeout_ns: int, send: Send) -> None:
        """Close, in order, the windows that got no tuple in any pane for the timeout.

        Tuples that still come for them are late.
        """
        self._touched_ns.update(dict.fromkeys(self._touched, now_ns))
        self._touched.clear()
        base = self.levels[0]
        while (pane := base.first_pane) is not None:
            window = max(self._first_window, -((self.size - 1 - pane) // self.step))
            first = window * self.step
            panes = [p for p in range(first, first + self.size) if p in base.members]
            touched = [self._touched_ns.setdefault(p, now_ns) for p in panes]
            if max(touched) + timeout_ns > now_ns:
                return
            self.advance((first + self.size) * self.pane_ns + self.offset_ns, send)

    # -- plain data ----------------------------------------------------------------------------------------------------

    def renumbered(self, remaps: Sequence[Numbers], keys: Numbers | None) -> None:
        for level, remap in zip(self.levels, remaps, strict=True):
            level.renumbered(remap)

    def snapshot_more(self, numbers: Numbers) -> dict[str, Any]:
        return {
            "first_window": self._first_window,
            "sealed": [level.sealed for level in self.levels],
            "seen": list(self._seen.items()),
        }

    def restore_more(self, data: dict[str, Any], slots: Sequence[Numbers], numbers: Numbers) -> None:
        self._first_window = int(data["first_window"])
        self._seen = {int(pane): int(count) for pane, count in data.get("seen", ())}
        for level, sealed, mine in zip(self.levels, data["sealed"], slots, strict=True):
            level.sealed = int(sealed)
            if mine.shape[0]:
                level.enroll(mine)
