"""Which queues matter least right now: what the storage manager asks before it puts one of them on disk."""

from __future__ import annotations

from scheduler.state import SchedulerState


def ranked_arcs(state: SchedulerState) -> list[int]:
    """The arcs on which something waits, in the order in which the policy would serve them, as far as it has one.

    A box that is in a plan now, or that its policy has no key for, counts as urgent: it runs before anything decided
    later.
    """
    index = state.index
    busy = [box for box, waiting in enumerate(state.waiting) if waiting]
    if index is None:
        first: list[int] = []
        order = sorted(busy, key=lambda b: (state.head_ns(b), b))
    else:
        first = [b for b in busy if index.urgency(b) is None]
        order = sorted([b for b in busy if index.urgency(b) is not None], key=lambda b: (index.urgency(b), b))
    arcs = state.network.boxes
    return [a for b in (*first, *order) for a in arcs[b].in_arcs if state.arcs[a].entries]
