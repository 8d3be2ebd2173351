"""Deadlines in batches (P4): tasks of one interval run together, the earliest deadline first.

A task is one tuple for one query; its deadline is its arrival and what the query allows. A basic batch holds the tasks
of an interval phi, whose deadlines count as the same; a scheduling batch is k of them. ``bts`` keeps k; ``ats`` moves
it by the share of deadlines missed, with a proportional and an integral part. With ``drop`` (``bts1``, ``ats1``) the
oldest tasks that cannot make it are thrown away before the batch runs, counted on their arc as expired.

With ``overdue`` set, tasks whose deadline is over are dropped by every one of them; with ``whole`` a basic batch is not
run before its interval is over. Both are how P4 has it.

The controller sees the share of tasks that were late in the plans that have ended since it last looked. What was
dropped does not count: there was too much to do, and a shorter batch, with more steps for the same tasks, would make it
worse.
With ``total`` it is as P4 has it: the change is that from one execution to the next, SDMR is that of all time, and what
was dropped is missed. Then k is 1 in every overload, as P4 says that it must be. A daemon runs for months, and a share
of all time would hold its first bad hour against it for good.
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


Batch = tuple[int, int, int]
"""When the first task is due, how much later the last one, and how many there are, evenly spaced."""


class Batches(Ranking):
    """Boxes by the deadline of their oldest tuple, and how many deadlines were missed."""

    learns = True

    def __init__(self, state: SchedulerState, adaptive: bool = False) -> None:
        super().__init__(state, batch_key)
        self.k = state.settings.batch.k
        self.share_missed = 0.0  # SDMR of the last interval
        self._adaptive = adaptive
        self._tasks = 0  # since the controller last looked
        self._missed = 0.0
        self._tasks_before = 0  # of all time until then
        self._missed_before = 0.0
        self._since_ns: int | None = None
        self._open: list[Batch] = []  # what the last plan has claimed
        self._running: dict[int, list[Batch]] = {}  # the same, by id of a plan that runs
        self._ended: list[Batch] = []  # of plans that have ended since the clock was last read

    def dispatched(self, plan: Plan) -> None:
        self._open = self._running[id(plan)] = []

    def claimed(self, box: int, tuples: int, first_arrival_ns: int, mean_arrival_ns: int) -> None:
        due_ns = first_arrival_ns + self.state.facts.deadline_ns[box]
        self._open.append((due_ns, 2 * (mean_arrival_ns - first_arrival_ns), tuples))

    def finished(self, plan: Plan) -> None:
        """When that was, only the clock tells, which is read before the next decision."""
        self._ended += self._running.pop(id(plan), ())

    def expired(self, box: int, tuples: int, mean_arrival_ns: int) -> None:
        super().expired(box, tuples, mean_arrival_ns)
        if self.state.settings.batch.total:
            self._tasks += tuples
            self._missed += tuples

    def is_filling(self, box: int) -> bool:
        """Whether the basic batch of a listed box is not to be run yet."""
        filling: bool = self._keys[box][0]
        return filling

    def clock(self, now_ns: int) -> None:
        super().clock(now_ns)
        for batch in self._ended:
            self._tasks += batch[2]
            self._missed += late_tasks(batch, now_ns)
        self._ended.clear()
        if not self._adaptive:
            return
        rule = self.state.settings.batch
        if self._since_ns is None:
            self._since_ns = now_ns
        elif now_ns - self._since_ns >= rule.interval_ns and self._tasks:
            share = self._missed / self._tasks
            self._tasks_before += self._tasks
            self._missed_before += self._missed
            level = self._missed_before / self._tasks_before if rule.total else share
            self.k = next_k(self.k, rule, share - self.share_missed, level)
            self.share_missed = share
            self._tasks, self._missed = 0, 0.0
            self._since_ns = now_ns


def deadline_key(state: SchedulerState, box: int, now_ns: int) -> tuple[Key, int | None]:
    return state.head_ns(box) + state.facts.deadline_ns[box], None


def batch_key(state: SchedulerState, box: int, now_ns: int) -> tuple[Key, int | None]:
    """By deadline; where batches are whole, one that is still being filled comes after all, until it is full."""
    rule, head_ns = state.settings.batch, state.head_ns(box)
    full_ns = head_ns + rule.basic_ns
    if rule.whole and now_ns < full_ns:
        return (True, full_ns), full_ns
    return (False, head_ns + state.facts.deadline_ns[box]), None


def late_tasks(batch: Batch, now_ns: int) -> float:
    """How many tasks of a batch that is done now were due before."""
    due_ns, span_ns, tasks = batch
    return tasks * min(1.0, max(0.0, (now_ns - due_ns) / max(span_ns, 1)))


def next_k(k: int, rule: BatchRule, change: float, share_missed: float) -> int:
    """The controller: k = max(1, k - floor(Kp dSDMR + Ki SDMR)); ``change`` is dSDMR."""
    return max(1, k - floor(rule.proportional * change + rule.integral * share_missed))


def tasks_in_time(deadline_ns: int, now_ns: int, step_ns: float, task_ns: float) -> int:
    """S(Q): how many tasks can be done by then."""
    return max(0, floor((deadline_ns - now_ns - step_ns) / max(task_ns, 1e-9)))


def batch_plan(state: SchedulerState, now_ns: int, *, drop: bool) -> Plan | None:
    """The scheduling batch of the earliest deadline."""
    index = state.index
    assert isinstance(index, Batches), "the state does not follow a policy of batches"
    box = index.best()
    if box is None or index.is_filling(box):
        return None
    rule, unit = state.settings.batch, state.unit_of[box]
    late = overdue_tasks(state, box, now_ns) if rule.overdue else {}
    head_ns = head_after(state, box, late) if late else state.head_ns(box)
    if head_ns is None:
        return Plan((Step(box, 0),), {}, tuple(late.items()))
    until_ns = head_ns + index.k * rule.basic_ns
    takes = {
        a: arrived_before(state.arcs[a], until_ns) - late.get(a, 0)
        for b in state.unit_boxes[unit]
        if state.waiting[b]
        for a in state.network.boxes[b].in_arcs
    }
    if drop:
        for a, tuples in _too_many(state, box, takes, head_ns, now_ns):
            takes[a] -= tuples
            late[a] = late.get(a, 0) + tuples
    dropped = tuple(late.items())
    if dropped and not any(takes.values()):
        return Plan((Step(box, 0),), takes, dropped)  # the box still has to hear of the time that passed
    return Plan(expand(state, unit).steps, takes, dropped)


def overdue_tasks(state: SchedulerState, box: int, now_ns: int) -> dict[int, int]:
    """By arc of the box: the tasks whose deadline is over."""
    before_ns = now_ns - state.facts.deadline_ns[box] - 1
    late = {a: arrived_before(state.arcs[a], before_ns) for a in state.network.boxes[box].in_arcs}
    return {a: tuples for a, tuples in late.items() if tuples}


def head_after(state: SchedulerState, box: int, late: dict[int, int]) -> int | None:
    """When the oldest task came that is left of a box once these are gone. Of a train its first counts."""
    heads = []
    for a in state.network.boxes[box].in_arcs:
        left = late.get(a, 0)
        for entry in state.arcs[a].entries:
            left -= entry.tuples
            if left < 0:
                heads.append(entry.first_arrival_ns)
                break
    return min(heads, default=None)


def _too_many(
    state: SchedulerState, box: int, takes: dict[int, int], head_ns: int, now_ns: int
) -> tuple[tuple[int, int], ...]:
    """By arc of the box: how many of the oldest tasks of its batch cannot make it."""
    facts = state.facts
    deadline_ns = head_ns + facts.deadline_ns[box]
    arcs = [a for a in state.network.boxes[box].in_arcs if takes[a]]
    tasks = sum([takes[a] for a in arcs])
    late = tasks - tasks_in_time(deadline_ns, now_ns, state.settings.batch.step_ns, facts.downstream_ns[box])
    if late <= 0:
        return ()
    # Of several inputs each gives up its share, rounded up: an arc's tuples of one interval are equally old.
    return tuple([(a, min(takes[a], -(-takes[a] * late // tasks))) for a in arcs])
