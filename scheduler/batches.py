"""Deadlines in batches (P4): tasks of one interval run together, the earliest deadline first.

A task is one tuple for one query; its deadline is its arrival plus the deadline of the query. A basic batch holds the
tasks of an interval phi, whose deadlines count as the same; a scheduling batch is k basic batches. ``bts`` keeps k;
``ats`` adapts it to the share of missed deadlines, with a proportional and an integral part. With ``drop`` (``bts1``,
``ats1``) the oldest tasks that cannot meet their deadline are dropped before the batch runs, and counted on their arc
as expired.

Two settings run the policies as P4 does in its experiments: with ``overdue`` every one of them drops the tasks whose
deadline is over; with ``whole`` a basic batch does not run before its interval is over.

phi is a number of each query (P4 section 1.3): phi = phi_Q; for a query with windows, whose hop may be off by phi_w,
"phi = phi_Q if phi_w < phi_Q, else phi = phi_w". phi_Q is ``basic``; phi_w is the share ``window`` of the hop. (For
ease P4 then takes the smallest phi for all queries. Queues are by query here, so each keeps its own; ``window`` 0, the
default, is one phi for all.)

The controller reads the share of late tasks among the plans that have ended since its last reading. Dropped tasks do
not count: they say that there was too much work, and a shorter batch, with more steps for the same tasks, would make
that worse. With ``total`` the controller is that of P4: the change is from one execution to the next, SDMR is that of
the whole run, and a dropped task counts as missed. Then k is 1 in every overload, as P4 says that it must be. A daemon
runs for months; a share over the whole run would hold its first bad hour against it for good, so ``total`` is off
there.
"""

from __future__ import annotations

from collections.abc import Callable
from math import floor
from typing import TYPE_CHECKING

from scheduler.index import Key, Ranking
from scheduler.plan import Plan, Step
from scheduler.trains import arrived_before
from scheduler.traversal import expand
from scheduler.tuner import INTEGRALS, PROPORTIONALS, Climber, TakeTurns

if TYPE_CHECKING:
    from scheduler.state import SchedulerState


Batch = tuple[int, int, int]
"""When the first task is due, how much later the last one, and how many there are, evenly spaced."""

BatchKey = Callable[["SchedulerState", int, int], tuple[Key, int | None]]
"""The key of a box (``Ranking``). It is a tuple, and its first part says whether the basic batch is still filling."""


class Batches(Ranking):
    """An index of boxes by the deadline of their oldest tuple, which also counts the missed deadlines."""

    learns = True

    def __init__(self, state: SchedulerState, adaptive: bool = False, key: BatchKey | None = None) -> None:
        super().__init__(state, key or batch_key)
        rule = state.settings.batch
        self.k = rule.k
        self.proportional, self.integral = rule.proportional, rule.integral  # Kp and Ki, as set or as tuned
        self._tuned = (Climber(PROPORTIONALS, rule.proportional), Climber(INTEGRALS, rule.integral))
        self._tuner = TakeTurns(*self._tuned) if "controller" in state.settings.tune else None
        self.share_missed = 0.0  # SDMR of the last interval
        self._adaptive = adaptive
        self._tasks = 0  # since the controller's last reading
        self._missed = 0.0
        self._tasks_before = 0  # of the whole run until that reading
        self._missed_before = 0.0
        self._since_ns: int | None = None
        self._open: list[Batch] = []  # claimed by the last plan
        self._running: dict[int, list[Batch]] = {}  # claimed by the plans that run, by the id of the plan
        self._ended: list[Batch] = []  # claimed by the plans that have ended since the clock was last read

    def dispatched(self, plan: Plan) -> None:
        self._open = self._running[id(plan)] = []

    def claimed(self, box: int, tuples: int, first_arrival_ns: int, mean_arrival_ns: int) -> None:
        due_ns = first_arrival_ns + self.state.facts.deadline_ns[box]
        self._open.append((due_ns, 2 * (mean_arrival_ns - first_arrival_ns), tuples))

    def finished(self, plan: Plan) -> None:
        """Keep the batches of a plan that has ended. Its time is that of the next ``clock``, before the next
        decision."""
        self._ended += self._running.pop(id(plan), ())

    def expired(self, box: int, tuples: int, mean_arrival_ns: int) -> None:
        super().expired(box, tuples, mean_arrival_ns)
        if self.state.settings.batch.total:
            self._tasks += tuples
            self._missed += tuples

    def is_filling(self, box: int) -> bool:
        """Return whether the basic batch of a listed box must not run yet."""
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
            self.k = next_k(self.k, self.proportional, self.integral, share - self.share_missed, level)
            if self._tuner is not None and self._tuner.observe(share):
                self.proportional, self.integral = [climber.value for climber in self._tuned]
            self.share_missed = share
            self._tasks, self._missed = 0, 0.0
            self._since_ns = now_ns


