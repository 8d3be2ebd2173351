"""Preemption between operators: a segment ends early when a box of higher priority gets tuples (P1 section 3.3).

"Executing O_x implies the pipelined execution of all the operators on E_x unless it is interrupted by a higher priority
operator." Only operators are atomic. A plan runs on a worker and decides nothing, so the scheduler writes into the plan
what the worker has to compare: the priority of each box of the plan, and the highest priority of a box that waits
(``Plan.rival``). Between two steps the worker compares the rival with the next box. If the rival is higher, the
worker puts the tuples back where they are and ends the plan (``engine/run/executable.py``); the scheduler then chooses
anew. Plans that wait on the execution queue end in the same way after their first box.

Priorities rise along a segment: V_x = S_y / (c_x / s_x + C_y), less than V_y = S_y / C_y. So a segment is not
interrupted by what it would have run before.

This works for priorities that do not change with time (HR, HNR). LSF and BSD go by the wait, which is 0 for a tuple
that has just come: a new tuple never interrupts, and these policies choose anew with each plan.

In the simulator such a plan runs operator by operator as well (``engine/simulate/interruptible``).
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop
from typing import TYPE_CHECKING

from scheduler.index import Key, Ranking
from scheduler.plan import Plan

if TYPE_CHECKING:
    from scheduler.facts import Facts
    from scheduler.state import SchedulerState


LONG_NS = 1_000_000
"""While a plan runs that takes longer, every train wakes the scheduler's thread. A wake-up costs 30 us: a shorter plan
is over before it is worth that."""


class Preemptive(Ranking):
    """A ranking that tells running plans of the best box that waits. Its key begins with minus the priority;
    ``priorities`` gives that of all boxes."""

    def __init__(
        self,
        state: SchedulerState,
        key: Callable[[SchedulerState, int, int], tuple[Key, int | None]],
        priorities: Callable[[Facts], list[float]],
    ) -> None:
        self._priorities = priorities
        self._plans: dict[int, Plan] = {}  # dispatched and not finished, by id
        super().__init__(state, key)

    def list(self, box: int) -> None:
        super().list(box)
        self._tell()

    def clock(self, now_ns: int) -> None:
        super().clock(now_ns)
        self._tell()

    def held(self, unit: int) -> None:
        super().held(unit)
        self._tell()

    def _tell(self) -> None:
        """Tell all plans of the best box that waits, for a decision or on the execution queue."""
        if not self._plans:
            return
        heap, stamp = self._heap, self._stamp
        while heap and heap[0][2] != stamp[heap[0][1]]:
            heappop(heap)
        queued = [p for p in self._plans.values() if not p.is_begun]
        waiting = [p.priorities[p.claims[0].box] for p in queued if p.priorities and p.claims]
        best = max(-heap[0][0][0] if heap else 0.0, *waiting, 0.0)
        for plan in self._plans.values():
            plan.rival = best

    def dispatched(self, plan: Plan) -> None:
        rates = self._priorities(self.state.facts)
        plan.priorities = {box: rates[box] for box in plan.boxes}
        self._plans[id(plan)] = plan

    def finished(self, plan: Plan) -> None:
        self._plans.pop(id(plan), None)

    @property
    def may_interrupt(self) -> bool:
        return any(plan.work_ns > LONG_NS and len(plan.boxes) > 1 for plan in self._plans.values())
