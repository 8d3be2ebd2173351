"""QoS in buckets: ``qos`` with slopes and slacks on a grid, so that a step costs only the boxes that moved
(P0 section 6.2)."""

from __future__ import annotations

from scheduler.buckets import Buckets, buckets
from scheduler.index import Index
from scheduler.plan import Plan
from scheduler.state import SchedulerState
from scheduler.traversal import expand

WHEN = "as qos, with thousands of busy boxes: boxes of about the same urgency take turns"
NEEDS = ("latency graphs",)
INSTEAD = "fcfs"
URGENT_FIRST = True


def index(state: SchedulerState) -> Index:
    return Buckets(state, state.settings.grid)


def qos_buckets(state: SchedulerState, now_ns: int) -> Plan | None:
    box = buckets(state).best()
    return None if box is None else expand(state, state.unit_of[box])
