"""One level of a binary tree over panes: level 0 holds the panes, a node of level l holds 2**l panes.

A node is **sealed** when no more tuples are expected in it; it is then added to its parent. A tuple may still come for
a sealed node, because its last window is open: it is then added to every level that has taken up the node already. So a
window of n panes is put together from at most 2 log2(n) nodes (``blocks``), and a group is added to each level once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush

import numpy as np

from engine.operators.state.columns import Numbers, fitted
from engine.operators.state.distinct import distinct_rows
from engine.operators.state.keys import KeyTable
from engine.operators.windows.accumulators import Accumulator
from engine.operators.windows.groups import NO_PANE, Groups

_TABLE_KEYS = 65_536
_NOTHING: Numbers = np.empty(0, np.int64)

TREE_PANES = 8
"""Windows of up to this many panes are put together pane by pane."""


def level_count(panes: int, flat: bool) -> int:
    """Return how many levels pay for windows of this many panes.

    ``flat`` asks for one level: a tree would only make copies of logs of values.
    """
    return 1 if panes <= TREE_PANES or flat else panes.bit_length()


def blocks(start: int, end: int, levels: int) -> Iterator[tuple[int, int]]:
    """Yield the panes ``start`` to ``end`` as the fewest nodes (level, number), in order."""
    while start < end:
        level = min(levels - 1, (start & -start).bit_length() - 1) if start else levels - 1
        while (1 << level) > end - start:
            level -= 1
        yield level, start >> level
        start += 1 << level


class PaneLevel:
    """The groups of one level, and the slots of each pane (node). Owned by the worker that runs the box."""

    def __init__(self, accumulators: Sequence[Accumulator], keys: KeyTable) -> None:
        self.groups = Groups(accumulators)
        self.members: dict[int, list[Numbers]] = {}
        self.sealed = -(2**63)  # nodes below this number are in the level above
        self._keys = keys
        self._table, self._table_pane = _NOTHING, NO_PANE  # slots by key, in the pane of the last train
        self._table_rows = 0  # rows of this pane so far
        self._to_seal: list[int] = []  # heaps of node numbers
        self._to_expire: list[int] = []

    @property
    def nbytes(self) -> int:
        """Bytes beside the groups: the table by key, and a number for each slot under its pane."""
        return self._table.nbytes + 8 * self.groups.live

    def locate(self, panes: Numbers, keys: Numbers) -> Numbers:
        """Return the slot of each row's group, made where there was none."""
        if panes.shape[0] == 1 and self._table_pays(int(panes[0]), keys.shape[0]):
            return self._locate_by_table(panes, keys)
        slots, fresh = self.groups.locate(panes, keys)
        if fresh.shape[0]:
            self.enroll(fresh)
        return slots

    def _table_pays(self, pane: int, rows: int) -> bool:
        """Tell whether to find slots in a table by key, which is faster than the index for train after train.

        It pays when the keys are few, or when the pane has had enough rows to pay for a table of that size.
        """
        if pane != self._table_pane:
            self._table, self._table_pane, self._table_rows = _NOTHING, pane, 0
        self._table_rows += rows
        return self._keys.count <= max(_TABLE_KEYS, 4 * self._table_rows)

    def _locate_by_table(self, panes: Numbers, keys: Numbers) -> Numbers:
        self._table = fitted(self._table, self._keys.count, -1)
        slots = self._table.take(keys)
        if slots.min() < 0:
            wanted = keys[slots < 0]
            wanted = wanted.take(distinct_rows((wanted,))[0])
            self._table[wanted], fresh = self.groups.locate(panes, wanted)
            slots = self._table.take(keys)
            if fresh.shape[0]:
                self.enroll(fresh)
        return slots

    def _forget_table(self) -> None:
        self._table, self._table_pane = _NOTHING, NO_PANE

    def enroll(self, fresh: Numbers) -> None:
        """Enter new slots under their panes."""
        panes = self.groups.pane.take(fresh)
        if panes[0] == panes[-1] and (panes == panes[0]).all():
            self._enroll_pane(int(panes[0]), fresh)
            return
        order = np.argsort(panes, kind="stable")
        panes, fresh = panes.take(order), fresh.take(order)
        starts = np.flatnonzero(np.append(True, panes[1:] != panes[:-1]))
        for pane, part in zip(panes.take(starts).tolist(), np.split(fresh, starts[1:]), strict=True):
            self._enroll_pane(pane, part)

    def _enroll_pane(self, pane: int, slots: Numbers) -> None:
        if pane in self.members:
            self.members[pane].append(slots)
            return
        self.members[pane] = [slots]
        if pane >= self.sealed:  # a tuple for a sealed node is added to the levels above by the caller
            heappush(self._to_seal, pane)
        heappush(self._to_expire, pane)

    def slots_of(self, pane: int) -> Numbers | None:
        parts = self.members.get(pane)
        if parts is None:
            return None
        if len(parts) > 1:
            parts[:] = [np.concatenate(parts)]
        return parts[0]

    def seal(self, until: int) -> list[Numbers]:
        """Seal the nodes below ``until``; return the slots of those that were not sealed yet."""
        found: list[Numbers] = []
        while self._to_seal and self._to_seal[0] < until:
            slots = self.slots_of(heappop(self._to_seal))
            if slots is not None:
                found.append(slots)
        self.sealed = max(self.sealed, until)
        return found

    def expire(self, until: int) -> list[tuple[int, Numbers]]:
        """Take out the nodes below ``until``; return them in order, with their slots."""
        found: list[tuple[int, Numbers]] = []
        while self._to_expire and self._to_expire[0] < until:
            pane = heappop(self._to_expire)
            slots = self.slots_of(pane)
            assert slots is not None
            del self.members[pane]
            if pane == self._table_pane:
                self._forget_table()
            found.append((pane, slots))
        return found

    @property
    def first_pane(self) -> int | None:
        return self._to_expire[0] if self._to_expire else None

    def renumbered(self, remap: Numbers) -> None:
        """Take up the new slots, given by the old."""
        self._forget_table()
        for parts in self.members.values():
            parts[:] = [remap.take(p) for p in parts]
