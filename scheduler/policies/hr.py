"""HR, highest rate: run the box whose tuples give the most output for the work that they cause, S/C (P1)."""

from __future__ import annotations

from scheduler.index import Index, Key, Ranking, ranking
from scheduler.plan import Plan
from scheduler.state import SchedulerState
from scheduler.traversal import expand

WHEN = "the least mean latency over all tuples; expensive queries wait while cheap ones have work"


def index(state: SchedulerState) -> Index:
    return Ranking(state, key)


def key(state: SchedulerState, box: int, now_ns: int) -> tuple[Key, int | None]:
    return (-state.facts.rate[box], state.head_ns(box)), None


def hr(state: SchedulerState, now_ns: int) -> Plan | None:
    box = ranking(state).best()
    return None if box is None else expand(state, state.unit_of[box])
