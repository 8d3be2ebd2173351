"""The simulation held against the engine itself: the same network, the same arrivals, in real time.

The engine runs in this process on made-up tuples, fed when the simulated arrivals say; what its boxes cost while it
runs is what the simulation then reckons with. So what is compared is the simulator's idea of queues, plans and
overheads, and not its guess of costs. Takes as long as it says, on a machine that has nothing else to do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from time import perf_counter_ns, sleep, time_ns
from typing import NamedTuple

import numpy as np

from catalog.readings import LatencyReading
from catalog.stats import Statistics
from engine.core import Engine
from engine.simulate.arrivals import Trains
from engine.simulate.calibrate import counts, make_train, measure_costs, measure_overheads
from engine.simulate.core import merge
from engine.simulate.experiment import Experiment, Run, capacity_rates, draw, run_one
from qos_monitor.histogram import LatencyRecorder
from storage.train import Train, constant_ns

TICK_NS = 100_000_000
POOL = 8  # made-up trains of each length, used again and again
DRAIN_S = 30.0


class Measured(NamedTuple):
    """What the engine did at one load."""

    p50_ns: float
    utility: float
    fed_ratio: float  # of the arrivals, how many could be fed in time


class Comparison(NamedTuple):
    policy: str
    load: float
    engine: Measured
    simulated: Run

    @property
    def p50_error(self) -> float:
        """How far the simulation is off, as a share of what the engine did."""
        return abs(self.simulated.overall.p50_ns - self.engine.p50_ns) / max(self.engine.p50_ns, 1.0)

    @property
    def utility_error(self) -> float:
        return abs(self.simulated.overall.utility - self.engine.utility) / max(self.engine.utility, 1e-9)


def compare(experiment: Experiment, progress: Callable[[str, float, float], None] | None = None) -> list[Comparison]:
    """Every load under every policy, on the engine and simulated."""
    experiment = replace(experiment, statistics=measure_costs(experiment.network), overheads=measure_overheads())
    base = capacity_rates(experiment.network, experiment.statistics, experiment.workers, experiment.overheads)
    found: list[Comparison] = []
    for load in experiment.loads:
        trains = draw(experiment, base * load, load)
        for policy in experiment.policies:
            if progress is not None:
                progress(policy, load, 0.0)
            measured, statistics = run_engine(experiment, policy, trains)
            simulated = run_one(replace(experiment, statistics=statistics), policy, load, trains)
            found.append(Comparison(policy, load, measured, simulated))
            if progress is not None:
                progress(policy, load, 1.0)
    return found


def run_engine(experiment: Experiment, policy: str, trains: Mapping[int, Trains]) -> tuple[Measured, Statistics]:
    """The engine on these arrivals, and what its boxes cost meanwhile."""
    network = experiment.network
    recorders = [LatencyRecorder(o.qos) for o in network.outputs]

    def outlet(number: int) -> Callable[[Train], None]:
        record = recorders[number].record
        return lambda train: record(train.arrival_ns, time_ns())

    statistics = Statistics(network)
    engine = Engine(
        network,
        [outlet(o.number) for o in network.outputs],
        workers=experiment.workers,
        policy=policy,
        settings=experiment.settings,
        statistics=statistics,
    )
    engine.start()
    try:
        fed_ratio = feed_in_time(engine, trains, statistics)
        engine.drain(DRAIN_S)
        whole_selectivity(statistics, engine)
    finally:
        engine.stop()
    readings = [r.reading(time_ns()) for r in recorders]
    tuples = sum(r.tuples for r in readings)
    utility = sum(r.utility_sum for r in readings) / max(tuples, 1)
    return Measured(median_ns(recorders, readings), utility, fed_ratio), statistics


def whole_selectivity(statistics: Statistics, engine: Engine) -> None:
    """Selectivities of the whole run, now that nothing is under way.

    A tick that falls into a box call sees the tuples that went in and not those that come out, and on a busy machine
    that is often: a box that lets all through would seem to lose some.
    """
    _, taken, out, _ = counts(engine)
    ran = taken[statistics.port_box] > 0
    statistics.port_selectivity[ran] = out[ran] / taken[statistics.port_box][ran]
    statistics.selectivity[:] = np.add.reduceat(statistics.port_selectivity, statistics.port_start[:-1])


def median_ns(recorders: list[LatencyRecorder], readings: list[LatencyReading]) -> float:
    """The median over all outputs: the latency below which half of all tuples lie, found by halving."""
    total = sum(r.tuples for r in readings)
    shares = np.linspace(0.005, 0.995, 100)
    points: list[tuple[float, float]] = []
    for recorder, reading in zip(recorders, readings, strict=True):
        if reading.tuples:
            points += [(ns, reading.tuples / 100) for ns in recorder.quantiles(tuple(shares.tolist()))]
    below = 0.0
    for ns, weight in sorted(points):
        below += weight
        if below >= total / 2:
            return ns
    return 0.0


def feed_in_time(engine: Engine, trains: Mapping[int, Trains], statistics: Statistics) -> float:
    """Feed each train when it is due; ten times a second fold what the boxes took. The share that was on time."""
    network = engine.network
    times, streams, tuples = merge(trains)
    pools = {
        (stream, count): [make_train(network.streams[stream].schema, count, seed) for seed in range(POOL)]
        for stream, count in set(zip(streams, tuples, strict=True))
    }
    observer = _Observer(engine, statistics)
    begun_ns = perf_counter_ns()
    on_time = 0
    for i, (due_ns, stream, count) in enumerate(zip(times, streams, tuples, strict=True)):
        ahead_ns = due_ns - (perf_counter_ns() - begun_ns)
        if ahead_ns > 50_000:
            sleep(ahead_ns / 1e9)
        on_time += ahead_ns > -1_000_000
        train = pools[stream, count][i % POOL]
        stamped = Train(train.schema, train.columns, constant_ns(time_ns(), count), pools=train.pools)
        engine.feed(stream, stamped, DRAIN_S)
        observer.look(perf_counter_ns())
    return on_time / max(len(times), 1)


class _Observer:
    """What the daemon's monitor does, as far as costs are concerned."""

    def __init__(self, engine: Engine, statistics: Statistics) -> None:
        self._engine = engine
        self._statistics = statistics
        self._before = counts(engine)
        self._looked_ns = perf_counter_ns()

    def look(self, now_ns: int) -> None:
        elapsed_ns = now_ns - self._looked_ns
        if elapsed_ns < TICK_NS:
            return
        after = counts(self._engine)
        calls, taken, out, cost_ns = (a - b for a, b in zip(after, self._before, strict=True))
        self._statistics.observe_boxes(calls, taken, out, cost_ns, elapsed_ns)
        self._before, self._looked_ns = after, now_ns
