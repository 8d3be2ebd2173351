"""HR, highest rate: run the box whose tuples give the most output for the work that they cause, S/C (P1).

The box and all boxes from it to the output run as one segment. Where a box of higher rate gets tuples meanwhile, the
segment ends between two boxes, and its tuples wait there: preemption between operators.
"""

from __future__ import annotations

from scheduler.index import Index, Key, ranking
from scheduler.plan import Plan
from scheduler.preemption import Preemptive
from scheduler.state import SchedulerState
from scheduler.traversal import output_segment

WHEN = "the least mean latency over all tuples; expensive queries wait while cheap ones have work"


def index(state: SchedulerState) -> Index:
    return Preemptive(state, key, lambda facts: facts.rate)


def key(state: SchedulerState, box: int, now_ns: int) -> tuple[Key, int | None]:
    rates = state.facts.arc_rate
    return (-max([rates[a] for a in state.waiting_arcs(box)]), state.head_ns(box)), None


def hr(state: SchedulerState, now_ns: int) -> Plan | None:
    box = ranking(state).best()
    return None if box is None else output_segment(state, box)
