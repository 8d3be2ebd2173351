"""Check the simulation against the engine itself: the same network, the same arrivals, in real time.

The engine runs in this process on a sample of tuples. A thread feeds it at the times of the simulated arrivals, in the
same way as the daemon's I/O thread (``Ingress.admit``). The costs of boxes and engine are measured on single trains
through an engine at rest, never taken from the run that is compared. So the check is on the simulator's model of
queues, plans, threads and the GIL.

A machine has faster and slower minutes, by a third and more. So each load is run in slices of some seconds, and costs
are measured before and after each slice. The tuples of all slices count together, on both sides.

Both sides measure the same: a latency is from the stamp of a read, taken when the thread that brings it has it, to the
delivery; every tuple counts the same; the trains are the same, at the same times. The check needs a machine that has
nothing else to do; the report says how much of it other processes took.

The comparison is by output. Latencies of outputs differ by a factor of ten, so the median over all of them lies on the
step between two outputs, and one more tuple on one side would move it by that factor.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from time import perf_counter_ns, process_time, sleep, time_ns
from typing import NamedTuple

from catalog.stats import Statistics
from engine.run.core import Engine
from engine.simulate.arrivals import Trains, merge
from engine.simulate.experiment import Experiment, build, draw, knee_rates
from engine.simulate.measure_costs import costs_between, measure_costs
from engine.simulate.measure_overheads import measure_overheads
from engine.simulate.overheads import Overheads, between
from engine.simulate.quality import DeliveryRecorder, summary
from engine.simulate.samples import Samples
from qos_monitor.histogram import LatencyRecorder
from router.boundary import SOCKET
from storage.train import Train

SLICES = 4
ROUNDS = 3  # measurements around every slice, ...
PLANS = 1_000
READS = 100  # ... which take about as long as a slice
DRAIN_S = 30.0
LATE_NS = 1_000_000
WARM_UP_READS = 10
PR_SET_TIMERSLACK = 29  # prctl.h
ENOUGH_TUPLES = 100  # of an output, for a median to mean anything


class KnownCosts(NamedTuple):
    """The costs of boxes and engine at one moment."""

    statistics: Statistics
    overheads: Overheads


Measure = Callable[[Experiment, str, Mapping[int, Trains]], KnownCosts]
"""Measures the costs under a policy, for reads of the length of these trains; of any length where there are none."""


class Pair(NamedTuple):
    """The median latency of an output on both sides."""

    name: str
    tuples: int
    engine_ns: float
    simulated_ns: float

    @property
    def error(self) -> float:
        """The error of the simulation, as a share of the engine's latency."""
        return abs(self.simulated_ns - self.engine_ns) / max(self.engine_ns, 1.0)


class Comparison(NamedTuple):
    """One load under one policy, on the engine and simulated."""

    policy: str
    load: float
    every_output: tuple[Pair, ...]
    engine_utility: float
    simulated_utility: float
    fed_ratio: float  # the share of the arrivals that was fed in time
    others_cores: float | None  # cores that other processes used meanwhile; None where that cannot be read
    overheads: Overheads  # as measured around the last slice

    @property
    def outputs(self) -> list[Pair]:
        """The outputs with enough tuples."""
        return [pair for pair in self.every_output if pair.tuples >= ENOUGH_TUPLES]

    @property
    def p50_error(self) -> float:
        """The largest error of an output."""
        return max((pair.error for pair in self.outputs), default=0.0)

    @property
    def utility_error(self) -> float:
        return abs(self.simulated_utility - self.engine_utility) / max(self.engine_utility, 1e-9)


def measure_now(experiment: Experiment, policy: str, trains: Mapping[int, Trains]) -> KnownCosts:
    """Measure the costs on this machine."""
    lengths = [float(counts.mean()) if len(counts) else 1.0 for _, (_, counts) in sorted(trains.items())]
    statistics = measure_costs(experiment.network, ROUNDS, experiment.settings, experiment.workers, lengths)
    return KnownCosts(statistics, measure_overheads(PLANS, READS, policy))


def compare(
    experiment: Experiment,
    progress: Callable[[str, float, float], None] | None = None,
    measure: Measure = measure_now,
    slices: int = SLICES,
) -> list[Comparison]:
    """Run every load under every policy, on the engine and simulated."""
    known = measure(experiment, experiment.policies[0], {})
    base = knee_rates(replace(experiment, statistics=known.statistics, overheads=known.overheads))
    found: list[Comparison] = []
    for load in experiment.loads:
        parts = split_by_time(draw(experiment, base * load, load), slices)
        for policy in experiment.policies:

            def report(share: float, policy: str = policy, load: float = load) -> None:
                if progress is not None:
                    progress(policy, load, share)

            found.append(compare_one(experiment, policy, load, parts, measure, report))
    return found


