"""The order that a policy keeps between two decisions: a step then costs the boxes that moved, not all boxes.

A policy is a pure function. The structures that make it fast (heaps, clusters, buckets) belong to the state, behind
``SchedulerState.apply``, and the policy only reads their head. The state calls its index:

- ``changed(box)``: more or fewer tuples wait for the box than before;
- ``held(unit)`` and ``freed(unit)``: the unit's boxes must not, or may again, be chosen;
- ``clock(now_ns)``: the time, before each decision;
- ``refresh()``: the statistics have changed, and with them every priority;
- ``claimed``, ``expired``, ``dispatched`` and ``finished``: the course of plans, for policies that learn from it.

Only boxes for which tuples wait and whose unit is free are *listed*. An entry of a heap is never searched for: an entry
that is no longer valid stays under its old stamp and is dropped when it comes up.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any, ClassVar

from scheduler.plan import Plan

if TYPE_CHECKING:
    from scheduler.state import SchedulerState

Key = Any
"""Any value that compares; the smallest is the most urgent."""


class Index:
    """Tells a subclass which boxes are listed; the subclass orders them."""

    learns: ClassVar[bool] = False  # needs to see every plan: ``claimed``, ``dispatched``, ``finished``

    def __init__(self, state: SchedulerState) -> None:
        self.state = state
        self.now_ns = 0

    # -- called by the state ------------------------------------------------------------------------------------------

    def changed(self, box: int) -> None:
        unit = self.state.unit_of[box]
        if not self.state.held[unit]:
            if box in self.state.unit_live[unit]:
                self.list(box)
            else:
                self.unlist(box)

    def held(self, unit: int) -> None:
        for box in self.state.unit_live[unit]:
            self.unlist(box)

    def freed(self, unit: int) -> None:
        for box in self.state.unit_live[unit]:
            self.list(box)

    def clock(self, now_ns: int) -> None:
        self.now_ns = now_ns

    def refresh(self) -> None:
        """List all boxes anew: their priorities have changed."""
        for unit in self.state.ready:
            self.freed(unit)

    def claimed(self, box: int, tuples: int, first_arrival_ns: int, mean_arrival_ns: int) -> None:
        """Tuples were taken for the plan that was dispatched last."""

    def expired(self, box: int, tuples: int, mean_arrival_ns: int) -> None:
        """Tuples were dropped because they could not be in time."""

    def missed(self, share: float) -> None:
        """The mean share of deadlines that were missed since the last time, ten times a second, if anything tunes
        itself."""

    def dispatched(self, plan: Plan) -> None: ...

    def finished(self, plan: Plan) -> None: ...

    @property
    def may_interrupt(self) -> bool:
        """Whether a plan runs that a new train may end early (``preemption``)."""
        return False

    # -- for subclasses ----------------------------------------------------------------------------------------------

    def list(self, box: int) -> None:
        """The box may be chosen, or its queue has changed."""

    def unlist(self, box: int) -> None:
        """The box must not be chosen any more."""

    def urgency(self, box: int) -> Key:
        """Return a key to compare the boxes of one unit by: the smallest first."""
        return self.state.head_ns(box)


class Ranking(Index):
    """A heap by a key that is valid until the box's queue changes, or until a time that comes with the key.

    ``key(state, box, now_ns)`` returns the key and until when it is valid; None: until the queue changes.
    """

    def __init__(
        self, state: SchedulerState, key: Callable[[SchedulerState, int, int], tuple[Key, int | None]]
    ) -> None:
        super().__init__(state)
        self._key = key
        boxes = len(state.network.boxes)
        self._stamp = [0] * boxes
        self._keys: list[Key] = [None] * boxes  # None: not listed
        self._heap: list[tuple[Key, int, int]] = []  # key, box, stamp
        self._moves: list[tuple[int, int, int]] = []  # when, box, stamp: compute its key anew then
        self._listed = 0
        self.refresh()

    def list(self, box: int) -> None:
        key, until_ns = self._key(self.state, box, self.now_ns)
        before = self._keys[box]
        if key == before:
            return
        self._listed += before is None
        self._keys[box] = key
        stamp = self._stamp[box] = self._stamp[box] + 1
        heappush(self._heap, (key, box, stamp))
        if until_ns is not None:
            heappush(self._moves, (until_ns, box, stamp))

    def unlist(self, box: int) -> None:
        if self._keys[box] is not None:
            self._keys[box] = None
            self._stamp[box] += 1
            self._listed -= 1

    def clock(self, now_ns: int) -> None:
        """Compute the keys anew that are no longer valid, and bring a valid entry to the head."""
        self.now_ns = now_ns
        moves, stamp = self._moves, self._stamp
        while moves and moves[0][0] <= now_ns:
            _, box, mark = heappop(moves)
            if mark == stamp[box]:
                self._keys[box] = None
                self._listed -= 1
                self.list(box)
        heap = self._heap
        while heap and heap[0][2] != stamp[heap[0][1]]:
            heappop(heap)
        if len(heap) > 4 * self._listed + 64 or len(moves) > 4 * self._listed + 64:
            self._compact()

    def refresh(self) -> None:
        for unit in self.state.ready:
            for box in self.state.unit_live[unit]:
                self.unlist(box)
        super().refresh()

    def best(self) -> int | None:
        """Return the most urgent box. Valid only after ``clock``."""
        return self._heap[0][1] if self._heap else None

    def urgency(self, box: int) -> Key:
        return self._keys[box]

    def _compact(self) -> None:
        stamp = self._stamp
        self._heap = [e for e in self._heap if e[2] == stamp[e[1]]]
        self._moves = [e for e in self._moves if e[2] == stamp[e[1]]]
        heapify(self._heap)
        heapify(self._moves)


def ranking(state: SchedulerState) -> Ranking:
    assert isinstance(state.index, Ranking), "the state does not follow a policy that ranks"
    return state.index
