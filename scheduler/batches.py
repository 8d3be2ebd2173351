"""Deadlines in batches (P4): tasks of one interval run together, the earliest deadline first.

A task is one tuple for one query; its deadline is its arrival and what the query allows. A basic batch holds the tasks
of an interval phi, whose deadlines count as the same; a scheduling batch is k of them. ``bts`` keeps k; ``ats`` moves
it by the share of deadlines missed, with a proportional and an integral part. With ``drop`` (``bts1``, ``ats1``) the
oldest tasks that cannot make it are thrown away before the batch runs, counted on their arc as expired.

The controller sees the share of deadlines missed by the plans that have ended since it last looked, and not that of all
time: with the latter the printed formula could never raise k.
"""

from __future__ import annotations

from math import floor
from typing import TYPE_CHECKING

from scheduler.index import Key, Ranking
from scheduler.plan import Plan, Step
from scheduler.trains import arrived_before
from scheduler.traversal import expand

if TYPE_CHECKING:
    from scheduler.state import BatchRule, SchedulerState


class Batches(Ranking):
    """Boxes by the deadline of their oldest tuple, and how many deadlines were missed."""

    learns = True

    def __init__(self, state: SchedulerState, adaptive: bool = False) -> None:
        super().__init__(state, deadline_key)
        self.k = state.settings.batch.k
        self.share_missed = 0.0  # SDMR of the last interval
        self._adaptive = adaptive
        self._tasks = 0
        self._missed = 0
        self._since_ns: int | None = None
        self._open: list[tuple[int, int]] = []  # deadline and tuples of what the last plan has claimed
        self._running: dict[int, list[tuple[int, int]]] = {}  # the same, by id of a plan that runs

    def dispatched(self, plan: Plan) -> None:
        self._open = self._running[id(plan)] = []

    def claimed(self, box: int, tuples: int, mean_arrival_ns: int) -> None:
        self._open.append((mean_arrival_ns + self.state.facts.deadline_ns[box], tuples))

    def expired(self, box: int, tuples: int, mean_arrival_ns: int) -> None:
        self._tasks += tuples
        self._missed += tuples

    def finished(self, plan: Plan) -> None:
        for deadline_ns, tuples in self._running.pop(id(plan), ()):
            self._tasks += tuples
            self._missed += tuples * (self.now_ns > deadline_ns)

    def clock(self, now_ns: int) -> None:
        super().clock(now_ns)
        if not self._adaptive:
            return
        rule = self.state.settings.batch
        if self._since_ns is None:
            self._since_ns = now_ns
        elif now_ns - self._since_ns >= rule.interval_ns and self._tasks:
            share = self._missed / self._tasks
            self.k = next_k(self.k, rule, share, self.share_missed)
            self.share_missed = share
            self._tasks = self._missed = 0
            self._since_ns = now_ns


def deadline_key(state: SchedulerState, box: int, now_ns: int) -> tuple[Key, int | None]:
    return state.head_ns(box) + state.facts.deadline_ns[box], None


def next_k(k: int, rule: BatchRule, share_missed: float, share_before: float) -> int:
    """The controller: k = max(1, k - floor(Kp dSDMR + Ki SDMR))."""
    return max(1, k - floor(rule.proportional * (share_missed - share_before) + rule.integral * share_missed))


def tasks_in_time(deadline_ns: int, now_ns: int, step_ns: float, task_ns: float) -> int:
    """S(Q): how many tasks can be done by then."""
    return max(0, floor((deadline_ns - now_ns - step_ns) / max(task_ns, 1e-9)))


def batch_plan(state: SchedulerState, now_ns: int, *, drop: bool) -> Plan | None:
    """The scheduling batch of the earliest deadline."""
    index = state.index
    assert isinstance(index, Batches), "the state does not follow a policy of batches"
    box = index.best()
    if box is None:
        return None
    unit = state.unit_of[box]
    until_ns = state.head_ns(box) + index.k * state.settings.batch.basic_ns
    takes = {
        a: arrived_before(state.arcs[a], until_ns)
        for b in state.unit_boxes[unit]
        if state.waiting[b]
        for a in state.network.boxes[b].in_arcs
    }
    dropped = _overdue(state, box, takes, now_ns) if drop else ()
    for a, tuples in dropped:
        takes[a] -= tuples
    if dropped and not any(takes.values()):
        return Plan((Step(box, 0),), takes, dropped)  # the box still has to hear of the time that passed
    return Plan(expand(state, unit).steps, takes, dropped)


def _overdue(state: SchedulerState, box: int, takes: dict[int, int], now_ns: int) -> tuple[tuple[int, int], ...]:
    """By arc of the box: how many of the oldest tasks of its batch cannot make it."""
    facts = state.facts
    deadline_ns = state.head_ns(box) + facts.deadline_ns[box]
    arcs = [a for a in state.network.boxes[box].in_arcs if takes[a]]
    tasks = sum([takes[a] for a in arcs])
    late = tasks - tasks_in_time(deadline_ns, now_ns, state.settings.batch.step_ns, facts.downstream_ns[box])
    if late <= 0:
        return ()
    # Of several inputs each gives up its share, rounded up: an arc's tuples of one interval are equally old.
    return tuple([(a, min(takes[a], -(-takes[a] * late // tasks))) for a in arcs])