def compare_one(
    experiment: Experiment,
    policy: str,
    load: float,
    parts: list[dict[int, Trains]],
    measure: Measure,
    report: Callable[[float], None],
) -> Comparison:
    network = experiment.network
    ours = EngineSide(experiment, policy)
    simulated: list[list[DeliveryRecorder]] = []
    report(0.0)
    before = measure(experiment, policy, parts[0])
    for number, trains in enumerate(parts, 1):
        ours.run(before.statistics, trains)
        after = measure(experiment, policy, trains)
        overheads = between(before.overheads, after.overheads)
        statistics = costs_between(before.statistics, after.statistics)
        before = after
        simulation, _ = build(replace(experiment, statistics=statistics, overheads=overheads), policy, trains)
        simulation.run()
        simulation.count_expired()
        simulated.append(simulation.recorders)
        report(number / len(parts))
    pairs = []
    for output, recorder, *slices in zip(network.outputs, ours.recorders, *simulated, strict=True):
        median_ns = recorder.quantiles((0.5,))[0]
        pairs.append(Pair(output.name, recorder.reading(time_ns()).tuples, median_ns, summary(slices).p50_ns))
    utility = summary([recorder for recorders in simulated for recorder in recorders]).utility
    return Comparison(policy, load, tuple(pairs), ours.utility, utility, ours.fed_ratio, ours.others_cores, overheads)


def split_by_time(trains: Mapping[int, Trains], parts: int) -> list[dict[int, Trains]]:
    """Split arrivals into slices of equal time, each of which begins at 0."""
    end_ns = max((int(times[-1]) for times, _ in trains.values() if len(times)), default=0)
    bounds = [end_ns * i // parts for i in range(parts)] + [end_ns + 1]
    found: list[dict[int, Trains]] = []
    for begin_ns, until_ns in pairwise(bounds):
        inside = {s: (times >= begin_ns) & (times < until_ns) for s, (times, _) in trains.items()}
        found.append({s: (times[inside[s]] - begin_ns, counts[inside[s]]) for s, (times, counts) in trains.items()})
    return found


class EngineSide:
    """The engine's part of a comparison, over all slices of a load."""

    def __init__(self, experiment: Experiment, policy: str) -> None:
        self._experiment = experiment
        self._policy = policy
        self.recorders = [LatencyRecorder(o.qos) for o in experiment.network.outputs]
        self._trains = self._on_time = 0
        self._took_s = self._others_s = 0.0
        self._is_seen = True  # the machine's processor time can be read

    @property
    def utility(self) -> float:
        readings = [r.reading(time_ns()) for r in self.recorders]
        return sum(r.utility_sum for r in readings) / max(sum(r.tuples for r in readings), 1)

    @property
    def fed_ratio(self) -> float:
        return self._on_time / max(self._trains, 1)

    @property
    def others_cores(self) -> float | None:
        return max(0.0, self._others_s / self._took_s) if self._is_seen and self._took_s else None

    def run(self, statistics: Statistics, trains: Mapping[int, Trains]) -> None:
        """Run the engine on these arrivals, from empty queues until they are empty again."""
        experiment = self._experiment
        network = experiment.network
        recorders = [LatencyRecorder(o.qos) for o in network.outputs]

        def outlet(number: int) -> Callable[[Train], None]:
            return lambda train: recorders[number].record(train.arrival_ns, time_ns())

        samples = Samples(network)
        engine = Engine(
            network,
            [outlet(o.number) for o in network.outputs],
            workers=experiment.workers,
            policy=self._policy,
            settings=experiment.settings,
            statistics=statistics,
            event_time=samples.event_time(),
        )
        engine.start()
        warm_up(engine, samples)
        recorders[:] = self.recorders
        begun_s, mine_s, all_s = perf_counter_ns() / 1e9, process_time(), machine_s()
        try:
            self._on_time += feed_in_time(engine, trains, samples)
            engine.drain(DRAIN_S)
        finally:
            engine.stop()
        self._trains += sum(len(times) for times, _ in trains.values())
        self._took_s += perf_counter_ns() / 1e9 - begun_s
        all_after_s = machine_s()
        if all_s is None or all_after_s is None:
            self._is_seen = False
        else:
            self._others_s += all_after_s - all_s - process_time() + mine_s


def warm_up(engine: Engine, samples: Samples) -> None:
    """Feed some trains that do not count: the first one of a stream makes its sample and compiles the boxes."""
    for _ in range(WARM_UP_READS):
        for stream in engine.network.streams:
            engine.ingress.admit(stream.number, samples.train(stream.number, 1), SOCKET)
    engine.drain(DRAIN_S)


def feed_in_time(engine: Engine, trains: Mapping[int, Trains], samples: Samples) -> int:
    """Feed each train when it is due. Return how many were on time."""
    times, streams, tuples = merge(trains)
    wake_in_time()
    begun_ns = perf_counter_ns()
    on_time = 0
    for due_ns, stream, count in zip(times, streams, tuples, strict=True):
        ahead_ns = due_ns - (perf_counter_ns() - begun_ns)
        if ahead_ns > 0:
            sleep(ahead_ns / 1e9)
        on_time += ahead_ns > -LATE_NS
        engine.ingress.admit(stream, samples.train(stream, count), SOCKET)
    return on_time


def wake_in_time() -> None:
    """Have this thread woken from sleep without delay.

    Linux wakes a sleeping thread up to 50 us late, so that it can wake several at once. A thread that waits for a
    socket is woken at once, and this thread stands for one.
    """
    library = ctypes.CDLL(None)
    if hasattr(library, "prctl"):
        library.prctl(PR_SET_TIMERSLACK, ctypes.c_ulong(1))


def machine_s() -> float | None:
    """Return the processor time that this machine has spent, stolen time included; None where it cannot be read."""
    try:
        fields = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()[1:9]
    except OSError:
        return None
    user, nice, system, _, _, irq, soft, steal = map(int, fields)
    return (user + nice + system + irq + soft + steal) / 100
