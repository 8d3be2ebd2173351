"""Windows by count: the last ``size`` tuples of a key, every ``advance`` of them.

The tuples of a key are numbered as they arrive. A pane is a stretch of that sequence, and panes go into the same tree
as those of sliding windows. A window closes with its last tuple, whatever the watermark. A window that is not full
stays. A key is forgotten only when all its windows are complete (``advance`` equal to ``size``), or by ``timeout``,
which emits the unfinished window.

The bounds of such a window are the lowest and the highest event time in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import Any

import numpy as np

from engine.operators.state.chunk import Chunk
from engine.operators.state.columns import START, Numbers, fitted, renumbered
from engine.operators.state.order import ByKey
from engine.operators.state.time_index import TimeIndex
from engine.operators.windows.gather import gather
from engine.operators.windows.groups import Groups
from engine.operators.windows.layout import WindowLayout
from engine.operators.windows.level import blocks, level_count
from engine.operators.windows.windows import MAX_TRAIN, LiveRows, Send, Windows, take_rows
from storage.train import END_WATERMARK


class CountWindows(Windows):
    def __init__(self, layout: WindowLayout, size: int, advance: int, *, has_timeout: bool = False) -> None:
        super().__init__(layout)
        self.pane = gcd(size, advance)
        self.size = size // self.pane  # in panes
        self.step = advance // self.pane
        self.levels = [
            Groups(layout.accumulators, has_bounds=True) for _ in range(level_count(self.size, layout.is_logged))
        ]
        self._seen = np.zeros(START, np.int64)  # tuples by key
        self._has_timeout = has_timeout
        self._touched: list[Numbers] = []  # keys with a tuple since the last tick
        self._touched_ns = np.zeros(START, np.int64)  # the tick after the last tuple, by key
        self._timers = TimeIndex()  # keys by the time at which their timeout may have passed

    def tables(self) -> list[Groups]:
        return self.levels

    @property
    def nbytes(self) -> int:
        return super().nbytes + self._seen.nbytes + self._touched_ns.nbytes + self._timers.nbytes

    # -- tuples come in ------------------------------------------------------------------------------------------------

    def add(self, batch: LiveRows, send: Send) -> None:
        self._fit()
        by_key = ByKey(batch.keys)
        order, keys, starts = by_key.order, by_key.keys, by_key.starts
        counts = np.diff(starts, append=keys.shape[0])
        distinct = keys.take(starts)
        before = self._seen.take(distinct)
        place = np.arange(keys.shape[0]) + np.repeat(before - starts, counts)
        slots, _ = self.levels[0].locate(place // self.pane, keys)
        columns = [take_rows(v, order) for v in batch.columns]
        times_ns = batch.times_ns.take(order)
        self.levels[0].add(slots, columns, batch.arrival_ns.take(order), times_ns, place)
        self._seen[distinct] = before + counts
        if self._has_timeout:
            self._touched.append(distinct)  # before windows close, which may give keys new numbers
        self._seal(distinct, before, before + counts)
        self._close(distinct, before, before + counts, send)

    def _fit(self) -> None:
        self._seen = fitted(self._seen, self.keys.count, 0)
        self._touched_ns = fitted(self._touched_ns, self.keys.count, 0)

    def _seal(self, keys: Numbers, before: Numbers, after: Numbers) -> None:
        """Add panes that became full to the level above."""
        for height, (level, above) in enumerate(zip(self.levels, self.levels[1:], strict=False)):
            width = self.pane << height
            members, owner = spans(before // width, after // width)
            if not members.shape[0]:
                return
            slots = level.find(members, keys.take(owner))
            parents, _ = above.locate(level.pane.take(slots) >> 1, level.key.take(slots))
            order = np.argsort(parents, kind="stable")
            parents = parents.take(order)
            starts = np.flatnonzero(np.append(True, parents[1:] != parents[:-1]))
            above.merge(parents.take(starts), gather([(level, slots)], order, starts))

    # -- windows close -----------------------------------------------------------------------------------------------

    def _window(self, seen: Numbers) -> Numbers:
        """Return the first window that is not complete after this many tuples of a key."""
        return np.maximum((seen // self.pane - self.size) // self.step + 1, 0)

    def _close(self, keys: Numbers, before: Numbers, after: Numbers, send: Send) -> None:
        windows, owner = spans(self._window(before), self._window(after))
        chunk = max(1, MAX_TRAIN // self.size) if len(self.levels) == 1 else max(1, MAX_TRAIN // 32)
        for start in range(0, windows.shape[0], chunk):
            self._emit(windows[start : start + chunk], keys.take(owner[start : start + chunk]), send)
        if windows.shape[0]:
            self._expire(keys, self._window(before), self._window(after))

    def _emit(self, windows: Numbers, keys: Numbers, send: Send) -> None:
        """Emit complete windows. Windows that begin at the same place within a node of the tree are found together."""
        parts: list[tuple[Groups, Numbers]] = []
        owners: list[Numbers] = []
        found: dict[int, list[tuple[Numbers, Numbers]]] = {}
        first = windows * self.step
        for shape in np.unique(first & ((1 << len(self.levels) - 1) - 1)).tolist():
            alike = np.flatnonzero(first & ((1 << len(self.levels) - 1) - 1) == shape)
            for height, node in blocks(shape, shape + self.size, len(self.levels)):
                nodes = (first.take(alike) - shape >> height) + node
                slots = self.levels[height].find(nodes, keys.take(alike))
                found.setdefault(height, []).append((slots, alike))
        for height, pairs in sorted(found.items()):
            parts.append((self.levels[height], np.concatenate([s for s, _ in pairs])))
            owners.append(np.concatenate([o for _, o in pairs]))
        self._emit_together(parts, np.concatenate(owners), send)

    def _emit_together(self, parts: list[tuple[Groups, Numbers]], owner: Numbers, send: Send) -> None:
        order = np.argsort(owner, kind="stable")
        owner = owner.take(order)
        starts = np.flatnonzero(np.append(True, owner[1:] != owner[:-1]))
        gathered = gather(parts, order, starts)
        self.emit(gathered, gathered.first_ns, gathered.last_ns, gathered.last_ns, send)

    def _expire(self, keys: Numbers, old: Numbers, new: Numbers) -> None:
        """Release the panes that the next window of each key does not need."""
        for height, level in enumerate(self.levels):
            members, owner = spans((old * self.step) >> height, (new * self.step) >> height)
            slots = level.find(members, keys.take(owner)) if members.shape[0] else members
            slots = slots[slots >= 0]
            if slots.shape[0]:
                level.release(slots)
        self._forget(keys[self._seen.take(keys) == new * self.step * self.pane])
        self.forget_much()

    def _forget(self, keys: Numbers) -> None:
        """Forget these keys, of which no tuple is left: their next tuple is their first."""
        self._seen[keys] = 0

    def advance(self, watermark_ns: int, send: Send) -> None:
        """Note the watermark. At the end of time a box with a timeout emits its unfinished windows: it waits no longer.

        Without a timeout an unfinished window has no result, because it was asked for over ``count`` tuples.
        """
        self.closed_ns = max(self.closed_ns, watermark_ns)
        if self._has_timeout and watermark_ns >= END_WATERMARK:
            self._emit_partial(np.flatnonzero(self._seen > 0), send)
        self.forget()

    # -- real time -----------------------------------------------------------------------------------------------------

    def tick(self, now_ns: int, timeout_ns: int, send: Send) -> None:
        """Emit the unfinished windows of keys that got no tuple for the timeout, and forget these keys."""
        for keys in self._touched:
            self._touched_ns[keys] = now_ns
            self._set_timers(np.full(keys.shape[0], now_ns + timeout_ns), keys)
        self._touched.clear()
        due = self._timers.expire(now_ns + 1)
        if due is None:
            return
        keys = np.unique(due.rows)
        keys = keys[self._seen.take(keys) > 0]
        due_ns = self._touched_ns.take(keys) + timeout_ns
        later = due_ns > now_ns
        self._set_timers(due_ns[later], keys[later])
        if not later.all():
            self._emit_partial(keys[~later], send)

    def _set_timers(self, due_ns: Numbers, keys: Numbers) -> None:
        if keys.shape[0]:
            self._timers.insert(Chunk(due_ns, keys))

    def _emit_partial(self, keys: Numbers, send: Send) -> None:
        seen = self._seen.take(keys)
        first = self._window(seen) * self.step
        members, owner = spans(first, -(-seen // self.pane))
        slots = self.levels[0].find(members, keys.take(owner))
        self._emit_together([(self.levels[0], slots)], owner, send)
        for height, level in enumerate(self.levels):
            width = self.pane << height
            members, owner = spans(first >> height, -(-seen // width))
            slots = level.find(members, keys.take(owner))
            level.release(slots[slots >= 0])
        self._forget(keys)
        self.forget_much()

    # -- plain data ----------------------------------------------------------------------------------------------------

    def renumbered(self, remaps: Sequence[Numbers], keys: Numbers | None) -> None:
        if keys is None:
            return
        self._seen = renumbered(self._seen, keys, self.keys.count, 0)
        self._touched_ns = renumbered(self._touched_ns, keys, self.keys.count, 0)
        if self._has_timeout:
            self._touched = [n[n >= 0] for n in (keys.take(t) for t in self._touched)]
            self._timers = TimeIndex()  # the next tick looks at all keys and sets their timers right
            self._set_timers(self._touched_ns[: self.keys.count], np.arange(self.keys.count))

    def snapshot_more(self, numbers: Numbers) -> dict[str, Any]:
        return {"seen": np.append(self._seen, 0).take(np.minimum(numbers, self._seen.shape[0]))}

    def restore_more(self, data: dict[str, Any], slots: Sequence[Numbers], numbers: Numbers) -> None:
        self._fit()
        self._seen[numbers] = data["seen"]
        if self._has_timeout:
            self._touched.append(numbers)


def spans(first: Numbers, end: Numbers) -> tuple[Numbers, Numbers]:
    """Return the numbers ``first`` to ``end`` of each row, one after another, and for each number its row."""
    counts = np.maximum(end - first, 0)
    total = int(counts.sum())
    owner = np.repeat(np.arange(counts.shape[0]), counts)
    return np.repeat(first - np.cumsum(counts) + counts, counts) + np.arange(total), owner
