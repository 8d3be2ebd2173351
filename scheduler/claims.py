"""Take from the queues what a plan asks for, and apply it to the state.

Choosing is the policy's; this module only takes. The order matters:

1. Drop the tuples that the plan itself gives up (``Plan.expired``).
2. Drop the tuples at the head of a queue that cannot reach any output in time (``deadlines``). Dropping before taking
   lets the plan spend its limit on tuples that are still of use.
3. Take the tuples that the plan claims. Where a queue of the plan is partly on disk, search upstream from the output as
   P3 does ("Putting It All Together"): "going upstream, Aurora will then consider other boxes, until either it
   considers a box whose queue is not in memory or it runs out of boxes". So the boxes behind such a queue run, and so
   does its own box, on the part that is in memory; the boxes that feed it give no tuples, because their output would
   only go to disk. If nothing waits behind it in memory, they run all the same: a plan must do some work.
4. End the superbox at a queue that is partly on disk: a train that bypassed it would overtake the part on disk.

Only the thread that has the scheduler's turn calls this (``loop``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from scheduler.deadlines import dead_at_head
from scheduler.events import Claimed, Expired
from scheduler.plan import Plan, Step
from scheduler.state import SchedulerState
from storage.train import Train


class Claim(NamedTuple):
    """Trains taken from an arc for a plan. ``emptied``: nothing was left, so later tuples may bypass the queue."""

    trains: list[Train]
    emptied: bool


class QueuedPlan(NamedTuple):
    """An entry of the execution queue. Without a plan it ends the worker that takes it."""

    plan: Plan | None
    claims: dict[int, Claim]  # by arc


class Storage(Protocol):
    """The storage manager as the scheduler sees it."""

    @property
    def has_room(self) -> bool: ...

    @property
    def spilled_arcs(self) -> int:
        """How many arcs have a part on disk."""

    @property
    def wants_rank(self) -> bool:
        """Whether it spills, and so needs to know which queues matter least."""

    def is_spilled(self, arc: int) -> bool: ...

    def rank(self, arcs: Sequence[int]) -> None:
        """Take the order in which the policy would serve the arcs; the last ones go to disk first."""

    def take(self, arc: int, tuples: int, trains: int) -> tuple[list[Train], int, int]:
        """Take at most so much from the head; return the trains, their tuples, and how many trains left the queue."""

    def expire(self, arc: int, tuples: int, trains: int) -> tuple[list[Train], int, int]:
        """Drop tuples from the head; return what must still reach the box (a watermark), the tuples that were dropped,
        and how many trains left the queue."""


class Claims:
    """Takes a plan's trains from the queues. Owner: the thread that has the scheduler's turn."""

    def __init__(self, state: SchedulerState, storage: Storage) -> None:
        self._state = state
        self._storage = storage
        self.hopeless_ns: Mapping[int, int] = {}  # by arc: the age from which no output can be reached in time

    def take(self, plan: Plan, now_ns: int) -> dict[int, Claim]:
        """Take what the plan asks for, by arc."""
        state, storage = self._state, self._storage
        claims: dict[int, Claim] = {}
        for a, tuples in plan.expired:
            self._expire(a, tuples, claims)
        if self.hopeless_ns:
            self._expire_hopeless(plan, now_ns, claims)
        takes = plan.takes
        for box, limit in self._in_memory(plan) if storage.spilled_arcs else plan.claims:
            for a in state.network.boxes[box].in_arcs:
                arc = state.arcs[a]
                if arc.entries:
                    tuples = limit if takes is None else takes.get(a, 0)
                    # Never more than the state knows of: a train may be in storage whose event is still on its way.
                    trains, taken, whole = storage.take(a, min(tuples, arc.tuples), len(arc.entries))
                    state.apply(Claimed(a, taken, whole))
                    if a in claims:
                        trains = claims[a].trains + trains
                    claims[a] = Claim(trains, not arc.entries)
        if storage.spilled_arcs:
            self._stop_at_disk(plan, claims)
        return claims

    def _in_memory(self, plan: Plan) -> Sequence[Step]:
        """Return the claims of the plan without the boxes upstream of a queue on disk, as far as the others have
        something to take."""
        network, is_spilled = self._state.network, self._storage.is_spilled
        members = set(plan.boxes)
        upstream: set[int] = set()
        for box in sorted(members, reverse=True):  # a box's number is above those of its feeders
            for a in network.boxes[box].in_arcs:
                feeder = network.arcs[a].source.box
                if feeder is not None and feeder in members and (box in upstream or is_spilled(a)):
                    upstream.add(feeder)
        nearer = [claim for claim in plan.claims if claim.box not in upstream]
        return nearer if any(self._takes_some(plan, claim) for claim in nearer) else plan.claims

    def _takes_some(self, plan: Plan, claim: Step) -> bool:
        for a in self._state.network.boxes[claim.box].in_arcs:
            entries = self._state.arcs[a].entries
            limit = claim.tuples if plan.takes is None else plan.takes.get(a, 0)
            if entries and (limit > 0 or not entries[0].tuples):
                return True
        return False

    def _expire(self, a: int, tuples: int, claims: dict[int, Claim]) -> None:
        """Drop tuples from the head of an arc. A watermark among them still goes to the box."""
        arc = self._state.arcs[a]
        left, dropped, whole = self._storage.expire(a, tuples, len(arc.entries))
        self._state.apply(Expired(a, dropped, whole))
        before = claims[a].trains if a in claims else []
        claims[a] = Claim(before + left, not arc.entries)

    def _expire_hopeless(self, plan: Plan, now_ns: int, claims: dict[int, Claim]) -> None:
        """Drop the tuples at the heads of the plan's queues that will not reach any output in time."""
        state = self._state
        for box, _ in plan.claims:
            for a in state.network.boxes[box].in_arcs:
                age_ns = self.hopeless_ns.get(a)
                if age_ns is None or not (entries := state.arcs[a].entries):
                    continue
                dead = dead_at_head(entries, now_ns - age_ns)
                if dead:
                    self._expire(a, min(dead, state.arcs[a].tuples), claims)

    def _stop_at_disk(self, plan: Plan, claims: dict[int, Claim]) -> None:
        """Mark the queues of which a part is on disk as not emptied: no train of the plan bypasses them."""
        for box in plan.boxes:
            for a in self._state.network.boxes[box].in_arcs:
                if self._storage.is_spilled(a):
                    claims[a] = Claim(claims[a].trains if a in claims else [], False)
