"""LSF, longest stretch first: run the tuple whose wait is longest relative to its ideal time, W/T (P1)."""

from __future__ import annotations

from scheduler.clusters import Clusters, clusters
from scheduler.index import Index
from scheduler.plan import Plan
from scheduler.state import SchedulerState
from scheduler.traversal import output_segment

WHEN = "the worst slowdown must be small: no query starves"


def index(state: SchedulerState) -> Index:
    """Make one cluster for each value of T: boxes of the same T never overtake each other."""
    return Clusters(state, lambda s: [1.0 / t for t in s.facts.box_ideal_ns], ratio=None)


def lsf(state: SchedulerState, now_ns: int) -> Plan | None:
    box = clusters(state).best(now_ns)
    return None if box is None else output_segment(state, box)
