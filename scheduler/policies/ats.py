"""ATS, adaptive batches: as BTS, with k moved by the share of deadlines missed (P4)."""

from __future__ import annotations

from scheduler.batches import Batches, batch_plan
from scheduler.index import Index
from scheduler.plan import Plan
from scheduler.state import SchedulerState

WHEN = "deadlines and a load that comes in bursts"
NEEDS = ("deadlines",)
INSTEAD = "fcfs"


def index(state: SchedulerState) -> Index:
    return Batches(state, adaptive=True)


def ats(state: SchedulerState, now_ns: int) -> Plan | None:
    return batch_plan(state, now_ns, drop=False)
