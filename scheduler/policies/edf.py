"""EDF, earliest deadline first: one task (a tuple for a query) at a time (P4, where it is called TAAT)."""

from __future__ import annotations

from scheduler.batches import deadline_key, overdue_tasks
from scheduler.index import Index, Ranking, ranking
from scheduler.plan import Plan, Step
from scheduler.state import SchedulerState
from scheduler.traversal import expand

WHEN = "few tuples with hard deadlines; every tuple pays for a scheduling step of its own"
NEEDS = ("deadlines",)
INSTEAD = "fcfs"
URGENT_FIRST = True


def index(state: SchedulerState) -> Index:
    return Ranking(state, deadline_key)


def edf(state: SchedulerState, now_ns: int) -> Plan | None:
    box = ranking(state).best()
    if box is None:
        return None
    late = overdue_tasks(state, box, now_ns) if state.settings.batch.overdue else {}
    waiting = [a for a in state.network.boxes[box].in_arcs if state.arcs[a].entries]
    if late:
        waiting = [a for a in waiting if state.arcs[a].tuples > late.get(a, 0)]
    if not waiting:
        return Plan((Step(box, 0),), {}, tuple(late.items()))
    oldest = min(waiting, key=lambda a: (state.arcs[a].entries[0].first_arrival_ns, a))
    return Plan(expand(state, state.unit_of[box]).steps, {oldest: 1}, tuple(late.items()))
