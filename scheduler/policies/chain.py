"""Chain: the box on the steepest segment of its progress chart's lower envelope; among equals the oldest tuple (P2)."""

from __future__ import annotations

from scheduler.index import Index, Key, Ranking, ranking
from scheduler.plan import Plan
from scheduler.state import SchedulerState
from scheduler.traversal import expand

WHEN = "bursts and little memory: queues stay as short as can be; tuples on flat segments wait"


def index(state: SchedulerState) -> Index:
    return Ranking(state, key)


def key(state: SchedulerState, box: int, now_ns: int) -> tuple[Key, int | None]:
    return (-state.facts.chain_slope[box], state.head_ns(box)), None


def chain(state: SchedulerState, now_ns: int) -> Plan | None:
    box = ranking(state).best()
    return None if box is None else expand(state, state.unit_of[box])
