"""ATS, adaptive batches: BTS with a batch length that follows the share of missed deadlines (P4).

A scheduling batch is k intervals long. A controller shortens it while deadlines are missed and lengthens it when the
misses stop: k = max(1, k - floor(Kp dSDMR + Ki SDMR)), where SDMR is the share of deadlines missed.
"""

from __future__ import annotations

from scheduler.batches import Batches, batch_plan
from scheduler.index import Index
from scheduler.plan import Plan
from scheduler.state import SchedulerState

WHEN = "deadlines, and load that comes in bursts"
NEEDS = ("deadlines",)
INSTEAD = "fcfs"
URGENT_FIRST = True


def index(state: SchedulerState) -> Index:
    return Batches(state, adaptive=True)


def ats(state: SchedulerState, now_ns: int) -> Plan | None:
    return batch_plan(state, now_ns, drop=False)
