"""QoS: run the box where waiting costs the most utility: the p-tuple of Aurora, slope before slack (P0 section 6.1).

The expected output latency of a box, eol(b), is the mean wait of its tuples plus the time of the path to the output.
The box where utility falls fastest at its eol comes first. Among equals the box that is nearest to a critical point of
its graph comes first.

The paper computes the pair for every box at every step. But every wait grows at the same rate. A slope therefore holds
until the eol reaches the next critical point, and of two boxes the one that is nearer to its critical point now is
nearer at any later time. So the key is (loss, time of the next critical point). It changes only when something happens
to the box or when that time comes, and a heap holds it exactly.
"""

from __future__ import annotations

from scheduler.facts import INFINITE_NS
from scheduler.index import Index, Key, Ranking, ranking
from scheduler.plan import Plan
from scheduler.state import SchedulerState
from scheduler.traversal import expand

WHEN = "outputs with different latency graphs: the most utility over all of them"
NEEDS = ("latency graphs",)
INSTEAD = "fcfs"
URGENT_FIRST = True


def index(state: SchedulerState) -> Index:
    return Ranking(state, key)


def key(state: SchedulerState, box: int, now_ns: int) -> tuple[Key, int | None]:
    """Return (loss, time of the next critical point, head), and when the key has to be computed anew.

    Past the last critical point no more utility can be lost; there the oldest tuple goes first.
    """
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
