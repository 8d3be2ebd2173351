"""The simulation held against the engine itself: the same network, the same arrivals, in real time.

The engine runs in this process, fed when the simulated arrivals say, by a thread that does what the daemon's I/O thread
does (``admit_here``), on a sample of tuples. What boxes and engine cost is measured on single trains through an engine
at rest, never taken over from the run that is compared: held against the engine is the simulator's idea of queues,
plans, threads and Python's lock.

A machine has faster and slower minutes, by a third and more, so each load is run in slices of some seconds, and costs
are measured before and after each of them. The tuples of all slices count together, on both sides.

Both sides mean the same: a latency is from the stamp of a read, when the thread that brings it has it, to the delivery;
tuples count alike; the trains are the same, at the same moments. It needs a machine that has nothing else to do: how
much of it others took is said too.

Compared by output: outputs differ by ten times in how long their tuples take, so that the median over all of them
stands on the cliff between two, and a tuple more on one side moves it by as much.
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
from engine.core import Engine
from engine.simulate.arrivals import Trains
from engine.simulate.at_rest import measure_overheads
from engine.simulate.calibrate import costs_between, measure_costs
from engine.simulate.core import merge
from engine.simulate.experiment import Experiment, build, draw, knee_rates
from engine.simulate.measure import Recorder, summary
from engine.simulate.overheads import Overheads, between
from engine.simulate.samples import Samples
from qos_monitor.histogram import LatencyRecorder
from storage.train import Train

SLICES = 4
ROUNDS = 3  # what is measured around every slice, ...
PLANS = 1_000
READS = 100  # ... for about as long as a slice takes
DRAIN_S = 30.0
LATE_NS = 1_000_000
WARM_UP_READS = 10
PR_SET_TIMERSLACK = 29  # prctl.h
ENOUGH_TUPLES = 100  # of an output, to speak of a median


class Known(NamedTuple):
    """What boxes and engine cost at a moment."""

    statistics: Statistics
    overheads: Overheads


Measure = Callable[[Experiment, str, Mapping[int, Trains]], Known]
"""The costs under a policy, in reads such as these; of any length where there are none."""


class Pair(NamedTuple):
    """An output on both sides."""

    name: str
    tuples: int
    engine_ns: float  # the median
    simulated_ns: float

    @property
    def error(self) -> float:
        """How far the simulation is off, as a share of what the engine did."""
        return abs(self.simulated_ns - self.engine_ns) / max(self.engine_ns, 1.0)


class Comparison(NamedTuple):
    policy: str
    load: float
    every_output: tuple[Pair, ...]
    engine_utility: float
    simulated_utility: float
    fed_ratio: float  # of the arrivals, how many could be fed in time
    others_cores: float | None  # what else ran on the machine meanwhile; None where that cannot be read
    overheads: Overheads  # as measured around the last slice

    @property
    def outputs(self) -> list[Pair]:
        """Those of which enough came out."""
        return [pair for pair in self.every_output if pair.tuples >= ENOUGH_TUPLES]

    @property
    def p50_error(self) -> float:
        """Of the output that is furthest off."""
        return max((pair.error for pair in self.outputs), default=0.0)

    @property
    def utility_error(self) -> float:
        return abs(self.simulated_utility - self.engine_utility) / max(self.engine_utility, 1e-9)


def measure_now(experiment: Experiment, policy: str, trains: Mapping[int, Trains]) -> Known:
    lengths = [float(counts.mean()) if len(counts) else 1.0 for _, (_, counts) in sorted(trains.items())]
    statistics = measure_costs(experiment.network, ROUNDS, experiment.settings, experiment.workers, lengths)
    return Known(statistics, measure_overheads(PLANS, READS, policy))


def compare(
    experiment: Experiment,
    progress: Callable[[str, float, float], None] | None = None,
    measure: Measure = measure_now,
    slices: int = SLICES,
) -> list[Comparison]:
    """Every load under every policy, on the engine and simulated."""
    known = measure(experiment, experiment.policies[0], {})
    base = knee_rates(replace(experiment, statistics=known.statistics, overheads=known.overheads))
    found: list[Comparison] = []
    for load in experiment.loads:
        parts = cut(draw(experiment, base * load, load), slices)
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
    simulated: list[list[Recorder]] = []
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


def cut(trains: Mapping[int, Trains], parts: int) -> list[dict[int, Trains]]:
    """Arrivals in so many slices of the same time, each of which begins at 0."""
    end_ns = max((int(times[-1]) for times, _ in trains.values() if len(times)), default=0)
    bounds = [end_ns * i // parts for i in range(parts)] + [end_ns + 1]
    found: list[dict[int, Trains]] = []
    for begin_ns, until_ns in pairwise(bounds):
        inside = {s: (times >= begin_ns) & (times < until_ns) for s, (times, _) in trains.items()}
        found.append({s: (times[inside[s]] - begin_ns, counts[inside[s]]) for s, (times, counts) in trains.items()})
    return found


class EngineSide:
    """What the engine did, in all slices of a load."""

    def __init__(self, experiment: Experiment, policy: str) -> None:
        self._experiment = experiment
        self._policy = policy
        self.recorders = [LatencyRecorder(o.qos) for o in experiment.network.outputs]
        self._trains = self._on_time = 0
        self._took_s = self._others_s = 0.0
        self._is_seen = True  # what else ran

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
        """The engine on these arrivals, from empty queues until they are empty again."""
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
            stamps=samples.stamps(),
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
    """The first train of a stream reads its sample, and has the boxes compiled."""
    for _ in range(WARM_UP_READS):
        for stream in engine.network.streams:
            engine.admit_here(stream.number, samples.train(stream.number, 1))
    engine.drain(DRAIN_S)


def feed_in_time(engine: Engine, trains: Mapping[int, Trains], samples: Samples) -> int:
    """Feed each train when it is due; how many were on time."""
    times, streams, tuples = merge(trains)
    wake_in_time()
    begun_ns = perf_counter_ns()
    on_time = 0
    for due_ns, stream, count in zip(times, streams, tuples, strict=True):
        ahead_ns = due_ns - (perf_counter_ns() - begun_ns)
        if ahead_ns > 0:
            sleep(ahead_ns / 1e9)
        on_time += ahead_ns > -LATE_NS
        engine.admit_here(stream, samples.train(stream, count))
    return on_time


def wake_in_time() -> None:
    """Linux wakes a sleeper up to 50 us late, so that it can wake several at once. Whoever waits for a socket is woken
    when something comes, and so is this thread from now on."""
    library = ctypes.CDLL(None)
    if hasattr(library, "prctl"):
        library.prctl(PR_SET_TIMERSLACK, ctypes.c_ulong(1))


def machine_s() -> float | None:
    """Processor time that this machine has spent on anything, stolen time included; None where it does not say."""
    try:
        fields = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()[1:9]
    except OSError:
        return None
    user, nice, system, _, _, irq, soft, steal = map(int, fields)
    return (user + nice + system + irq + soft + steal) / 100
