"""BTS1: BTS that drops the tasks which cannot meet their deadline, before they cost anything (P4)."""

from __future__ import annotations

from scheduler.batches import Batches, batch_plan
from scheduler.index import Index
from scheduler.plan import Plan
from scheduler.state import SchedulerState

WHEN = "as bts, where a late tuple is worth nothing: hopeless tuples are dropped and counted"
NEEDS = ("deadlines",)
INSTEAD = "fcfs"
URGENT_FIRST = True
DROPS = True


def index(state: SchedulerState) -> Index:
    return Batches(state)


def bts1(state: SchedulerState, now_ns: int) -> Plan | None:
    return batch_plan(state, now_ns, drop=True)
