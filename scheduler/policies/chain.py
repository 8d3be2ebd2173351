"""Chain: run the box that frees memory fastest, looking ahead along its path (P2).

A progress chart shows how the memory of a tuple shrinks with the work that is spent on it. Chain runs the box on the
steepest segment of the chart's lower envelope; among equals it runs the box with the oldest tuple.
"""

from __future__ import annotations

from scheduler.index import Index, Key, Ranking, ranking
from scheduler.plan import Plan
from scheduler.state import SchedulerState
from scheduler.traversal import expand

WHEN = "bursts and little memory: queues stay as short as possible; boxes that free little memory wait"


def index(state: SchedulerState) -> Index:
    return Ranking(state, key)


def key(state: SchedulerState, box: int, now_ns: int) -> tuple[Key, int | None]:
    return (-state.facts.chain_slope[box], state.head_ns(box)), None


def chain(state: SchedulerState, now_ns: int) -> Plan | None:
    box = ranking(state).best()
    return None if box is None else expand(state, state.unit_of[box])
