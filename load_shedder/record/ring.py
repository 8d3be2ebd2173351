"""The ring of plans: when each was in force, what it dropped where, and why that was the cheapest choice.

Bounded: the last ``PLANS_KEPT`` plans. The drops of a plan are the difference of the arcs' counters between its start
and its end, so no train pays for the record. A plan that only shifts a share a little is a plan of its own. The ring
holds some minutes of an active controller, and ``total`` counts all plans, also those that fell out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from load_shedder.shed_plan import ShedPlan

PLANS_KEPT = 1_000

DropCounts = dict[tuple[int, str], int]
"""Tuples dropped, by arc and reason."""


class PlanPeriod:
    """A plan and the time it was in force. ``until_ns`` is None while it is."""

    __slots__ = ("before", "dropped", "plan", "since_ns", "until_ns")

    def __init__(self, plan: ShedPlan, since_ns: int, before: DropCounts) -> None:
        self.plan = plan
        self.since_ns = since_ns
        self.until_ns: int | None = None
        self.before = before
        self.dropped: DropCounts = {}

    def so_far(self, now: DropCounts) -> DropCounts:
        """Return the tuples dropped while this plan was in force."""
        if self.until_ns is not None:
            return self.dropped
        return {key: left for key, count in now.items() if (left := count - self.before.get(key, 0)) > 0}


class PlanRing:
    """Owner: the thread that holds the lock of ``Shedding``."""

    def __init__(self) -> None:
        self.entries: deque[PlanPeriod] = deque(maxlen=PLANS_KEPT)
        self.total = 0

    def put(self, plan: ShedPlan, now_ns: int, counts: DropCounts) -> None:
        """Begin the period of this plan and end the one before."""
        if self.entries:
            last = self.entries[-1]
            last.dropped, last.until_ns = last.so_far(counts), now_ns
            last.before = {}
        self.entries.append(PlanPeriod(plan, now_ns, counts))
        self.total += 1

    def to_json(
        self, counts: DropCounts, names: Sequence[str], outputs: Sequence[str], limit: int
    ) -> list[dict[str, Any]]:
        """Return the last plans, the newest first."""
        newest = list(self.entries)[::-1][:limit]
        return [_entry_json(entry, entry.so_far(counts), names, outputs) for entry in newest]


def _entry_json(
    entry: PlanPeriod, dropped: Mapping[tuple[int, str], int], names: Sequence[str], outputs: Sequence[str]
) -> dict[str, Any]:
    plan = entry.plan
    return {
        "plan": plan.number,
        "level": plan.level,
        "since_ns": entry.since_ns,
        "until_ns": entry.until_ns,
        "why": plan.why,
        "excess_ns": plan.excess_ns,
        "saved_ns": plan.saved_ns,
        "load_ns": plan.load_ns,
        "capacity_ns": plan.capacity_ns,
        "loss": plan.loss,
        "drops": [
            {
                "arc": names[drop.place.arc],
                "manner": drop.place.manner,
                "window_ns": drop.place.window_ns,
                "outputs": [outputs[o] for o in drop.place.outputs],
                "share": drop.share,
                "gain_ns": drop.gain_ns,
                "loss": drop.loss,
                "slope": drop.slope,
            }
            for drop in plan.drops
        ],
        "dropped": [
            {"arc": names[arc], "reason": reason, "tuples": tuples} for (arc, reason), tuples in sorted(dropped.items())
        ],
    }
