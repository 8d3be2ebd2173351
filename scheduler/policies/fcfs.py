"""FCFS, first come first served: run the box with the oldest tuple at the head of its queue. A baseline."""

from __future__ import annotations

from scheduler.index import Index, Key, Ranking, ranking
from scheduler.plan import Plan
from scheduler.state import SchedulerState
from scheduler.traversal import expand

WHEN = "the longest wait of a tuple must be short, whatever its output"


def index(state: SchedulerState) -> Index:
    return Ranking(state, key)


def key(state: SchedulerState, box: int, now_ns: int) -> tuple[Key, int | None]:
    return state.head_ns(box), None


def fcfs(state: SchedulerState, now_ns: int) -> Plan | None:
    box = ranking(state).best()
    return None if box is None else expand(state, state.unit_of[box])
