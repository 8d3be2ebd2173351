"""LSF, longest stretch first: the tuple that has waited longest for what it takes at best, W/T (P1)."""

from __future__ import annotations

from scheduler.clusters import Clusters, clusters
from scheduler.index import Index
from scheduler.plan import Plan
from scheduler.state import SchedulerState
from scheduler.traversal import expand

WHEN = "the worst slowdown must be small: nobody starves"


def index(state: SchedulerState) -> Index:
    """Boxes of the same T never overtake each other: one cluster for each T that there is."""
    return Clusters(state, lambda s: [1.0 / t for t in s.facts.box_ideal_ns], ratio=None)


def lsf(state: SchedulerState, now_ns: int) -> Plan | None:
    box = clusters(state).best(now_ns)
    return None if box is None else expand(state, state.unit_of[box])
