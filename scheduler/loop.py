"""The scheduler's thread: drain events, apply them, ask the policy, claim trains, put the plan on the execution queue.

Deciding is the policy's; this file only does. It is one function on purpose, to be read from top to bottom. The
execution queue stays short (two plans a worker), so that decisions are fresh: a plan that waits behind ten others was
decided on a state that is gone.
"""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from typing import NamedTuple, Protocol

from catalog.readings import DECISION_BOUNDS_NS, decision_bucket
from scheduler.events import Claimed, Clock, Dispatched, Expired, Measured, MemoryShort
from scheduler.mailbox import Mailbox
from scheduler.plan import Plan
from scheduler.policies import Policy, make_index
from scheduler.state import SchedulerState
from storage.train import Train

PLANS_PER_WORKER = 2
MEASURED_EVERY_NS = 1_000_000_000
"""How often priorities are drawn anew from the statistics: they move within seconds, and it costs all boxes."""


class Claim(NamedTuple):
    """Trains taken from an arc for a plan. ``emptied``: nothing was left, so later tuples may bypass the queue."""

    trains: list[Train]
    emptied: bool


class Work(NamedTuple):
    """An entry of the execution queue. ``plan`` None tells a worker to end."""

    plan: Plan | None
    claims: dict[int, Claim]  # by arc


class Storage(Protocol):
    """What the loop needs of the storage manager."""

    @property
    def has_room(self) -> bool: ...

    def take(self, arc: int, tuples: int, trains: int) -> tuple[list[Train], int, int]: ...

    def expire(self, arc: int, tuples: int, trains: int) -> tuple[list[Train], int, int]:
        """Drop this many from the head; what must still reach the box (a watermark), tuples dropped, trains gone."""


class SchedulerLoop:
    """Owner of the SchedulerState. ``run`` is the scheduler's thread; others only post to its mailbox."""

    def __init__(
        self,
        state: SchedulerState,
        policy: Policy,
        storage: Storage,
        execution_queue: SimpleQueue[Work],
        workers: int,
        now_ns: Callable[[], int],
        clock_ns: Callable[[], int],
    ) -> None:
        self.state = state
        self.policy = policy
        self.storage = storage
        self.execution_queue = execution_queue
        self.plans_at_most = PLANS_PER_WORKER * workers
        self.now_ns = now_ns  # wall clock: what arrival stamps are in
        self.clock_ns = clock_ns  # monotonic: for our own costs
        self.mailbox = Mailbox()
        self.steps = 0
        self.decision_ns = 0  # in the policy and the state
        self.decision_counts = [0] * (len(DECISION_BOUNDS_NS) + 1)
        self.storage_ns = 0  # in claiming trains
        self._measured_ns: int | None = None  # when the statistics were last looked at
        state.follow(make_index(policy))

    def stop(self) -> None:
        """The loop ends when it has read everything that was posted before."""
        self.mailbox.post(None)

    def run(self) -> None:
        state, apply = self.state, self.state.apply
        while True:
            self.mailbox.sleep(hungry=state.outstanding < self.plans_at_most)
            begun_ns = self.clock_ns()
            for event in self.mailbox.drain():
                if event is None:
                    return
                apply(event)
            while state.outstanding < self.plans_at_most:
                plan = self.decide(self.now_ns())
                if plan is None:
                    break
                decided_ns = self.clock_ns()
                self.dispatch(plan)
                self.steps += 1
                self.decision_ns += decided_ns - begun_ns
                self.decision_counts[decision_bucket(decided_ns - begun_ns)] += 1
                begun_ns = self.clock_ns()
                self.storage_ns += begun_ns - decided_ns
            self.decision_ns += self.clock_ns() - begun_ns

    def decide(self, now_ns: int) -> Plan | None:
        """Ask the policy."""
        state = self.state
        if self._measured_ns is None or now_ns - self._measured_ns > MEASURED_EVERY_NS:
            self._look_around(now_ns)
        if state.index is not None:
            state.apply(Clock(now_ns))
        return self.policy(state, now_ns)

    def dispatch(self, plan: Plan) -> None:
        """Take what the plan asks for and hand it to the workers."""
        state = self.state
        claims: dict[int, Claim] = {}
        state.apply(Dispatched(plan))
        for a, tuples in plan.expired:
            left, dropped, whole = self.storage.expire(a, tuples, len(state.arcs[a].entries))
            state.apply(Expired(a, dropped, whole))
            claims[a] = Claim(left, not state.arcs[a].entries)
        takes = plan.takes
        for box, limit in plan.claims:
            for a in state.network.boxes[box].in_arcs:
                arc = state.arcs[a]
                if arc.entries:
                    tuples = limit if takes is None else takes.get(a, 0)
                    # Never more than the state knows of: a train may be in storage whose event is still on its way.
                    trains, taken, whole = self.storage.take(a, min(tuples, arc.tuples), len(arc.entries))
                    state.apply(Claimed(a, taken, whole))
                    if a in claims:
                        trains = claims[a].trains + trains
                    claims[a] = Claim(trains, not arc.entries)
        self.execution_queue.put(Work(plan, claims))

    def _look_around(self, now_ns: int) -> None:
        """What changes by itself: the statistics, and whether there is room."""
        state = self.state
        if self._measured_ns is not None:
            state.apply(Measured())
        self._measured_ns = now_ns
        if state.memory_short == self.storage.has_room:
            state.apply(MemoryShort(not self.storage.has_room))
