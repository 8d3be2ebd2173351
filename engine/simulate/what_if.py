"""What would happen from here on under another policy: short simulations that start from the state of this moment.

A ``Snapshot`` is what is known now: the statistics, what waits on which arc since when, and how fast tuples come. The
simulation of a candidate begins with the same queues, gets the same made-up arrivals for a *horizon*, and runs until
everything is out. What comes at first only sets the scene: what waits now is lost or won whoever goes on, and what
counts is where a policy leads. What comes at last only keeps up the pressure on what came before. The horizon covers
the graphs twice over (a shorter one would not see what waiting costs in the end), within a limit on the trains.

Two rounds keep it cheap: a short one for all candidates, a long one for those that did well. A candidate that takes far
more steps than the trains would ask for (``edf`` on long trains) is given up: no forecast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from typing import NamedTuple

import numpy as np

from catalog.network import Network
from catalog.stats import Statistics
from engine.simulate.arrivals import Trains, poisson
from engine.simulate.core import Overheads, Simulation
from engine.simulate.measure import summary
from engine.simulate.storage import SimulatedTrain
from scheduler.choice import Forecast, finalists
from scheduler.policies import policies
from scheduler.state import SchedulerSettings, SchedulerState
from scheduler.superbox import static_superboxes

LEAST_NS, MOST_NS = 250_000_000, 10_000_000_000  # of the horizon
VISITS = (1_500, 10_000)  # of trains to superboxes, at most, in the short round and in the long one
STEPS_A_VISIT = 3  # a candidate that needs more is given up
LONG_ENOUGH = 0.9  # a short round that sees so much of the long one is all that is needed
SCENE, PRESSURE = 0.25, 0.35  # of the horizon, at its start and at its end
ENTRIES_AT_MOST = 64  # by arc; more are taken together
SLICE_NS = 100_000_000


class Waiting(NamedTuple):
    """Tuples on an arc that came together."""

    arc: int
    tuples: int
    first_ns: int
    mean_ns: int


class Snapshot(NamedTuple):
    now_ns: int
    waiting: tuple[Waiting, ...]
    rates_per_s: tuple[float, ...]  # by stream, tuples
    reads: tuple[float, ...]  # by stream, tuples that come together


def waiting_now(state: SchedulerState) -> tuple[Waiting, ...]:
    """What is on the arcs. By who has the scheduler's turn."""
    out: list[Waiting] = []
    for number, arc in enumerate(state.arcs):
        if not arc.tuples:
            continue
        entries = [e for e in arc.entries if e.tuples]
        step = -(-len(entries) // ENTRIES_AT_MOST)
        for i in range(0, len(entries), step):
            part = entries[i : i + step]
            tuples = sum([e.tuples for e in part])
            mean_ns = sum([e.mean_arrival_ns * e.tuples for e in part]) // tuples
            out.append(Waiting(number, tuples, part[0].first_arrival_ns, mean_ns))
    return tuple(out)


def horizon_ns(network: Network, snapshot: Snapshot, visits_at_most: int) -> int:
    span_ns = max((o.qos.latency.points[-1][0] for o in network.outputs if o.qos.latency is not None), default=0.0)
    trains_per_s = sum(r / max(n, 1.0) for r, n in zip(snapshot.rates_per_s, snapshot.reads, strict=True))
    affordable_ns = visits_at_most / max(trains_per_s * visits_a_train(network), 1e-9) * 1e9
    return int(min(max(LEAST_NS, min(MOST_NS, 2 * span_ns)), max(affordable_ns, LEAST_NS / 10)))


def visits_a_train(network: Network) -> float:
    """Superboxes by stream: about how many plans a train that comes in leads to."""
    return max(1.0, len(static_superboxes(network)) / max(1, len(network.streams)))


def arrivals_ahead(snapshot: Snapshot, duration_ns: int, seed: Sequence[int]) -> dict[int, Trains]:
    """Tuples as they have been coming, by Poisson, from now on."""
    out: dict[int, Trains] = {}
    for stream, (rate, read) in enumerate(zip(snapshot.rates_per_s, snapshot.reads, strict=True)):
        if rate <= 0:
            continue
        together = max(1, round(read))
        times = poisson(np.random.default_rng([*seed, stream]), rate / together, duration_ns)
        out[stream] = times + snapshot.now_ns, np.full(times.shape[0], together, np.int64)
    return out


class WhatIf:
    """Forecasts for one network. ``breathe`` is called now and then, for a thread that must let others work."""

    def __init__(
        self,
        network: Network,
        *,
        settings: SchedulerSettings,
        workers: int,
        overheads: Overheads | None = None,
        seed: int = 0,
        breathe: Callable[[], None] = lambda: None,
    ) -> None:
        self._network = network
        self._settings = settings
        self._workers = workers
        self._overheads = overheads or Overheads()
        self._seed = seed
        self._breathe = breathe
        self._asked = 0

    def forecasts(
        self, snapshot: Snapshot, statistics: Statistics, names: Iterable[str], current: str
    ) -> list[Forecast]:
        """Every candidate on the same arrivals, which are new each time."""
        self._asked += 1
        frozen = deepcopy(statistics)
        short, long = VISITS
        found = self._round(names, snapshot, frozen, short)
        if horizon_ns(self._network, snapshot, short) >= LONG_ENOUGH * horizon_ns(self._network, snapshot, long):
            return found
        return self._round(finalists(current, found), snapshot, frozen, long)

    def _round(self, names: Iterable[str], snapshot: Snapshot, statistics: Statistics, visits: int) -> list[Forecast]:
        duration_ns = horizon_ns(self._network, snapshot, visits)
        trains = arrivals_ahead(snapshot, duration_ns, (self._seed, self._asked))
        found = [self._one(name, snapshot, statistics, trains, duration_ns) for name in names]
        return [f for f in found if f is not None]

    def _one(
        self,
        name: str,
        snapshot: Snapshot,
        statistics: Statistics,
        trains: Mapping[int, Trains],
        duration_ns: int,
    ) -> Forecast | None:
        simulation = Simulation(
            self._network,
            policies()[name],
            trains,
            statistics=statistics,
            settings=self._settings,
            workers=self._workers,
            overheads=self._overheads,
            start_ns=snapshot.now_ns,
            warm_up_ns=snapshot.now_ns + int(duration_ns * SCENE),
            count_until_ns=snapshot.now_ns + int(duration_ns * (1 - PRESSURE)),
        )
        for arc, tuples, first_ns, mean_ns in snapshot.waiting:
            simulation.put(arc, SimulatedTrain(tuples, first_ns, 2 * mean_ns - first_ns, mean_ns))
        visits = sum(len(t) for t, _ in trains.values()) * visits_a_train(self._network) + len(snapshot.waiting)
        steps_at_most = int(STEPS_A_VISIT * visits) + 500
        until_ns = snapshot.now_ns
        while not simulation.is_done:
            until_ns += SLICE_NS
            simulation.run(until_ns)
            self._breathe()
            if simulation.totals.plans > steps_at_most:
                return None
        simulation.count_expired()
        quality = summary(simulation.recorders)
        return Forecast(name, quality.utility, quality.mean_ns)
