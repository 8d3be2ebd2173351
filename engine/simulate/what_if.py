"""Forecasts: short simulations of the next seconds under each candidate policy, from the state of this moment.

A ``Snapshot`` holds what is known now: which tuples wait on which arc and since when, and how fast tuples come. The
simulation of a candidate starts with the same queues, repeats the recent arrivals for a *horizon*, and runs until
everything is out.

- Arrivals at the start of the horizon are not counted (``SCENE``). They are served together with the backlog of this
  moment, which is the same for every policy; the forecast is about where a policy leads.
- Arrivals at the end are not counted either (``PRESSURE``). They only compete with the tuples before them.
- The shed plan in force drops what it drops, under every candidate alike. Without it every policy would be judged by
  how it drowns.
- The horizon covers the longest latency graph twice; a shorter one would not see what waiting costs in the end. It also
  covers twice the age of the oldest waiting tuple; otherwise every policy would be judged by how it clears the same
  backlog. A limit on the number of steps bounds it.

Two rounds keep it cheap: a short one for all candidates, and a long one for those that did well (for all, where the
short one was too short to see a tuple). A candidate that takes far more steps than expected (``edf`` on long trains) is
abandoned, and has no forecast. When the first candidates are all abandoned, the expected number of steps was too low:
the number that they took says how far ahead the next try may look.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import NamedTuple

import numpy as np

from catalog.loss import ValueCells
from catalog.network import Network
from catalog.stats import Statistics
from engine.simulate.arrivals import Trains, poisson
from engine.simulate.core import Simulation
from engine.simulate.overheads import Overheads
from engine.simulate.quality import mean_by_output, summary
from engine.simulate.storage import SimulatedTrain
from load_shedder.shed_plan import NOTHING_SHED, ShedPlan
from scheduler.choice import Forecast, finalists
from scheduler.policies import policies
from scheduler.state import SchedulerSettings, SchedulerState

LEAST_NS, MOST_NS = 250_000_000, 10_000_000_000  # bounds of the horizon
STEPS = (1_500, 10_000)  # expected steps of a candidate in the short round and in the long one
DEARER = 4  # a candidate that needs this many times the expected steps is abandoned
GIVEN_UP, TRIES = 1, 4  # when more candidates than this are abandoned first, the round is repeated; at most so often
ENOUGH_NS = 500_000_000  # of recent arrivals, to take them as a forecast of the arrivals to come
RECENT_NS = MOST_NS
LONG_ENOUGH = 0.9  # a short round that covers this share of the long one replaces it
SCENE, PRESSURE = 0.25, 0.35  # shares of the horizon, at its start and at its end, whose arrivals are not counted
ENTRIES_AT_MOST = 64  # by arc; more are merged
SLICE_NS, BRIEF_SLICE_NS = 100_000_000, 5_000_000


class WaitingTuples(NamedTuple):
    """Tuples that wait on an arc and arrived together."""

    arc: int
    tuples: int
    first_ns: int
    mean_ns: int


class Snapshot(NamedTuple):
    """What is known of an engine at one moment."""

    now_ns: int
    waiting: tuple[WaitingTuples, ...]
    rates_per_s: tuple[float, ...]  # by stream, tuples
    reads: tuple[float, ...]  # by stream, tuples in one read
    recent: Mapping[int, Trains] = {}  # by stream, the recent arrivals; empty: unknown
    recent_ns: int = 0  # the time that they span, until now
    plan: ShedPlan = NOTHING_SHED  # in force
    values: Mapping[int, ValueCells] = {}  # by arc: the worth of its tuples, where the plan drops by value


def waiting_now(state: SchedulerState) -> tuple[WaitingTuples, ...]:
    """Copy the tuples on all arcs. Only for the thread that has the scheduler's turn."""
    out: list[WaitingTuples] = []
    for number, arc in enumerate(state.arcs):
        if not arc.tuples:
            continue
        entries = [e for e in arc.entries if e.tuples]
        step = -(-len(entries) // ENTRIES_AT_MOST)
        for i in range(0, len(entries), step):
            part = entries[i : i + step]
            tuples = sum([e.tuples for e in part])
            mean_ns = sum([e.mean_arrival_ns * e.tuples for e in part]) // tuples
            out.append(WaitingTuples(number, tuples, part[0].first_arrival_ns, mean_ns))
    return tuple(out)


def horizon_ns(network: Network, snapshot: Snapshot, steps_at_most: float, steps_a_train: float) -> int:
    """Return how far ahead to simulate with about this many steps."""
    span_ns = max((o.qos.latency.points[-1][0] for o in network.outputs if o.qos.latency is not None), default=0.0)
    trains_per_s = sum(r / max(n, 1.0) for r, n in zip(snapshot.rates_per_s, snapshot.reads, strict=True))
    affordable_ns = steps_at_most / max(trains_per_s * steps_a_train, 1e-9) * 1e9
    oldest_ns = max((snapshot.now_ns - w.first_ns for w in snapshot.waiting), default=0)
    wanted_ns = min(MOST_NS, max(LEAST_NS, 2 * span_ns, 2 * oldest_ns))
    return int(min(wanted_ns, max(affordable_ns, LEAST_NS / 10)))


def arrivals_ahead(snapshot: Snapshot, duration_ns: int, seed: Sequence[int]) -> dict[int, Trains]:
    """Repeat the recent arrivals for this duration; where too few are known, draw a Poisson process of the same
    rate."""
    if snapshot.recent_ns >= ENOUGH_NS:
        times = -(-duration_ns // snapshot.recent_ns)
        return {stream: _again(trains, snapshot, times, duration_ns) for stream, trains in snapshot.recent.items()}
    out: dict[int, Trains] = {}
    for stream, (rate, read) in enumerate(zip(snapshot.rates_per_s, snapshot.reads, strict=True)):
        if rate <= 0:
            continue
        together = max(1, round(read))
        moments = poisson(np.random.default_rng([*seed, stream]), rate / together, duration_ns)
        out[stream] = moments + snapshot.now_ns, np.full(moments.shape[0], together, np.int64)
    return out


def _again(trains: Trains, snapshot: Snapshot, times: int, duration_ns: int) -> Trains:
    moments, counts = trains
    first_ns = snapshot.now_ns - snapshot.recent_ns
    rounds = np.arange(1, times + 1)[:, None] * snapshot.recent_ns
    ahead = (moments[None, :] + rounds).ravel()
    kept = (ahead >= snapshot.now_ns) & (ahead < snapshot.now_ns + duration_ns) & (np.tile(moments, times) >= first_ns)
    return ahead[kept], np.tile(counts, times)[kept]


class WhatIf:
    """Forecasts for one network.

    ``let_others_work`` is called after every 5 ms of virtual time; a daemon's other threads get the GIL there. A
    simulation, which has no other threads, needs none. ``steps`` are the expected steps of a candidate in both rounds.
    """

    def __init__(
        self,
        network: Network,
        *,
        settings: SchedulerSettings,
        workers: int,
        overheads: Overheads | None = None,
        seed: int = 0,
        let_others_work: Callable[[], None] | None = None,
        steps: tuple[int, int] | None = None,
    ) -> None:
        self._steps = steps
        self._network = network
        self._settings = settings
        self.workers = workers  # at work now
        self._overheads = overheads or Overheads()
        self._seed = seed
        self._let_others_work = let_others_work
        self._asked = 0
        self._steps_a_train = 1.0  # as the last round found it

    def forecasts(
        self, snapshot: Snapshot, statistics: Statistics, names: Sequence[str], current: str
    ) -> list[Forecast]:
        """Forecast every candidate on the same arrivals, in the order of ``names``."""
        self._asked += 1
        frozen = deepcopy(statistics)
        short, long = self._steps or STEPS
        found, seen = self._try(names, snapshot, frozen, short)
        if seen and self._horizon_ns(snapshot, short) >= LONG_ENOUGH * self._horizon_ns(snapshot, long):
            return found
        found, seen = self._try(finalists(current, found) if seen else names, snapshot, frozen, long)
        return found if seen else []

    def _try(
        self, names: Sequence[str], snapshot: Snapshot, statistics: Statistics, steps: int
    ) -> tuple[list[Forecast], bool]:
        """Return the forecasts of a round, and whether it counted any tuple. Repeat it with a shorter horizon while all
        candidates are abandoned."""
        for _ in range(TRIES):
            found, counted = self._round(names, snapshot, statistics, steps)
            if found:
                return found, counted > 0
        return [], False

    def _horizon_ns(self, snapshot: Snapshot, steps: int) -> int:
        return horizon_ns(self._network, snapshot, steps, self._steps_a_train)

    def _round(
        self, names: Sequence[str], snapshot: Snapshot, statistics: Statistics, steps: int
    ) -> tuple[list[Forecast], int]:
        """Simulate one candidate after the other. Return their forecasts and the number of tuples that counted.

        The fewest steps that any of them took for a train set the next horizon.
        """
        duration_ns = self._horizon_ns(snapshot, steps)
        trains = arrivals_ahead(snapshot, duration_ns, (self._seed, self._asked))
        came = sum(len(moments) for moments, _ in trains.values()) + len(snapshot.waiting)
        found: dict[str, Forecast] = {}
        fewest: int | None = None
        counted = 0
        for number, name in enumerate(names):
            simulation = self._simulate(name, snapshot, statistics, trains, duration_ns, DEARER * steps)
            if not simulation.is_done:
                if number >= GIVEN_UP and fewest is None:
                    began = sum(simulation.came_trains) + len(snapshot.waiting)
                    self._steps_a_train = max(2 * self._steps_a_train, simulation.totals.plans / max(1, began))
                    return [], 0
                continue
            taken = simulation.totals.plans
            fewest = taken if fewest is None else min(fewest, taken)
            simulation.count_expired()
            quality = summary(simulation.recorders)
            counted = max(counted, quality.tuples)
            utility = mean_by_output(simulation.recorders)
            memory_bytes = simulation.storage.byte_ns / max(simulation.now_ns - snapshot.now_ns, 1)
            found[name] = Forecast(name, utility, quality.mean_ns, quality.slowdown_mean, memory_bytes)
        if fewest is None:
            self._steps_a_train *= DEARER
        elif came:
            self._steps_a_train = max(1.0, fewest / came)
        return list(found.values()), counted

    def _simulate(
        self,
        name: str,
        snapshot: Snapshot,
        statistics: Statistics,
        trains: Mapping[int, Trains],
        duration_ns: int,
        steps_at_most: int,
    ) -> Simulation:
        """Simulate the network under a policy from now on. The simulation is not done if it took too many steps."""
        simulation = Simulation(
            self._network,
            policies()[name],
            trains,
            statistics=statistics,
            settings=self._settings,
            workers=self.workers,
            overheads=self._overheads,
            start_ns=snapshot.now_ns,
            warm_up_ns=snapshot.now_ns + int(duration_ns * SCENE),
            count_until_ns=snapshot.now_ns + int(duration_ns * (1 - PRESSURE)),
        )
        simulation.execution.drops.put(snapshot.plan, snapshot.values)
        simulation.loop.dead_points = simulation.expiry.points(snapshot.plan.outputs)
        for arc, tuples, first_ns, mean_ns in snapshot.waiting:
            simulation.put(arc, SimulatedTrain(tuples, first_ns, 2 * mean_ns - first_ns, mean_ns))
        until_ns = snapshot.now_ns
        slice_ns = SLICE_NS if self._let_others_work is None else BRIEF_SLICE_NS
        while not simulation.is_done:
            until_ns += slice_ns
            simulation.run(until_ns)
            if self._let_others_work is not None:
                self._let_others_work()
            if simulation.totals.plans > steps_at_most:
                break
        return simulation
