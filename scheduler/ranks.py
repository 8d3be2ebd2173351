"""The order of the queues by importance, which the storage manager asks for before it spills one of them to disk."""

from __future__ import annotations

from scheduler.state import SchedulerState


def ranked_arcs(state: SchedulerState) -> list[int]:
    """Return the arcs on which tuples wait, in the order in which the policy would serve them.

    Without an order of the policy's own the oldest tuple comes first. A box that is in a plan now, or for which the
    policy has no key, counts as urgent: it runs before any later decision.
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
