"""The simulation held against the engine itself: the same network, the same arrivals, in real time.

The engine runs in this process, fed when the simulated arrivals say, by a thread that does what the daemon's I/O thread
does (``admit_here``), on a sample of tuples. Costs are measured before, on single trains through an engine at rest;
overheads on a network of one box, before each run and after it, because what it takes to wake a core changes by half
from one minute to the next. Nothing is taken over from the run that is compared. So what is held against the engine is
the simulator's idea of queues, plans, threads and Python's lock. Takes as long as it says, on a machine that has
nothing else to do: how much of it others took is said too.

Both sides mean the same: a latency is from the stamp of a read, when the thread that brings it has it, to the delivery;
tuples count alike; the trains are the same, at the same moments.

Compared by output: outputs differ by ten times in how long their tuples take, so that the median over all of them
stands on the cliff between two, and a tuple more on one side moves it by as much.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from time import perf_counter_ns, process_time, sleep, time_ns
from typing import NamedTuple

from engine.core import Engine
from engine.simulate.arrivals import Trains
from engine.simulate.at_rest import measure_overheads
from engine.simulate.calibrate import measure_costs
from engine.simulate.core import merge
from engine.simulate.experiment import Experiment, Run, draw, knee_rates, run_one
from engine.simulate.overheads import Overheads, between
from engine.simulate.samples import Samples
from qos_monitor.histogram import LatencyRecorder
from storage.train import Train

DRAIN_S = 30.0
LATE_NS = 1_000_000
WARM_UP_READS = 10
PR_SET_TIMERSLACK = 29  # prctl.h
ENOUGH_TUPLES = 100  # of an output, to speak of a median


class Measured(NamedTuple):
    """What the engine did at one load."""

    outputs: tuple[tuple[int, float], ...]  # tuples and p50 in ns, by output
    utility: float
    fed_ratio: float  # of the arrivals, how many could be fed in time
    others_cores: float | None  # what else ran on the machine meanwhile; None where that cannot be read


class Pair(NamedTuple):
    """An output on both sides."""

    name: str
    tuples: int
    engine_ns: float
    simulated_ns: float

    @property
    def error(self) -> float:
        """How far the simulation is off, as a share of what the engine did."""
        return abs(self.simulated_ns - self.engine_ns) / max(self.engine_ns, 1.0)


class Comparison(NamedTuple):
    policy: str
    load: float
    engine: Measured
    simulated: Run
    overheads: Overheads  # as measured around the engine's run

    @property
    def outputs(self) -> list[Pair]:
        """Those of which enough came out."""
        found = [
            Pair(name, tuples, p50_ns, quality.p50_ns)
            for (name, quality), (tuples, p50_ns) in zip(self.simulated.outputs, self.engine.outputs, strict=True)
        ]
        return [pair for pair in found if pair.tuples >= ENOUGH_TUPLES]

    @property
    def p50_error(self) -> float:
        """Of the output that is furthest off."""
        return max((pair.error for pair in self.outputs), default=0.0)

    @property
    def utility_error(self) -> float:
        return abs(self.simulated.overall.utility - self.engine.utility) / max(self.engine.utility, 1e-9)


def compare(experiment: Experiment, progress: Callable[[str, float, float], None] | None = None) -> list[Comparison]:
    """Every load under every policy, on the engine and simulated."""
    statistics = measure_costs(experiment.network, settings=experiment.settings, workers=experiment.workers)
    before = measure_overheads(policy=experiment.policies[0])
    experiment = replace(experiment, statistics=statistics, overheads=before)
    base = knee_rates(experiment)
    found: list[Comparison] = []
    for load in experiment.loads:
        trains = draw(experiment, base * load, load)
        for policy in experiment.policies:
            if progress is not None:
                progress(policy, load, 0.0)
            measured = run_engine(experiment, policy, trains)
            after = measure_overheads(policy=policy)
            experiment = replace(experiment, overheads=between(before, after))
            before = after
            simulated = run_one(experiment, policy, load, trains)
            found.append(Comparison(policy, load, measured, simulated, experiment.overheads))
            if progress is not None:
                progress(policy, load, 1.0)
    return found


def run_engine(experiment: Experiment, policy: str, trains: Mapping[int, Trains]) -> Measured:
    """The engine on these arrivals."""
    network = experiment.network
    recorders = [LatencyRecorder(o.qos) for o in network.outputs]

    def outlet(number: int) -> Callable[[Train], None]:
        return lambda train: recorders[number].record(train.arrival_ns, time_ns())

    samples = Samples(network)
    engine = Engine(
        network,
        [outlet(o.number) for o in network.outputs],
        workers=experiment.workers,
        policy=policy,
        settings=experiment.settings,
        statistics=experiment.statistics,
        stamps=samples.stamps(),
    )
    engine.start()
    warm_up(engine, samples)
    recorders[:] = [LatencyRecorder(o.qos) for o in network.outputs]
    begun_s, mine_s, all_s = perf_counter_ns() / 1e9, process_time(), machine_s()
    try:
        fed_ratio = feed_in_time(engine, trains, samples)
        engine.drain(DRAIN_S)
    finally:
        engine.stop()
    took_s = perf_counter_ns() / 1e9 - begun_s
    all_after_s = machine_s()
    others = None if all_s is None or all_after_s is None else (all_after_s - all_s - process_time() + mine_s) / took_s
    readings = [r.reading(time_ns()) for r in recorders]
    utility = sum(r.utility_sum for r in readings) / max(sum(r.tuples for r in readings), 1)
    medians = [r.quantiles((0.5,))[0] for r in recorders]
    outputs = tuple((r.tuples, p50_ns) for r, p50_ns in zip(readings, medians, strict=True))
    return Measured(outputs, utility, fed_ratio, others if others is None else max(0.0, others))


def warm_up(engine: Engine, samples: Samples) -> None:
    """The first train of a stream reads its sample, and has the boxes compiled."""
    for _ in range(WARM_UP_READS):
        for stream in engine.network.streams:
            engine.admit_here(stream.number, samples.train(stream.number, 1))
    engine.drain(DRAIN_S)


def feed_in_time(engine: Engine, trains: Mapping[int, Trains], samples: Samples) -> float:
    """Feed each train when it is due; the share that was on time."""
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
    return on_time / max(len(times), 1)


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
