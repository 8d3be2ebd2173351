"""HNR, highest normalized rate: the output for the work, divided by the query's ideal time (P1, equation 3).

The priority is V = S / (C T). S counts the tuples that come out for one at the box, C is the work that it causes, T the
time that a tuple of the query takes at best. Running x before y delays the tuples of y by C_x, which costs
S_y C_x / T_y in slowdown; the order that costs less runs the higher V first.

The box and all boxes from it to the output run as one segment. Where a box of higher V gets tuples meanwhile, the
segment ends between two boxes, and its tuples wait there: preemption between operators.
"""

from __future__ import annotations

from scheduler.index import Index, Key, ranking
from scheduler.plan import Plan
from scheduler.preemption import Preemptive
from scheduler.state import SchedulerState
from scheduler.traversal import output_segment

WHEN = "queries of different cost: the least mean slowdown (latency over the time that a query takes alone)"


def index(state: SchedulerState) -> Index:
    return Preemptive(state, key, lambda facts: facts.normalized_rate)


def key(state: SchedulerState, box: int, now_ns: int) -> tuple[Key, int | None]:
    rates = state.facts.arc_normalized_rate
    return (-max([rates[a] for a in state.waiting_arcs(box)]), state.head_ns(box)), None


def hnr(state: SchedulerState, now_ns: int) -> Plan | None:
    box = ranking(state).best()
    return None if box is None else output_segment(state, box)
