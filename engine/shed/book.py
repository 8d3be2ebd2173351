"""Who must know what is missing: for each arc the windows behind it, for each windowed box the arcs before it.

A window is made of the tuples of a stretch of event time. What was dropped on an arc above concerns it when it lies in
that stretch, widened by how far the boxes in between move things in time (``Box.reach_ns``). A box that needs whole
windows holds back those that lack something. A box that tells its share counts: what it saw over what it would have
seen. Where only boxes that keep every row lie between the drop and the box, that is exact; behind a filter, of what was
dropped such a part counts as the filter let through of what was kept in the same pane.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np
import numpy.typing as npt

from catalog.network import BoxNode, Network
from load_shedder.drop import Grid
from storage.losses import ArcLosses, PaneGrid
from storage.train import NO_WATERMARK

Times = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

FINEST_CELL = 64
"""Cells of the book are at most so many a window: finer ones would tell windows apart that nobody offsets so."""


@dataclass(frozen=True, slots=True)
class Way:
    """From an arc to a windowed box: how far things move in time, and what may get lost."""

    arc: int
    back_ns: int
    ahead_ns: int
    keeps_rows: bool
    path: tuple[tuple[int, int], ...]  # (box, port) in between, of one way

    def before(self, node: BoxNode, arc: int, port: int) -> Way:
        back_ns, ahead_ns = node.box.reach_ns()
        return Way(
            arc,
            min(self.back_ns + back_ns, 2**62),
            min(self.ahead_ns + ahead_ns, 2**62),
            self.keeps_rows and node.box.keeps_rows,
            ((node.number, port), *self.path),
        )

    def joined(self, other: Way) -> Way:
        """As far as either of two ways."""
        return Way(
            self.arc,
            max(self.back_ns, other.back_ns),
            max(self.ahead_ns, other.ahead_ns),
            self.keeps_rows and other.keeps_rows,
            self.path,
        )


class LossBook:
    """``arcs`` has those on which something was dropped, or may be; an entry once made stays."""

    def __init__(self, network: Network, passed: Callable[[int, int], float]) -> None:
        """``passed`` gives the share of its input that a box has emitted by a port so far."""
        self.network = network
        self.passed = passed
        self.arcs: dict[int, ArcLosses] = {}
        self._behind = _windows_behind(network)
        self.boxes = {b: BoxLosses(self, network.boxes[b]) for b in sorted({b for s in self._behind for b in s})}

    def grids(self, arc: int) -> list[Grid]:
        """Of the boxes behind the arc that need whole windows."""
        return [g for b in sorted(self._behind[arc]) if not (view := self.boxes[b]).tells and (g := view.grid)]

    def of_arc(self, arc: int) -> ArcLosses | None:
        """Where to note what is dropped on this arc; None when no windowed box lies behind it."""
        if arc not in self.arcs and self._behind[arc]:
            tells: list[PaneGrid] = [v.pane for b in self._behind[arc] if (v := self.boxes[b]).tells]
            grids = self.grids(arc)
            step_ns = min([g.step_ns for g in grids], default=1)
            common = gcd(*[n for g in grids for n in (g.step_ns, g.size_ns, g.offset_ns)]) if grids else 1
            self.arcs[arc] = ArcLosses(max(common, step_ns // FINEST_CELL, 1), bool(grids), set(tells))
        return self.arcs.get(arc)

    def forget(self, closed_ns: Callable[[int], int]) -> None:
        """What no window that is open can reach; ``closed_ns`` says below which time a box has let out its windows."""
        for arc, losses in list(self.arcs.items()):
            losses.forget(min(self.boxes[b].needs_from_ns(arc, closed_ns(b)) for b in self._behind[arc]))

    def snapshot(self) -> dict[str, Any]:
        return {self.network.arcs[a].name: losses.snapshot() for a, losses in self.arcs.items()}

    def restore(self, data: Mapping[str, Any]) -> None:
        for arc in self.network.arcs:
            if arc.name in data and (losses := self.of_arc(arc.number)) is not None:
                losses.restore(data[arc.name])


class BoxLosses:
    """What one windowed box asks. Read by the worker that runs it."""

    def __init__(self, book: LossBook, node: BoxNode) -> None:
        self._book = book
        step_ns, size_ns, offset_ns = node.box.windows_ns() or (1, 1, 0)
        self.grid = Grid(step_ns, size_ns, offset_ns)
        self.pane: PaneGrid = (gcd(step_ns, size_ns), offset_ns)
        self.tells = node.box.under_loss() == "approximate"
        self.withheld = 0  # results that lacked something
        # The nearest arcs first: what was dropped further up would have met the drops further down.
        ways = sorted(_ways(book.network, node).values(), key=lambda w: -_depth(book.network, w.arc))
        self._ways = {way.arc: way for way in ways}

    @property
    def any(self) -> bool:
        """Whether anything was ever dropped before any window."""
        return bool(self._book.arcs)

    def needs_from_ns(self, arc: int, closed_ns: int) -> int:
        if closed_ns == NO_WATERMARK:
            return NO_WATERMARK
        return max(NO_WATERMARK, closed_ns - 2 * self.grid.size_ns - self._ways[arc].back_ns)

    def spoiled(self, start_ns: Times, end_ns: Times) -> Flags | None:
        """Which of these windows lack something; None: none of them."""
        found: Flags | None = None
        for arc, losses in list(self._book.arcs.items()):
            way = self._ways.get(arc)
            if way is None or losses.is_empty:
                continue
            lows = np.maximum(start_ns, NO_WATERMARK + way.back_ns) - way.back_ns
            highs = np.minimum(end_ns, 2**63 - 1 - way.ahead_ns) + way.ahead_ns
            mine = losses.spoiled(lows, highs)
            found = mine if found is None else found | mine
        return found if found is not None and found.any() else None

    def short_panes(self) -> set[int]:
        """Panes of the box in which anything was dropped on the way."""
        found: set[int] = set()
        for arc in self._ways:
            losses = self._book.arcs.get(arc)
            if losses is not None and (counts := losses.panes.get(self.pane)) is not None:
                found.update(list(counts.dropped))
        return found

    def full(self, pane: int, seen: int) -> float:
        """How many tuples would have come in a pane in which so many did."""
        full = float(seen)
        for arc, way in self._ways.items():
            losses = self._book.arcs.get(arc)
            counts = losses.panes.get(self.pane) if losses is not None else None
            dropped = counts.dropped.get(pane) if counts is not None else None
            if counts is None or not dropped:
                continue
            kept = counts.kept.get(pane, 0)
            if way.keeps_rows:
                full += dropped
            elif kept and counts.first is not None and pane > counts.first:
                full += dropped * full / kept
            else:  # the pane had begun before we counted, or nothing was kept
                full += dropped * float(np.prod([self._book.passed(b, p) for b, p in way.path]))
        return full


def _windows_behind(network: Network) -> list[set[int]]:
    """For each arc, the boxes with windows of event time behind it."""
    behind: list[set[int]] = [set() for _ in network.arcs]
    for node in reversed(network.boxes):
        mine = {b for arcs in node.out_arcs for a in arcs for b in behind[a]}
        if node.box.windows_ns() is not None:
            mine.add(node.number)
        for a in node.in_arcs:
            behind[a] = mine
    return behind


def _ways(network: Network, node: BoxNode) -> dict[int, Way]:
    """Every arc that leads to the box, and how."""
    ways = {a: Way(a, 0, 0, True, ()) for a in node.in_arcs}
    for feeder in reversed(network.boxes[: node.number]):
        leaving = [(a, port) for port, arcs in enumerate(feeder.out_arcs) for a in arcs if a in ways]
        for a in feeder.in_arcs:
            for out, port in leaving:
                way = ways[out].before(feeder, a, port)
                ways[a] = way.joined(ways[a]) if a in ways else way
    return ways


def _depth(network: Network, arc: int) -> int:
    source = network.arcs[arc].source.box
    return -1 if source is None else source


def arcs_before(network: Network, boxes: Iterable[int]) -> set[int]:
    """The arcs that lead to any of these boxes."""
    return {a for b in boxes for a in _ways(network, network.boxes[b])}
