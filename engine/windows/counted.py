"""Windows by count: the last ``size`` tuples of a key, every ``advance`` of them.

A key's tuples are numbered as they arrive; a pane is a stretch of that sequence, and panes go into the same tree as
those of sliding windows. A window closes with its last tuple, whatever the watermark. What is not full yet stays: a
key is forgotten only when its windows are complete (``advance`` equal to ``size``) or by ``timeout``, which emits
what there is.

The bounds of such a window are the least and the greatest event time in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import Any

import numpy as np

from engine.windows.gather import gather
from engine.windows.groups import Groups
from engine.windows.level import blocks, level_count
from engine.windows.numbers import Numbers, grown
from engine.windows.plan import Plan
from engine.windows.runs import Timers
from engine.windows.windows import MAX_TRAIN, Batch, Send, Windows, take_rows


class CountWindows(Windows):
    def __init__(self, plan: Plan, size: int, advance: int, *, quiet: bool = False) -> None:
        super().__init__(plan)
        self.pane = gcd(size, advance)
        self.size = size // self.pane  # in panes
        self.step = advance // self.pane
        self.levels = [Groups(plan.accumulators) for _ in range(level_count(self.size, plan.is_logged))]
        self._seen = np.zeros(1, np.int64)  # tuples by key
        self._quiet = quiet
        self._touched: list[Numbers] = []  # keys since the last tick
        self._touched_ns = np.zeros(1, np.int64)
        self._timers = Timers()

    def tables(self) -> list[Groups]:
        return self.levels

    @property
    def nbytes(self) -> int:
        return super().nbytes + self._seen.nbytes + self._touched_ns.nbytes + self._timers.nbytes

    # -- tuples in ---------------------------------------------------------------------------------------------------

    def add(self, batch: Batch, send: Send) -> None:
        self._fit()
        order = np.argsort(batch.keys, kind="stable")
        keys = batch.keys.take(order)
        starts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
        counts = np.diff(starts, append=keys.shape[0])
        distinct = keys.take(starts)
        before = self._seen.take(distinct)
        place = np.arange(keys.shape[0]) + np.repeat(before - starts, counts)
        slots, fresh = self.levels[0].locate(place // self.pane, keys)
        self.keys.retain(self.levels[0].key.take(fresh))
        columns = [take_rows(v, order) for v in batch.columns]
        times_ns = batch.times_ns.take(order)
        self.levels[0].add(slots, columns, batch.arrival_ns.take(order), times_ns, place)
        self._seen[distinct] = before + counts
        self._seal(distinct, before, before + counts)
        self._close(distinct, before, before + counts, send)
        if self._quiet:
            self._touched.append(distinct)

    def _fit(self) -> None:
        if self._seen.shape[0] < self.keys.size:
            self._seen = grown(self._seen, self.keys.size, 0)
            self._touched_ns = grown(self._touched_ns, self.keys.size, 0)

    def _seal(self, keys: Numbers, before: Numbers, after: Numbers) -> None:
        """Panes that became full go into the tree."""
        for height, (level, above) in enumerate(zip(self.levels, self.levels[1:], strict=False)):
            width = self.pane << height
            members, owner = spans(before // width, after // width)
            if not members.shape[0]:
                return
            slots = level.find(members, keys.take(owner))
            parents, fresh = above.locate(level.pane.take(slots) >> 1, level.key.take(slots))
            self.keys.retain(above.key.take(fresh))
            order = np.argsort(parents, kind="stable")
            parents = parents.take(order)
            starts = np.flatnonzero(np.append(True, parents[1:] != parents[:-1]))
            above.merge(parents.take(starts), gather([(level, slots)], order, starts))

    # -- windows out -------------------------------------------------------------------------------------------------

    def _window(self, seen: Numbers) -> Numbers:
        """The first window that is not complete after so many tuples."""
        return np.maximum((seen // self.pane - self.size) // self.step + 1, 0)

    def _close(self, keys: Numbers, before: Numbers, after: Numbers, send: Send) -> None:
        windows, owner = spans(self._window(before), self._window(after))
        chunk = max(1, MAX_TRAIN // self.size) if len(self.levels) == 1 else MAX_TRAIN // 32
        for start in range(0, windows.shape[0], chunk):
            self._emit(windows[start : start + chunk], keys.take(owner[start : start + chunk]), send)
        if windows.shape[0]:
            self._expire(keys, self._window(before), self._window(after))

    def _emit(self, windows: Numbers, keys: Numbers, send: Send) -> None:
        """Complete windows. Those that lie alike on the tree are found together."""
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
        """Release what the next window of each key does not need."""
        for height, level in enumerate(self.levels):
            members, owner = spans((old * self.step) >> height, (new * self.step) >> height)
            slots = level.find(members, keys.take(owner)) if members.shape[0] else members
            slots = slots[slots >= 0]
            if slots.shape[0]:
                self.release(level, slots)
        self._forget(keys[self._seen.take(keys) == new * self.step * self.pane])
        self.forget_much()

    def _forget(self, keys: Numbers) -> None:
        """Nothing is left of these keys: their next tuple is their first."""
        self._seen[keys] = 0

    def advance(self, watermark_ns: int, send: Send) -> None:
        self.closed_ns = max(self.closed_ns, watermark_ns)
        self.forget()

    # -- real time -----------------------------------------------------------------------------------------------------

    def tick(self, now_ns: int, timeout_ns: int, send: Send) -> None:
        """Emit what keys have that got no tuple for so long, and forget them."""
        for keys in self._touched:
            self._touched_ns[keys] = now_ns
            self._timers.set(np.full(keys.shape[0], now_ns + timeout_ns), keys)
        self._touched.clear()
        keys = np.unique(self._timers.due(now_ns))
        keys = keys[self._seen.take(keys) > 0]
        due_ns = self._touched_ns.take(keys) + timeout_ns
        later = due_ns > now_ns
        self._timers.set(due_ns[later], keys[later])
        if not later.all():
            self._emit_partial(keys[~later], send)

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
            self.release(level, slots[slots >= 0])
        self._forget(keys)
        self.forget_much()

    # -- plain data ----------------------------------------------------------------------------------------------------

    def renumbered(self, remaps: Sequence[Numbers], keys: Numbers | None) -> None:
        if keys is None:
            return
        known = np.flatnonzero(keys[: self._seen.shape[0]] >= 0)
        moved = keys.take(known)
        seen, touched_ns = self._seen.take(known), self._touched_ns.take(known)
        self._seen, self._touched_ns = np.zeros((2, self.keys.size), np.int64)
        self._seen[moved] = seen
        self._touched_ns[moved] = touched_ns
        self._timers = Timers()
        if self._quiet:
            self._touched = [n[n >= 0] for n in (keys.take(t) for t in self._touched)]
            self._timers.set(touched_ns, moved)  # looked at by the next tick, which sets them right

    def snapshot_more(self, numbers: Numbers) -> dict[str, Any]:
        return {"seen": np.append(self._seen, 0).take(np.minimum(numbers, self._seen.shape[0]))}

    def restore_more(self, data: dict[str, Any], slots: Sequence[Numbers], numbers: Numbers) -> None:
        self._fit()
        self._seen[numbers] = data["seen"]
        for groups, mine in zip(self.levels, slots, strict=True):
            self.keys.retain(groups.key.take(mine))
        if self._quiet:
            self._touched.append(numbers)


def spans(first: Numbers, end: Numbers) -> tuple[Numbers, Numbers]:
    """The numbers ``first`` to ``end`` of each row one after another, and for each number its row."""
    counts = np.maximum(end - first, 0)
    total = int(counts.sum())
    owner = np.repeat(np.arange(counts.shape[0]), counts)
    return np.repeat(first - np.cumsum(counts) + counts, counts) + np.arange(total), owner
