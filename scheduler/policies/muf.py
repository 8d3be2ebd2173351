"""MUF, maximum urgency first: the critical queries first, and among them the batch of least laxity (named in P4 1.3).

P4 lets the priority of a batch be computed by EDF or by MUF (Stewart 1994, which it cites and does not print). MUF has
two steps. The critical set is fixed by the load: the queries by rising deadline, as long as their load together does
not exceed one processor. A critical query always runs before one that is not, so that an overload hits the others only.
Within each set the least laxity comes first: deadline - now - C_total, where C_total is the expected cost of the batch
(equations 4 and 5). Ties go to the box that stands first in the network file. Batches are those of `bts`.
"""

from __future__ import annotations

from scheduler.batches import Batches, batch_plan, urgency_key
from scheduler.index import Index
from scheduler.plan import Plan
from scheduler.state import SchedulerState

WHEN = "deadlines, and overload that only the queries with the longest deadlines may feel"
NEEDS = ("deadlines",)
INSTEAD = "fcfs"
URGENT_FIRST = True


def index(state: SchedulerState) -> Index:
    return Batches(state, key=urgency_key)


def muf(state: SchedulerState, now_ns: int) -> Plan | None:
    return batch_plan(state, now_ns, drop=False)
