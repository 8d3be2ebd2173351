"""QoS by feedback: raise the outputs that do badly, lower those in their good zone (P3)."""

from __future__ import annotations

from scheduler.feedback import Feedback
from scheduler.index import Index, ranking
from scheduler.plan import Plan
from scheduler.state import SchedulerState
from scheduler.traversal import expand

WHEN = "latency graphs, and costs that cannot be predicted: reacts to measured results instead of estimates"
NEEDS = ("latency graphs",)
INSTEAD = "fcfs"
URGENT_FIRST = True


def index(state: SchedulerState) -> Index:
    return Feedback(state)


def qos_feedback(state: SchedulerState, now_ns: int) -> Plan | None:
    box = ranking(state).best()
    return None if box is None else expand(state, state.unit_of[box])
