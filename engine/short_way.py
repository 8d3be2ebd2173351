"""The short way: a few tuples that find the engine at rest pass without a queue and without a decision.

At some thousand tuples a second that is how most of them find it. When nothing waits and nothing runs, a train for one
superbox leaves the scheduler no choice: every policy would give the same plan, at once. So the thread that brings it
takes the scheduler's turn, and keeps it while it runs that plan: nobody can decide anything meanwhile, and what the
plan puts on queues is news for the next turn, as always. A tuple then costs 20 us less of the 50 that it took.

Taken only where nobody could tell the difference: the unit is a superbox of boxes that are done at once, all that the
stream feeds is in it, the train is no longer than the train rule allows, no output holds the unit, nothing is on disk,
the policy does not learn from plans, and no probe of ``aurorad explain`` is long due. The arc's law holds: what goes
past a queue is counted in and out of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter_ns
from typing import TYPE_CHECKING

from catalog.network import Stream
from scheduler.loop import SHORT_TUPLES, Claim
from scheduler.plan import Plan, Step
from scheduler.state import SchedulerState
from scheduler.trains import LEAST_TUPLES
from storage.queue import ALL
from storage.train import Train

if TYPE_CHECKING:
    from engine.core import Engine

AT_REST_NS = 200_000_000
"""A probe that is due waits that long for a train that has to wait itself. Who finds the engine at rest has little to
tell, and the long way would make four in a hundred of them four times as slow as the others: five a second will do."""


class ShortWay:
    """One stream's. Owner: the thread that admits it; ``enter`` and ``run`` one after the other."""

    def __init__(self, engine: Engine, arcs: tuple[int, ...], plan: Plan, unit: int) -> None:
        self._engine = engine
        self._loop = engine.loop
        self._arcs = arcs
        self._plan = plan
        self._unit = unit
        self._boxes = tuple(b for a in arcs if (b := engine.network.arcs[a].box) is not None)
        self._train: Train | None = None  # that has entered, until it is run

    def enter(self, arcs: tuple[int, ...], train: Train) -> bool:
        """Whether the train goes this way: the turn is ours then, until ``run`` has run it."""
        engine = self._engine
        if not 0 < train.count <= SHORT_TUPLES or arcs != self._arcs or engine.storage.cut_arcs:
            return False
        journeys = engine.journeys
        if journeys is not None and (journeys.rides or train.arrival_ns.item(0) >= journeys.due_ns + AT_REST_NS):
            return False
        if train.count > LEAST_TUPLES and train.count > min(map(engine.state.auto_tuples.__getitem__, self._boxes)):
            return False
        if not self._loop.begin_rest(self._unit):
            return False
        engine.storage.pass_by(arcs, train.count)
        self._train = train
        return True

    def run(self) -> None:
        """Run what has entered, if anything has."""
        train, self._train = self._train, None
        if train is None:
            return
        begun_ns = perf_counter_ns()
        try:
            self._engine.pool.work(self._plan, {arc: Claim([train], True) for arc in self._arcs})
        finally:
            self._loop.end_rest()
        self._engine.lent_ns += perf_counter_ns() - begun_ns


def short_ways(engine: Engine) -> list[ShortWay | None]:
    """By stream; None where there is none."""
    ways = [short_plan(engine.state, stream) for stream in engine.network.streams]
    return [None if way is None else ShortWay(engine, *way) for way in ways]


def short_plan(state: SchedulerState, stream: Stream) -> tuple[tuple[int, ...], Plan, int] | None:
    """The arcs of a stream, the plan that every policy would give a train on them at rest, and its unit; None where
    that is not so. The simulator asks too."""
    network, settings = state.network, state.settings
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
    """The boxes of a unit that tuples for ``starts`` can reach, each after its feeders: what min_cost would run."""
    live: set[int] = set()
    for box in state.unit_boxes[unit]:
        if box in starts or not live.isdisjoint(state.network.feeders[box]):
            live.add(box)
    return [box for box in state.unit_boxes[unit] if box in live]
