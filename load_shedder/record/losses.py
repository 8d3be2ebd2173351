"""The tuples missing on one arc, by event time: so that no window is silently wrong.

An arc that drops tuples before a windowed box notes their event times here, before the watermark that closes their
windows can pass. The box asks when it closes a window (``record/book``). For windows that must be whole it is enough to
know *where* something is missing: the least and the greatest dropped time in each cell of time. For windows that state
the share they saw, the tuples dropped and kept are counted in each pane.

Refused: marks that travel with the trains. Every box and every fused chain would have to carry them, even when nothing
is ever dropped.

Bounded: entries that no open window needs are forgotten. If that is not enough, cells become coarser. A window may then
be withheld that lacked nothing, but never the other way round.

Threads: the thread that moves the arc's trains writes, windowed boxes read, the monitor forgets. One lock of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

CELLS_AT_MOST = 8_192
PANES_AT_MOST = 65_536

PaneGrid = tuple[int, int]
"""Length of a pane and offset of the grid, in ns."""


class WindowGrid(NamedTuple):
    """Windows of event time: they begin every ``step_ns``, shifted by ``offset_ns``, and last for ``size_ns``."""

    step_ns: int
    size_ns: int
    offset_ns: int


class PaneCounts:
    """Tuples by pane, since drops began on the arc. A pane at or below ``first`` had begun earlier: its ``kept`` lacks
    the tuples from before."""

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
        """Forget the panes below this one, and the oldest ones beyond the limit."""
        for table in (self.kept, self.dropped):
            gone = [p for p in table if below is not None and p < below]
            if len(table) - len(gone) > PANES_AT_MOST:
                gone = sorted(table)[:-PANES_AT_MOST]
            for pane in gone:
                del table[pane]


class ArcLosses:
    """``spoils``: some box behind the arc needs whole windows. ``grids`` are the panes of boxes that state their
    share."""

    def __init__(self, cell_ns: int, spoils: bool, grids: Iterable[PaneGrid]) -> None:
        self._lock = Lock()
        self.cell_ns = max(1, cell_ns)
        self.spoils = spoils
        self.panes: dict[PaneGrid, PaneCounts] = {grid: PaneCounts() for grid in grids}
        self._cells: dict[int, tuple[int, int]] = {}  # by cell: the least and the greatest time dropped
        self._sorted: tuple[Times, Times] | None = None

    # -- writing ------------------------------------------------------------------------------------------------------

    def note(self, times_ns: Times, dropped: Flags) -> None:
        """Note a train of which these tuples were dropped. With no drops too: the tuples kept are counted as well."""
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
        """Return, for each stretch of time (end excluded), whether a tuple in it may have been dropped."""
        with self._lock:
            if self._sorted is None:
                spans = sorted(self._cells.values())
                self._sorted = (np.array([s[0] for s in spans], np.int64), np.array([s[1] for s in spans], np.int64))
            lows, highs = self._sorted
        if not lows.shape[0]:
            return np.zeros(start_ns.shape[0], np.bool_)
        after = np.searchsorted(
            highs, start_ns, "left"
        )  # the first cell that ends at or after the start of the stretch
        inside: Flags = after < lows.shape[0]
        inside &= lows.take(np.minimum(after, lows.shape[0] - 1)) < end_ns
        return inside

    def forget(self, below_ns: int) -> None:
        """Forget everything below this time: no open window reaches there."""
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
