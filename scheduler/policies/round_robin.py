"""Round robin: the unit that has been ready the longest. The baseline of the papers, and fair."""

from __future__ import annotations

from scheduler.plan import Plan
from scheduler.state import SchedulerState
from scheduler.traversal import expand

WHEN = "outputs that ask for nothing, or all for the same: the cheapest decision, and fair"


def round_robin(state: SchedulerState, now_ns: int) -> Plan | None:
    """A unit that ran and still has work went to the end of ``ready`` when it was released: the head is next."""
    for unit in state.ready:
        return expand(state, unit)
    return None
