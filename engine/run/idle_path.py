"""The idle fast path: a few tuples that find the engine at rest pass without a queue and without a decision.

At some thousand tuples a second most tuples find the engine at rest. When nothing waits and nothing runs, a train for
one superbox leaves the scheduler no choice: every policy would return the same plan, at once. So the I/O thread, which
brings the train, takes the scheduler's turn and keeps it while it runs that plan. No other decision is made
meanwhile. Trains that the plan puts on queues are news for the next turn, as always. A tuple costs 30 us this way
instead of 50.

A train takes this path only where the result is the same: the unit is a superbox of boxes that finish at once; the
unit contains everything that the stream feeds; the train is no longer than the train rule allows; no blocked output
stops the unit; no queue has a part on disk; the policy does not learn from plans; and no probe of ``aurorad explain``
is long due. The arc's conservation law holds: storage counts a train that passes a queue by both in and out of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from catalog.network import Stream
from engine.run.journeys.recorder import Journeys
from engine.run.worker import WorkerPool
from scheduler.claims import Claim
from scheduler.loop import SHORT_TUPLES, SchedulerLoop
from scheduler.plan import Plan, Step
from scheduler.state import SchedulerState
from scheduler.trains import LEAST_TUPLES
from storage.manager import StorageManager
from storage.queue import ALL
from storage.train import Train

AT_REST_NS = 200_000_000
"""How long a due probe waits for a train that takes the way of the queues. A probe forces its train off the fast path,
which would make four tuples in a hundred four times as slow, and a tuple that finds the engine at rest has little to
explain. Five such probes a second are enough."""


class IdlePath:
    """The fast path of one stream. Owner: the I/O thread, which calls ``enter`` and then ``run``."""

    def __init__(
        self,
        loop: SchedulerLoop,
        storage: StorageManager,
        pool: WorkerPool,
        journeys: Journeys | None,
        arcs: tuple[int, ...],
        plan: Plan,
        unit: int,
    ) -> None:
        self._loop = loop
        self._storage = storage
        self._pool = pool
        self._journeys = journeys
        self._arcs = arcs
        self._plan = plan
        self._unit = unit
        self._state = loop.state
        self._boxes = tuple(b for a in arcs if (b := loop.state.network.arcs[a].box) is not None)
        self._train: Train | None = None  # that has entered and has not run yet

    def enter(self, arcs: tuple[int, ...], train: Train) -> bool:
        """Take the train if it may go this way. This thread then has the scheduler's turn until ``run`` has ended."""
        if not 0 < train.count <= SHORT_TUPLES or arcs != self._arcs or self._storage.spilled_arcs:
            return False
        journeys = self._journeys
        if journeys is not None and (journeys.probed_plans or train.arrival_ns.item(0) >= journeys.due_ns + AT_REST_NS):
            return False
        if train.count > LEAST_TUPLES and train.count > min(map(self._state.auto_tuples.__getitem__, self._boxes)):
            return False
        if not self._loop.acquire_if_idle(self._unit):
            return False
        self._storage.pass_by(arcs, train.count)
        self._train = train
        return True

    def run(self) -> None:
        """Run the train that has entered, if any."""
        train, self._train = self._train, None
        if train is None:
            return
        try:
            self._pool.run_for_caller(self._plan, {arc: Claim([train], True) for arc in self._arcs})
        finally:
            self._loop.release()


def idle_paths(
    loop: SchedulerLoop, storage: StorageManager, pool: WorkerPool, journeys: Journeys | None
) -> list[IdlePath | None]:
    """Return the fast path of each stream; None for a stream that has none."""
    plans = [idle_plan(loop.state, stream) for stream in loop.state.network.streams]
    return [None if plan is None else IdlePath(loop, storage, pool, journeys, *plan) for plan in plans]


def idle_plan(state: SchedulerState, stream: Stream) -> tuple[tuple[int, ...], Plan, int] | None:
    """Return a stream's arcs, the plan that every policy returns for a train on them at rest, and its unit.

    None where policies may differ, or where the network file switches the path off. The simulator calls this too.
    """
    network, settings = state.network, state.settings
    if not settings.idle_fast_path:
        return None
    usual = settings.unit == "superbox" and not settings.spanner and settings.train.kind == "auto"
    if not usual or settings.traversal not in ("min_cost", "auto"):
        return None
    arcs = tuple(a for a in stream.arcs if network.arcs[a].box is not None)
    starts = {b for a in arcs if (b := network.arcs[a].box) is not None}
    units = {state.unit_of[box] for box in starts}
    boxes = reached(state, units.pop(), starts) if len(units) == 1 else ()
    if not boxes or not all(getattr(network.boxes[b].box, "is_prompt", False) for b in boxes):
        return None
    return arcs, Plan(tuple(Step(box, ALL) for box in boxes)), state.unit_of[boxes[0]]


def reached(state: SchedulerState, unit: int, starts: set[int]) -> Sequence[int]:
    """Return the boxes of a unit that tuples for ``starts`` can reach, each after its feeders, as min_cost does."""
    live: set[int] = set()
    for box in state.unit_boxes[unit]:
        if box in starts or not live.isdisjoint(state.network.feeders[box]):
            live.add(box)
    return [box for box in state.unit_boxes[unit] if box in live]
