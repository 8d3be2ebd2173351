"""Chain: run the box that frees memory fastest, looking ahead along its path (P2).

A progress chart shows how the memory of a tuple shrinks with the work that is spent on it. Chain schedules segments of
the chart's lower envelope: it runs the steepest segment for which tuples wait, from the box where they wait to the end
of the segment, without a queue in between. Behind the segment the tuples wait again. Among equals the oldest tuple goes
first. A segment ends where its unit ends: `unit: superbox` is the unit of Chain, with `unit: box` it runs box by box.
"""

from __future__ import annotations

from scheduler.index import Index, Key, Ranking, ranking
from scheduler.plan import Plan
from scheduler.state import SchedulerState
from scheduler.traversal import segment_plan

WHEN = "bursts and little memory: queues stay as short as possible; boxes that free little memory wait"


def index(state: SchedulerState) -> Index:
    return Ranking(state, key)


def key(state: SchedulerState, box: int, now_ns: int) -> tuple[Key, int | None]:
    return (-state.facts.chain_segment[box].slope, state.head_ns(box)), None


def chain(state: SchedulerState, now_ns: int) -> Plan | None:
    box = ranking(state).best()
    return None if box is None else segment_plan(state, state.facts.chain_segment[box].boxes)
