"""Chain: run the box that frees memory fastest, looking ahead along its path (P2).

A progress chart shows how the memory of a tuple shrinks with the work that is spent on it. Chain schedules segments of
the chart's lower envelope: it runs the steepest segment for which tuples wait, from the box where they wait to the end
of the segment, without a queue in between. Behind the segment the tuples wait again. Among equals the oldest tuple goes
first. A segment ends where its unit ends: `unit: superbox` is the unit of Chain, with `unit: box` it runs box by box.
A join has a selectivity for each input, so the tuples of each input have a chart of their own.
"""

from __future__ import annotations

from scheduler.charts import Segment, steepest
from scheduler.index import Index, Key, Ranking, ranking
from scheduler.plan import Plan
from scheduler.state import SchedulerState
from scheduler.traversal import segment_plan

WHEN = "bursts and little memory: queues stay as short as possible; boxes that free little memory wait"


def index(state: SchedulerState) -> Index:
    return Ranking(state, key)


def key(state: SchedulerState, box: int, now_ns: int) -> tuple[Key, int | None]:
    return (-segment_of(state, box).slope, state.head_ns(box)), None


def segment_of(state: SchedulerState, box: int) -> Segment:
    """Return the steepest segment of the inputs on which tuples wait."""
    segments = state.facts.arc_segment
    return steepest([segments[a] for a in state.waiting_arcs(box)])


def chain(state: SchedulerState, now_ns: int) -> Plan | None:
    box = ranking(state).best()
    return None if box is None else segment_plan(state, box, segment_of(state, box).boxes)
