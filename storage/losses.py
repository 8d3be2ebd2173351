"""What is missing on an arc, by event time: so that no window is wrong without a word.

Whoever drops tuples before a windowed box notes their times here, before the watermark that closes their windows can
pass; the box asks when it closes a window (``engine/shed/book.py``). For windows that must be whole it is enough to
know *where* something is missing: the least and the greatest time dropped in each cell of time. For windows that say
which share they saw, it is counted how many were dropped and how many kept in each pane.

Refused: marks that travel with the trains. Every box and every fused chain would have to carry them, also when nothing
is ever dropped.

Bounded: what no open window needs is forgotten, and if that is not enough, cells become coarser: a window may then be
held back that lacked nothing, but never the other way round.

Threads: the arc's own writes, windows read, the monitor forgets; a lock of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

CELLS_AT_MOST = 8_192
PANES_AT_MOST = 65_536

PaneGrid = tuple[int, int]
"""Length of a pane and offset of the grid, ns."""


class PaneCounts:
    """Tuples by pane, since drops began on the arc. A pane at or below ``first`` had begun before: its ``kept`` lacks
    what came then."""

    __slots__ = ("dropped", "first", "kept")

    def __init__(self) -> None:
        self.kept: dict[int, int] = {}
        self.dropped: dict[int, int] = {}
        self.first: int | None = None

    def add(self, panes: Times, dropped: Flags) -> None:
        if self.first is None:
            self.first = int(panes.max())
        for table, mine in ((self.dropped, panes[dropped]), (self.kept, panes[~dropped])):
            numbers, counts = np.unique(mine, return_counts=True)
            for pane, count in zip(numbers.tolist(), counts.tolist(), strict=True):
                table[pane] = table.get(pane, 0) + count
            if len(table) > 2 * PANES_AT_MOST:
                self.forget(None)

    def forget(self, below: int | None) -> None:
        for table in (self.kept, self.dropped):
            gone = [p for p in table if below is not None and p < below]
            if len(table) - len(gone) > PANES_AT_MOST:
                gone = sorted(table)[:-PANES_AT_MOST]
            for pane in gone:
                del table[pane]


class ArcLosses:
    """``spoils``: a box behind the arc needs whole windows. ``grids`` are the panes of those that tell their share."""

    def __init__(self, cell_ns: int, spoils: bool, grids: Iterable[PaneGrid]) -> None:
        self._lock = Lock()
        self.cell_ns = max(1, cell_ns)
        self.spoils = spoils
        self.panes: dict[PaneGrid, PaneCounts] = {grid: PaneCounts() for grid in grids}
        self._cells: dict[int, tuple[int, int]] = {}  # the least and the greatest time dropped, by cell
        self._sorted: tuple[Times, Times] | None = None

    # -- writing ------------------------------------------------------------------------------------------------------

    def note(self, times_ns: Times, dropped: Flags) -> None:
        """A train passed of which these tuples were dropped (perhaps none: what was kept counts too)."""
        with self._lock:
            for (pane_ns, offset_ns), counts in self.panes.items():
                counts.add((times_ns - offset_ns) // pane_ns, dropped)
            if self.spoils:
                gone = times_ns[dropped]
                if gone.shape[0]:
                    self._spoil(gone)

    def _spoil(self, times_ns: Times) -> None:
        self._sorted = None
        low_ns, high_ns = int(times_ns.min()), int(times_ns.max())
        if low_ns // self.cell_ns == high_ns // self.cell_ns:
            self._widen(low_ns // self.cell_ns, low_ns, high_ns)
        else:
            ordered = np.sort(times_ns)
            cells = ordered // self.cell_ns
            starts = np.flatnonzero(np.append(True, cells[1:] != cells[:-1]))
            lasts = np.append(starts[1:], ordered.shape[0]) - 1
            spans = (cells.take(starts), ordered.take(starts), ordered.take(lasts))
            for cell, low, high in zip(*(a.tolist() for a in spans), strict=True):
                self._widen(cell, low, high)
        while len(self._cells) > CELLS_AT_MOST:
            self._coarsen()

    def _widen(self, cell: int, low_ns: int, high_ns: int) -> None:
        known = self._cells.get(cell)
        self._cells[cell] = (low_ns, high_ns) if known is None else (min(known[0], low_ns), max(known[1], high_ns))

    def _coarsen(self) -> None:
        cells, self._cells = self._cells, {}
        self.cell_ns *= 2
        for low_ns, high_ns in cells.values():
            self._widen(low_ns // self.cell_ns, low_ns, high_ns)

    # -- reading ------------------------------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        return not self._cells

    def spoiled(self, start_ns: Times, end_ns: Times) -> Flags:
        """For each of these stretches of time, its end excluded, whether a tuple of it may have been dropped."""
        with self._lock:
            if self._sorted is None:
                spans = sorted(self._cells.values())
                self._sorted = (np.array([s[0] for s in spans], np.int64), np.array([s[1] for s in spans], np.int64))
            lows, highs = self._sorted
        if not lows.shape[0]:
            return np.zeros(start_ns.shape[0], np.bool_)
        after = np.searchsorted(highs, start_ns, "left")  # the first cell that ends at or after the start
        inside: Flags = after < lows.shape[0]
        inside &= lows.take(np.minimum(after, lows.shape[0] - 1)) < end_ns
        return inside

    def forget(self, below_ns: int) -> None:
        """No open window reaches below this time."""
        with self._lock:
            for (pane_ns, offset_ns), counts in self.panes.items():
                counts.forget((below_ns - offset_ns) // pane_ns)
            old = [cell for cell, (_, high_ns) in self._cells.items() if high_ns < below_ns]
            for cell in old:
                del self._cells[cell]
            if old:
                self._sorted = None

    # -- plain data ---------------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        with self._lock:
            cells = [list(span) for span in self._cells.values()]
            panes = [[*grid, c.first, list(c.kept.items()), list(c.dropped.items())] for grid, c in self.panes.items()]
            return {"cell_ns": self.cell_ns, "cells": cells, "panes": panes}

    def restore(self, data: Mapping[str, Any]) -> None:
        self.cell_ns = max(self.cell_ns, int(data["cell_ns"]))
        for low_ns, high_ns in data["cells"]:
            self._widen(low_ns // self.cell_ns, low_ns, high_ns)
        for pane_ns, offset_ns, first, kept, dropped in data["panes"]:
            counts = self.panes.get((pane_ns, offset_ns))
            if counts is not None:
                counts.first = first
                counts.kept.update((p, n) for p, n in kept)
                counts.dropped.update((p, n) for p, n in dropped)
