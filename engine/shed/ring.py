"""The plans that were in force: when, what each dropped where, and why that was the cheapest there was.

Bounded: the last ``PLANS_KEPT``. What a plan dropped is the difference of the arcs' counters between its coming and its
going, so no train pays for it. A plan that only moves a share by a little is a plan of its own; the ring is long enough
for some minutes of a controller at work, and ``total`` counts those that fell out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from catalog.shed import ShedPlan

PLANS_KEPT = 1_000

Counts = dict[tuple[int, str], int]
"""Tuples dropped so far, by arc and reason."""


class Entry:
    """A plan in its time. ``until_ns`` None: it is in force."""

    __slots__ = ("before", "dropped", "plan", "since_ns", "until_ns")

    def __init__(self, plan: ShedPlan, since_ns: int, before: Counts) -> None:
        self.plan = plan
        self.since_ns = since_ns
        self.until_ns: int | None = None
        self.before = before
        self.dropped: Counts = {}

    def so_far(self, now: Counts) -> Counts:
        """What has been dropped under it."""
        if self.until_ns is not None:
            return self.dropped
        return {key: left for key, count in now.items() if (left := count - self.before.get(key, 0)) > 0}


class PlanRing:
    """Owner: whoever holds the lock of ``Shedding``."""

    def __init__(self) -> None:
        self.entries: deque[Entry] = deque(maxlen=PLANS_KEPT)
        self.total = 0

    def put(self, plan: ShedPlan, now_ns: int, counts: Counts) -> None:
        if self.entries:
            last = self.entries[-1]
            last.dropped, last.until_ns = last.so_far(counts), now_ns
            last.before = {}
        self.entries.append(Entry(plan, now_ns, counts))
        self.total += 1

    def to_json(self, counts: Counts, names: Sequence[str], outputs: Sequence[str], limit: int) -> list[dict[str, Any]]:
        """The newest first."""
        newest = list(self.entries)[::-1][:limit]
        return [_entry_json(entry, entry.so_far(counts), names, outputs) for entry in newest]


def _entry_json(
    entry: Entry, dropped: Mapping[tuple[int, str], int], names: Sequence[str], outputs: Sequence[str]
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
