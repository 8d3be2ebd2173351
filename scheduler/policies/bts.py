"""BTS, batches of tasks: those of one interval together, the earliest deadline first, k intervals at once (P4)."""

from __future__ import annotations

from scheduler.batches import Batches, batch_plan
from scheduler.index import Index
from scheduler.plan import Plan
from scheduler.state import SchedulerState

WHEN = "deadlines and a steady load"
NEEDS = ("deadlines",)
INSTEAD = "fcfs"


def index(state: SchedulerState) -> Index:
    return Batches(state)


def bts(state: SchedulerState, now_ns: int) -> Plan | None:
    return batch_plan(state, now_ns, drop=False)
