"""BSD, balanced slowdown: between HNR and LSF, for the l2 norm of slowdown: S W / (C T^2) (P1).

Boxes are clustered by S/(C T^2) on a logarithmic scale, first come first served inside a cluster, and the heads of the
clusters are compared: the choice is off by a factor of two at most, and costs a handful of products.
"""

from __future__ import annotations

from scheduler.clusters import Clusters, clusters
from scheduler.index import Index
from scheduler.plan import Plan
from scheduler.state import SchedulerState
from scheduler.traversal import expand

WHEN = "queries that differ in cost: small mean slowdown without starving anybody"
RATIO = 2.0


def index(state: SchedulerState) -> Index:
    return Clusters(state, lambda s: s.facts.balanced_rate, RATIO)


def bsd(state: SchedulerState, now_ns: int) -> Plan | None:
    box = clusters(state).best(now_ns)
    return None if box is None else expand(state, state.unit_of[box])
