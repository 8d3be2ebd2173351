"""ATS1: ATS that drops the tasks which cannot meet their deadline, before they cost anything (P4)."""

from __future__ import annotations

from scheduler.batches import Batches, batch_plan
from scheduler.index import Index
from scheduler.plan import Plan
from scheduler.state import SchedulerState

WHEN = "as ats, where a late tuple is worth nothing: hopeless tuples are dropped and counted"
NEEDS = ("deadlines",)
INSTEAD = "fcfs"
URGENT_FIRST = True
DROPS = True


def index(state: SchedulerState) -> Index:
    return Batches(state, adaptive=True)


def ats1(state: SchedulerState, now_ns: int) -> Plan | None:
    return batch_plan(state, now_ns, drop=True)
