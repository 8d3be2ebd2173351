"""BSD, balanced slowdown: a compromise between HNR and LSF that keeps the l2 norm of slowdown small (P1).

The priority is S W / (C T^2). S/C is the output for the work, W the wait of the oldest tuple, T the time that a tuple
of the query takes at best.

Boxes are clustered by S/(C T^2) on a logarithmic scale and served first come first served inside a cluster. Only the
heads of the clusters are compared: the choice is off by a factor of two at most and costs a handful of products.
"""

from __future__ import annotations

from scheduler.clusters import Clusters, clusters
from scheduler.index import Index
from scheduler.plan import Plan
from scheduler.state import SchedulerState
from scheduler.traversal import output_segment

WHEN = "queries of different cost: a small mean slowdown, and no query starves"
RATIO = 2.0


def index(state: SchedulerState) -> Index:
    return Clusters(state, lambda s: s.facts.balanced_rate, RATIO)


def bsd(state: SchedulerState, now_ns: int) -> Plan | None:
    box = clusters(state).best(now_ns)
    return None if box is None else output_segment(state, box)
