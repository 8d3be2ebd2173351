"""The p-tuple on a grid (P0 section 6.2): boxes in buckets, which a calendar queue moves when their time comes.

The range of losses (slopes) is divided into g parts and the range of slacks into s. All boxes of one cell count as
equal and are served in the order in which they entered it. For each box a table, made once from the graphs of its
outputs, lists the latencies at which the box changes its cell. Latency grows by itself as time passes. When a box
enters its cell, the time of its next move is therefore known, and is put into the calendar queue. A step costs only the
boxes that moved.

A cell is a number: steeper losses come first, then shorter slacks. ``_filled`` has a bit for each cell that holds a
box; the box; the lowest set bit is the best cell.

With ``tune: [grid]`` the number of parts tunes itself by the share of missed deadlines (``tuner``).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from math import floor
from typing import TYPE_CHECKING

from scheduler.calendar_queue import CalendarQueue
from scheduler.index import Index, Key
from scheduler.tuner import GRIDS, Climber

if TYPE_CHECKING:
    from scheduler.facts import Urgency
    from scheduler.state import SchedulerState


class BucketTable:
    """The cell of a box by its latency: ``cells[i]`` holds left of ``edges_ns[i]``."""

    __slots__ = ("cells", "edges_ns")

    def __init__(self, edges_ns: list[int], cells: list[int]) -> None:
        self.edges_ns = edges_ns
        self.cells = cells


def make_table(urgency: Urgency, grid: int, steepest: float, longest_ns: float) -> BucketTable:
    """Divide each piece of the graphs into cells. ``steepest`` and ``longest_ns`` are the ends of the two ranges."""
    edges: list[int] = []
    cells: list[int] = []
    left = 0
    for i, loss in enumerate(urgency.losses):
        row = grid - 1 - _part(loss, steepest, grid)  # the steepest in row 0
        if i == len(urgency.edges_ns):
            cells.append(row * grid + grid - 1)  # past the last critical point: the longest slack
            break
        right = urgency.edges_ns[i]
        if right <= left:  # it ends before any tuple can be there
            continue
        for part in range(_part(right - left, longest_ns, grid), 0, -1):
            edges.append(right - floor(part * longest_ns / grid))
            cells.append(row * grid + part)
        edges.append(right)
        cells.append(row * grid)
        left = right
    return BucketTable(edges, cells)


def _part(value: float, most: float, parts: int) -> int:
    """Return the number of the part of [0, most] that holds the value; the parts are equal."""
    return min(parts - 1, int(value / most * parts)) if most > 0 else 0


class Buckets(Index):
    def __init__(self, state: SchedulerState, grid: int) -> None:
        super().__init__(state)
        self.grid = grid
        self._tuner = Climber(GRIDS, grid) if "grid" in state.settings.tune else None
        boxes = len(state.network.boxes)
        self._stamp = [0] * boxes
        self._due_ns = [0] * boxes  # for when the box was put into the calendar queue last
        self._cell = [-1] * boxes  # -1: not listed
        self._members: list[dict[int, None]] = [{} for _ in range(grid * grid)]
        self._filled = 0
        self._moves = CalendarQueue()
        self.refresh()

    def refresh(self) -> None:
        urgency = self.state.facts.urgency
        distinct = {id(u): u for u, _ in urgency}
        steepest = max((max(u.losses) for u in distinct.values()), default=0.0)
        longest_ns = max((_longest_ns(u.edges_ns) for u in distinct.values()), default=0)
        tables = {i: make_table(u, self.grid, steepest, longest_ns) for i, u in distinct.items()}
        self._tables = [tables[id(u)] for u, _ in urgency]
        self._way_ns = [way_ns for _, way_ns in urgency]
        for unit in self.state.ready:
            for box in self.state.unit_live[unit]:
                self.unlist(box)
        super().refresh()

    def missed(self, share: float) -> None:
        if self._tuner is not None and self._tuner.observe(share):
            for unit in self.state.ready:
                for box in self.state.unit_live[unit]:
                    self.unlist(box)
            self.grid = int(self._tuner.value)
            self._members = [{} for _ in range(self.grid * self.grid)]
            self.refresh()

    def list(self, box: int) -> None:
        mean_ns = self.state.mean_arrival_ns(box) - self._way_ns[box]
        table = self._tables[box]
        at = bisect_right(table.edges_ns, self.now_ns - mean_ns)
        cell = table.cells[at]
        if at < len(table.edges_ns):
            self._move_at(box, mean_ns + table.edges_ns[at])
        if cell != self._cell[box]:
            self._leave(box)
            self._cell[box] = cell
            self._members[cell][box] = None
            self._filled |= 1 << cell

    def _move_at(self, box: int, due_ns: int) -> None:
        """Have the box checked again at ``due_ns``, or at the earlier time for which it is in the calendar already.

        A queue that grows moves its due time with every train. One check too many costs less than an entry for each
        train.
        """
        if not self.now_ns < self._due_ns[box] <= due_ns:
            self._due_ns[box] = due_ns
            self._stamp[box] += 1
            self._moves.put(due_ns, box, self._stamp[box])

    def unlist(self, box: int) -> None:
        self._leave(box)
        self._cell[box] = -1

    def _leave(self, box: int) -> None:
        cell = self._cell[box]
        if cell >= 0:
            members = self._members[cell]
            del members[box]
            if not members:
                self._filled &= ~(1 << cell)

    def clock(self, now_ns: int) -> None:
        self.now_ns = now_ns
        for _, box, stamp in self._moves.pop_due(now_ns):
            if stamp == self._stamp[box] and self._cell[box] >= 0:
                self.list(box)

    def best(self) -> int | None:
        """Return the box that has been in the best nonempty cell for longest. Valid only after ``clock``."""
        if not self._filled:
            return None
        cell = (self._filled & -self._filled).bit_length() - 1
        return next(iter(self._members[cell]))

    def urgency(self, box: int) -> Key:
        return self._cell[box]


def _longest_ns(edges_ns: Sequence[int]) -> int:
    """Return the longest slack of a tuple: from its arrival, or from a critical point, to the next critical point."""
    points = [0, *(e for e in edges_ns if e > 0)]
    return max((b - a for a, b in pairwise(points)), default=0)


def buckets(state: SchedulerState) -> Buckets:
    assert isinstance(state.index, Buckets), "the state does not follow a policy that sorts into buckets"
    return state.index
