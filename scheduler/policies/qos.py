"""QoS: the p-tuple of Aurora, slope before slack (P0 section 6.1).

eol(b) is the mean wait of the tuples at b and what the way to the output takes. The box where utility falls fastest at
its eol comes first; among equals, the one that is nearest to a critical point of its graph.

The paper computes the pair for every box at every step. But wait grows alike for everyone: a slope holds until the eol
reaches the next critical point, and of two boxes the one that reaches its own sooner now does so at any later time. So
the key is (loss, the moment of the next critical point), which moves only when something happens to the box or that
moment comes, and a heap holds it exactly.
"""

from __future__ import annotations

from scheduler.facts import INFINITE_NS
from scheduler.index import Index, Key, Ranking, ranking
from scheduler.plan import Plan
from scheduler.state import SchedulerState
from scheduler.traversal import expand

WHEN = "outputs with latency graphs that differ: the most utility for all of them together"
NEEDS = ("latency graphs",)
INSTEAD = "fcfs"


def index(state: SchedulerState) -> Index:
    return Ranking(state, key)


def key(state: SchedulerState, box: int, now_ns: int) -> tuple[Key, int | None]:
    """Past the last critical point nothing more can be lost; there the oldest tuple goes first."""
    mean_ns = state.mean_arrival_ns(box)
    urgency, way_ns = state.facts.urgency[box]
    loss, edge_ns = urgency.at(now_ns - mean_ns + way_ns)
    if edge_ns == INFINITE_NS:
        return (-loss, INFINITE_NS, state.head_ns(box)), None
    critical_ns = mean_ns + edge_ns - way_ns
    return (-loss, critical_ns, 0), critical_ns


def qos(state: SchedulerState, now_ns: int) -> Plan | None:
    box = ranking(state).best()
    return None if box is None else expand(state, state.unit_of[box])