def deadline_key(state: SchedulerState, box: int, now_ns: int) -> tuple[Key, int | None]:
    return state.head_ns(box) + state.facts.deadline_ns[box], None


def batch_key(state: SchedulerState, box: int, now_ns: int) -> tuple[Key, int | None]:
    """Return the deadline as the key. Where batches are whole, a batch that is still filling comes after all others
    until it is full."""
    if (full_ns := filling_until_ns(state, box, now_ns)) is not None:
        return (True, full_ns), full_ns
    return (False, state.head_ns(box) + state.facts.deadline_ns[box]), None


def urgency_key(state: SchedulerState, box: int, now_ns: int) -> tuple[Key, int | None]:
    """Return MUF's key: critical tasks first, then the least laxity, deadline - now - C_total, of the head batch.

    ``now`` is the same for all boxes, so it is left out, and the key holds until the queue changes. C_total is that of
    P4's equations 4 and 5: n C' + C_sched.
    """
    if (full_ns := filling_until_ns(state, box, now_ns)) is not None:
        return (True, False, full_ns), full_ns
    rule, facts, head_ns = state.settings.batch, state.facts, state.head_ns(box)
    until_ns = head_ns + rule.k * basic_ns(state, box)
    tasks = sum([arrived_before(state.arcs[a], until_ns) for a in state.network.boxes[box].in_arcs])
    laxity_ns = head_ns + facts.deadline_ns[box] - int(tasks * facts.downstream_ns[box]) - rule.step_ns
    return (False, not facts.critical[box], laxity_ns), None


def basic_ns(state: SchedulerState, box: int) -> int:
    """Return phi of the queries behind a box (P4 section 1.3)."""
    rule = state.settings.batch
    return max(rule.basic_ns, int(rule.window * state.facts.hop_ns[box])) if rule.window else rule.basic_ns


def filling_until_ns(state: SchedulerState, box: int, now_ns: int) -> int | None:
    """Return when the basic batch at the head of a box is full, if batches are whole and it is not yet; else None."""
    if not state.settings.batch.whole:
        return None
    full_ns = state.head_ns(box) + basic_ns(state, box)
    return full_ns if now_ns < full_ns else None


def late_tasks(batch: Batch, now_ns: int) -> float:
    """Return how many tasks of a batch that ends now were due before now."""
    due_ns, span_ns, tasks = batch
    return tasks * min(1.0, max(0.0, (now_ns - due_ns) / max(span_ns, 1)))


def next_k(k: int, proportional: float, integral: float, change: float, share_missed: float) -> int:
    """Return the next k of the controller: max(1, k - floor(Kp dSDMR + Ki SDMR)); ``change`` is dSDMR."""
    return max(1, k - floor(proportional * change + integral * share_missed))


def tasks_in_time(deadline_ns: int, now_ns: int, step_ns: float, task_ns: float) -> int:
    """Return S(Q), the number of tasks that can be done before the deadline."""
    return max(0, floor((deadline_ns - now_ns - step_ns) / max(task_ns, 1e-9)))


def batch_plan(state: SchedulerState, now_ns: int, *, drop: bool) -> Plan | None:
    """Return the plan of the scheduling batch with the earliest deadline."""
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
    until_ns = head_ns + index.k * basic_ns(state, box)
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
        return Plan((Step(box, 0),), takes, dropped)  # for the watermark that the dropped tuples carried
    return Plan(expand(state, unit).steps, takes, dropped)


def overdue_tasks(state: SchedulerState, box: int, now_ns: int) -> dict[int, int]:
    """Return the number of tasks whose deadline is over, by arc of the box."""
    before_ns = now_ns - state.facts.deadline_ns[box] - 1
    late = {a: arrived_before(state.arcs[a], before_ns) for a in state.network.boxes[box].in_arcs}
    return {a: tuples for a, tuples in late.items() if tuples}


def head_after(state: SchedulerState, box: int, late: dict[int, int]) -> int | None:
    """Return the arrival of the oldest task of a box that is left when these are dropped; None if none is left.

    A train counts by its first tuple.
    """
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
    """Return, by arc of the box, how many of the oldest tasks of its batch cannot meet the deadline."""
    facts = state.facts
    deadline_ns = head_ns + facts.deadline_ns[box]
    arcs = [a for a in state.network.boxes[box].in_arcs if takes[a]]
    tasks = sum([takes[a] for a in arcs])
    late = tasks - tasks_in_time(deadline_ns, now_ns, state.settings.batch.step_ns, facts.downstream_ns[box])
    if late <= 0:
        return ()
    # Each input gives up its share, rounded up: the tuples of one interval are equally old on every arc.
    return tuple([(a, min(takes[a], -(-takes[a] * late // tasks))) for a in arcs])
