"""BTS, batches of tasks: run the tasks of k intervals together, the earliest deadline first (P4).

A task is one tuple for one query. The tasks of one interval (``batch.basic``) count as having the same deadline. k
stays as it is set (``batch.k``).
"""

from __future__ import annotations

from scheduler.batches import Batches, batch_plan
from scheduler.index import Index
from scheduler.plan import Plan
from scheduler.state import SchedulerState

WHEN = "deadlines, and a steady load"
NEEDS = ("deadlines",)
INSTEAD = "fcfs"
URGENT_FIRST = True


def index(state: SchedulerState) -> Index:
    return Batches(state)


def bts(state: SchedulerState, now_ns: int) -> Plan | None:
    return batch_plan(state, now_ns, drop=False)
