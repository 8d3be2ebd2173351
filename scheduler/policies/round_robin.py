"""Round robin: run the unit that has been ready for longest. The baseline of the papers, and fair."""

from __future__ import annotations

from scheduler.plan import Plan
from scheduler.state import SchedulerState
from scheduler.traversal import expand

WHEN = "outputs without QoS graphs, or all with the same: the cheapest decision, and fair"


def round_robin(state: SchedulerState, now_ns: int) -> Plan | None:
    """Take the head of ``ready``: a unit that ran and still has work went to its end when it was released."""
    for unit in state.ready:
        return expand(state, unit)
    return None
