"""The book of losses: for each arc the windowed boxes behind it, for each windowed box the arcs before it.

A window consists of the tuples in a stretch of event time. Tuples dropped on an arc further up concern the window when
their times lie in that stretch, widened by the distance that the boxes in between move tuples in time
(``Box.reach_ns``). A box that needs whole windows withholds the windows that lack something. A box that states its
share divides the tuples it saw by the tuples it would have seen. That number is exact when only boxes that keep every
row lie between the drop and the box. Behind a filter it is an estimate: of the dropped tuples the same part counts that
the filter let through of the kept tuples in the same pane.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np
import numpy.typing as npt

from catalog.network import BoxNode, Network
from load_shedder.record.error_limits import ErrorLimit, OutputError, find_limits, output_errors
from load_shedder.record.losses import ArcLosses, PaneGrid, WindowGrid
from storage.train import NO_WATERMARK

Times = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

FINEST_CELL = 64
"""The most cells in the step of a window. Finer cells would only separate windows at offsets that no network uses."""


@dataclass(frozen=True, slots=True)
class UpstreamPath:
    """All paths from an arc to a windowed box: how far they move tuples in time, and whether they keep every row."""

    arc: int
    back_ns: int
    ahead_ns: int
    keeps_rows: bool
    boxes: tuple[tuple[int, int], ...]  # (box, port) in between, of one of the paths

    def extended(self, node: BoxNode, arc: int, port: int) -> UpstreamPath:
        """Return the path from ``arc``, which leads through this box and then along this path."""
        back_ns, ahead_ns = node.box.reach_ns()
        return UpstreamPath(
            arc,
            min(self.back_ns + back_ns, 2**62),
            min(self.ahead_ns + ahead_ns, 2**62),
            self.keeps_rows and node.box.keeps_rows,
            ((node.number, port), *self.boxes),
        )

    def joined(self, other: UpstreamPath) -> UpstreamPath:
        """Return the union of two paths from one arc."""
        return UpstreamPath(
            self.arc,
            max(self.back_ns, other.back_ns),
            max(self.ahead_ns, other.ahead_ns),
            self.keeps_rows and other.keeps_rows,
            self.boxes,
        )


class LossBook:
    """``arcs`` holds the arcs with drops, now or earlier, that lead to a windowed box; an entry is never removed."""

    def __init__(self, network: Network, passed: Callable[[int, int], float]) -> None:
        """``passed`` returns the share of its input that a box has emitted by a port so far."""
        self.network = network
        self.passed = passed
        self.arcs: dict[int, ArcLosses] = {}
        self._behind = _windows_behind(network)
        self.boxes = {b: BoxLosses(self, network.boxes[b]) for b in sorted({b for s in self._behind for b in s})}
        self._limits = {b: ErrorLimit(error) for b, error in find_limits(network).items()}
        for b, limit in self._limits.items():
            self.boxes[b].limit = limit

    def grids(self, arc: int) -> list[WindowGrid]:
        """Return the window grids of the boxes behind the arc that need whole windows."""
        return [g for b in sorted(self._behind[arc]) if not (view := self.boxes[b]).states_share and (g := view.grid)]

    def of_arc(self, arc: int) -> ArcLosses | None:
        """Return the record of this arc's losses; None when no windowed box lies behind it."""
        if arc not in self.arcs and self._behind[arc]:
            panes: list[PaneGrid] = [v.pane for b in self._behind[arc] if (v := self.boxes[b]).states_share]
            grids = self.grids(arc)
            step_ns = min([g.step_ns for g in grids], default=1)
            common = gcd(*[n for g in grids for n in (g.step_ns, g.size_ns, g.offset_ns)]) if grids else 1
            self.arcs[arc] = ArcLosses(max(common, step_ns // FINEST_CELL, 1), bool(grids), set(panes))
        return self.arcs.get(arc)

    def forget(self, closed_ns: Callable[[int], int]) -> None:
        """Forget what no open window can reach. ``closed_ns`` returns the time up to which a box has closed windows."""
        for arc, losses in list(self.arcs.items()):
            losses.forget(min(self.boxes[b].needs_from_ns(arc, closed_ns(b)) for b in self._behind[arc]))

    def errors(self) -> dict[int, OutputError]:
        """Return, by output with ``max_error``, the share that it needs and the error that it has."""
        return output_errors(self.network, self._limits)

    def snapshot(self) -> dict[str, Any]:
        return {self.network.arcs[a].name: losses.snapshot() for a, losses in self.arcs.items()}

    def restore(self, data: Mapping[str, Any]) -> None:
        for arc in self.network.arcs:
            if arc.name in data and (losses := self.of_arc(arc.number)) is not None:
                losses.restore(data[arc.name])


class BoxLosses:
    """The book as one windowed box reads it, on the worker that runs the box."""

    def __init__(self, book: LossBook, node: BoxNode) -> None:
        self._book = book
        step_ns, size_ns, offset_ns = node.box.windows_ns() or (1, 1, 0)
        self.grid = WindowGrid(step_ns, size_ns, offset_ns)
        self.pane: PaneGrid = (gcd(step_ns, size_ns), offset_ns)
        self.states_share = node.box.under_loss() == "approximate"
        self.withheld = 0  # results not emitted because they lacked something
        self.limit: ErrorLimit | None = None  # of the error of its results
        # The nearest arcs first: tuples dropped further up would have met the drops further down.
        paths = sorted(_paths(book.network, node).values(), key=lambda path: -_depth(book.network, path.arc))
        self._paths = {path.arc: path for path in paths}

    @property
    def any(self) -> bool:
        """Whether anything was ever dropped before any windowed box."""
        return bool(self._book.arcs)

    def needs_from_ns(self, arc: int, closed_ns: int) -> int:
        """Return the earliest time on the arc that an open window of this box can reach."""
        if closed_ns == NO_WATERMARK:
            return NO_WATERMARK
        return max(NO_WATERMARK, closed_ns - 2 * self.grid.size_ns - self._paths[arc].back_ns)

    def spoiled(self, start_ns: Times, end_ns: Times) -> Flags | None:
        """Return which of these windows lack something; None when none does."""
        found: Flags | None = None
        for arc, losses in list(self._book.arcs.items()):
            path = self._paths.get(arc)
            if path is None or losses.is_empty:
                continue
            lows = np.maximum(start_ns, NO_WATERMARK + path.back_ns) - path.back_ns
            highs = np.minimum(end_ns, 2**63 - 1 - path.ahead_ns) + path.ahead_ns
            mine = losses.spoiled(lows, highs)
            found = mine if found is None else found | mine
        return found if found is not None and found.any() else None

    def short_panes(self) -> set[int]:
        """Return the panes of this box of which tuples were dropped further up."""
        found: set[int] = set()
        for arc in self._paths:
            losses = self._book.arcs.get(arc)
            if losses is not None and (counts := losses.panes.get(self.pane)) is not None:
                found.update(list(counts.dropped))
        return found

    def full(self, pane: int, seen: int) -> float:
        """Return how many tuples the pane would have without drops; ``seen`` arrived."""
        full = float(seen)
        for arc, path in self._paths.items():
            losses = self._book.arcs.get(arc)
            counts = losses.panes.get(self.pane) if losses is not None else None
            dropped = counts.dropped.get(pane) if counts is not None else None
            if counts is None or not dropped:
                continue
            kept = counts.kept.get(pane, 0)
            if path.keeps_rows:
                full += dropped
            elif kept and counts.first is not None and pane > counts.first:
                full += dropped * full / kept
            else:  # the pane began before counting did, or nothing was kept
                full += dropped * float(np.prod([self._book.passed(b, p) for b, p in path.boxes]))
        return full


def _windows_behind(network: Network) -> list[set[int]]:
    """Return, by arc, the boxes with windows of event time behind it."""
    behind: list[set[int]] = [set() for _ in network.arcs]
    for node in reversed(network.boxes):
        mine = {b for arcs in node.out_arcs for a in arcs for b in behind[a]}
        if node.box.windows_ns() is not None:
            mine.add(node.number)
        for a in node.in_arcs:
            behind[a] = mine
    return behind


def _paths(network: Network, node: BoxNode) -> dict[int, UpstreamPath]:
    """Return, by arc that leads to the box, its paths to the box."""
    paths = {a: UpstreamPath(a, 0, 0, True, ()) for a in node.in_arcs}
    for feeder in reversed(network.boxes[: node.number]):
        leaving = [(a, port) for port, arcs in enumerate(feeder.out_arcs) for a in arcs if a in paths]
        for a in feeder.in_arcs:
            for out, port in leaving:
                path = paths[out].extended(feeder, a, port)
                paths[a] = path.joined(paths[a]) if a in paths else path
    return paths


def _depth(network: Network, arc: int) -> int:
    source = network.arcs[arc].source.box
    return -1 if source is None else source
