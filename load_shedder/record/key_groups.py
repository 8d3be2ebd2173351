"""Key groups: the keys of windows, in ``KEY_GROUPS`` groups by their hash, so that windows can be dropped key by key.

A window of a box with keys is apart from the windows of all other keys. So it is enough to drop whole windows of *some*
keys: every result is exact, no stretch of time is silent for all keys, and the work that is left is even. Dropping
whole stretches of time instead makes bursts: a stretch that is kept brings its full load, and its results are late.

This holds on an arc where every windowed box behind it has the fields of the key, with the values that they have on the
arc. A box that moves tuples in time, or compares tuples of several keys, must not lie in between.

``KeyedLosses`` is the record of what is missing, by group: a window lacks something when a tuple of its group does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from catalog.network import Arc, Network
from storage.train import Train

KEY_GROUPS = 256
CELLS_AT_MOST = 2_048

Times = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Groups = npt.NDArray[np.intp]
"""The key group of each tuple, or of each window."""

HashKeys = Callable[[Train, Sequence[str]], Groups]
"""Return the key group of each tuple, by these fields. Equal values have equal groups, in every train and at every
start."""
GroupsOfFields = Callable[[Sequence[str]], Groups]
"""Return the key group of each of some windows, by these fields of their keys."""

_NEVER, _EVER = np.iinfo(np.int64).max, np.iinfo(np.int64).min


def key_fields(network: Network, arc: Arc, boxes: Collection[int]) -> tuple[str, ...]:
    """Return the fields by which tuples on this arc can be dropped key by key; empty: windows go for all keys at once.

    ``boxes`` are the windowed boxes behind the arc."""
    keys = [set(network.boxes[b].box.window_keys()) for b in boxes]
    if not keys:
        return ()
    common = set.intersection(*keys)
    return tuple(sorted(f for f in common if f in arc.schema and _arrives(network, arc, f, boxes)))


def _arrives(network: Network, arc: Arc, field: str, boxes: Collection[int]) -> bool:
    """Return whether the field comes unchanged to each of these boxes, and no box is behind another one."""
    due, seen = [arc.number], set[int]()
    while due:
        at = network.arcs[due.pop()]
        if at.box is None or at.box in seen:
            continue
        if field not in at.schema or at.schema[field].type != arc.schema[field].type:
            return False
        node = network.boxes[at.box]
        after = [a for arcs in node.out_arcs for a in arcs]
        if at.box in boxes:
            if any(_leads_to(network, a, boxes) for a in after):
                return False
        elif _leads_to(network, at.number, boxes):
            if not node.box.keeps(field) or node.box.reach_ns() != (0, 0):
                return False
            due += after
        seen.add(at.box)
    return True


def _leads_to(network: Network, arc: int, boxes: Collection[int]) -> bool:
    due, seen = [network.arcs[arc].box], set[int]()
    while due:
        box = due.pop()
        if box is None or box in seen:
            continue
        if box in boxes:
            return True
        seen.add(box)
        due += [network.arcs[a].box for arcs in network.boxes[box].out_arcs for a in arcs]
    return False


class KeyedLosses:
    """The least and the greatest time dropped, by cell of time and key group. The owner holds a lock."""

    def __init__(self, cell_ns: int) -> None:
        self.cell_ns = max(1, cell_ns)
        self._cells: dict[int, tuple[Times, Times]] = {}
        self._stacked: tuple[Times, Times] | None = None

    @property
    def is_empty(self) -> bool:
        return not self._cells

    def add(self, times_ns: Times, groups: Groups) -> None:
        """Note these dropped tuples."""
        self._stacked = None
        cells = times_ns // self.cell_ns
        for cell in np.unique(cells).tolist():
            inside = cells == cell
            lows, highs = self._cell(cell)
            np.minimum.at(lows, groups[inside], times_ns[inside])
            np.maximum.at(highs, groups[inside], times_ns[inside])
        while len(self._cells) > CELLS_AT_MOST:
            self._coarsen()

    def _cell(self, cell: int) -> tuple[Times, Times]:
        if cell not in self._cells:
            self._cells[cell] = np.full(KEY_GROUPS, _NEVER, np.int64), np.full(KEY_GROUPS, _EVER, np.int64)
        return self._cells[cell]

    def _coarsen(self) -> None:
        cells, self._cells = self._cells, {}
        self.cell_ns *= 2
        for cell, (lows, highs) in cells.items():
            wider = self._cell(cell // 2)
            np.minimum(wider[0], lows, out=wider[0])
            np.maximum(wider[1], highs, out=wider[1])

    def spoiled(self, start_ns: Times, end_ns: Times, groups: Groups | None) -> Flags:
        """Return, for each stretch of time (end excluded), whether a tuple of its group may be missing in it. Without
        groups: a tuple of any group."""
        found = np.zeros(start_ns.shape[0], np.bool_)
        if not self._cells:
            return found
        if self._stacked is None:
            lows, highs = zip(*self._cells.values(), strict=True)
            self._stacked = np.stack(lows), np.stack(highs)
        low, high = self._stacked
        pairs, where = np.unique(np.stack([start_ns, end_ns]), axis=1, return_inverse=True)
        where = where.reshape(-1)
        for i, (start, end) in enumerate(pairs.T.tolist()):
            lacks = ((low < end) & (high >= start)).any(axis=0)
            mine = where == i
            found[mine] = lacks.any() if groups is None else lacks.take(groups[mine])
        return found

    def forget(self, below_ns: int) -> None:
        old = [cell for cell, (_, highs) in self._cells.items() if int(highs.max()) < below_ns]
        for cell in old:
            del self._cells[cell]
        if old:
            self._stacked = None

    def snapshot(self) -> dict[str, Any]:
        found = []
        for cell, (lows, highs) in self._cells.items():
            groups = np.flatnonzero(lows != _NEVER)
            found.append([cell, groups.tolist(), lows[groups].tolist(), highs[groups].tolist()])
        return {"cell_ns": self.cell_ns, "cells": found}

    def restore(self, data: Mapping[str, Any]) -> None:
        self._stacked = None
        self.cell_ns = int(data["cell_ns"])
        for cell, groups, low_ns, high_ns in data["cells"]:
            lows, highs = self._cell(int(cell))
            lows[groups], highs[groups] = low_ns, high_ns
