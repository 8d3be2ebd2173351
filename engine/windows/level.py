"""One level of a tree over panes: level 0 holds the panes, a node of level l the 2**l panes below it.

A node is *sealed* when no tuple below it is expected any more: it is then added to its parent. A tuple that comes later
after all (its last window is still open) goes to every level that has taken it up already. So a window of n panes is
put together from at most 2 log2(n) nodes (``blocks``), and a group is added to each level once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush

import numpy as np

from engine.windows.accumulators import Accumulator
from engine.windows.distinct import distinct_rows
from engine.windows.groups import NO_PANE, Groups
from engine.windows.keys import Keys
from engine.windows.numbers import Numbers

_NEAR_KEYS = 65_536
_NOTHING: Numbers = np.empty(0, np.int64)

TREE_PANES = 8
"""Up to here the panes of a window are put together one by one."""


def level_count(panes: int, flat: bool) -> int:
    """How many levels pay for windows of so many panes. ``flat``: one; for logs of values, of which a tree would only
    make copies."""
    return 1 if panes <= TREE_PANES or flat else panes.bit_length()


def blocks(start: int, end: int, levels: int) -> Iterator[tuple[int, int]]:
    """The panes ``start`` to ``end`` as the fewest nodes (level, number), in order."""
    while start < end:
        level = min(levels - 1, (start & -start).bit_length() - 1) if start else levels - 1
        while (1 << level) > end - start:
            level -= 1
        yield level, start >> level
        start += 1 << level


class Level:
    """Groups and, for each pane (node), their slots. Owned by the worker that runs the box."""

    def __init__(self, accumulators: Sequence[Accumulator], keys: Keys) -> None:
        self.groups = Groups(accumulators)
        self.members: dict[int, list[Numbers]] = {}
        self.sealed = -(2**63)  # nodes below this number are in the level above already
        self._keys = keys
        self._near, self._near_pane = _NOTHING, NO_PANE  # slots by key in the pane last seen
        self._near_rows = 0  # that this pane has had since
        self._to_seal: list[int] = []  # heaps of node numbers
        self._to_expire: list[int] = []

    def locate(self, panes: Numbers, keys: Numbers) -> Numbers:
        """The slot of each row's group."""
        if panes.shape[0] == 1 and self._near_pays(int(panes[0]), keys.shape[0]):
            return self._locate_near(panes, keys)
        slots, fresh = self.groups.locate(panes, keys)
        if fresh.shape[0]:
            self.enroll(fresh)
        return slots

    def _near_pays(self, pane: int, rows: int) -> bool:
        """In a pane that gets train after train a table by key is faster than the index. It is made when the keys are
        few, or when the pane has had so many rows that its size is paid for."""
        if pane != self._near_pane:
            self._near, self._near_pane, self._near_rows = _NOTHING, pane, 0
        self._near_rows += rows
        return self._keys.size <= max(_NEAR_KEYS, 4 * self._near_rows)

    def _locate_near(self, panes: Numbers, keys: Numbers) -> Numbers:
        if self._near.shape[0] < self._keys.size:
            self._near = np.full(self._keys.size, -1)
        slots = self._near.take(keys)
        if slots.min() < 0:
            wanted = keys[slots < 0]
            wanted = wanted.take(distinct_rows((wanted,))[0])
            self._near[wanted], fresh = self.groups.locate(panes, wanted)
            slots = self._near.take(keys)
            if fresh.shape[0]:
                self.enroll(fresh)
        return slots

    def _forget_near(self) -> None:
        self._near, self._near_pane = _NOTHING, NO_PANE

    def enroll(self, fresh: Numbers) -> None:
        self._keys.retain(self.groups.key.take(fresh))
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
        if pane >= self.sealed:  # who adds to a sealed node adds to those above it too
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
        """The slots of the nodes below ``until`` that were not sealed yet."""
        found: list[Numbers] = []
        while self._to_seal and self._to_seal[0] < until:
            slots = self.slots_of(heappop(self._to_seal))
            if slots is not None:
                found.append(slots)
        self.sealed = max(self.sealed, until)
        return found

    def expire(self, until: int) -> list[tuple[int, Numbers]]:
        """Take out the nodes below ``until``, in order."""
        found: list[tuple[int, Numbers]] = []
        while self._to_expire and self._to_expire[0] < until:
            pane = heappop(self._to_expire)
            slots = self.slots_of(pane)
            assert slots is not None
            del self.members[pane]
            if pane == self._near_pane:
                self._forget_near()
            found.append((pane, slots))
        return found

    @property
    def first_pane(self) -> int | None:
        return self._to_expire[0] if self._to_expire else None

    def renumbered(self, remap: Numbers) -> None:
        self._forget_near()
        for parts in self.members.values():
            parts[:] = [remap.take(p) for p in parts]
