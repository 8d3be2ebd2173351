"""An experiment: a network at several loads under several policies. `aurorad simulate` runs one.

A load is a multiple of the knee (``knee_rates``): at load 1 all workers, or one unit, are busy all the time, with the
boxes and with the engine's own overhead, or decoding is full (``edge_limits``). ``bench overload`` counts the daemon's
load in the same way. Rates by stream may stand in place of a load. Streams share the load by their measured rates, or
evenly where no rate is known. Arrivals are drawn once for each load, and every policy gets the same arrivals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from catalog.load import LoadModel
from catalog.network import Network
from catalog.stats import Statistics
from engine.simulate.arrivals import Trains, arrivals
from engine.simulate.autopilot import SimulatedAutopilot
from engine.simulate.chooser import Chooser, Chosen
from engine.simulate.core import Simulation
from engine.simulate.edge_limits import most_at_the_edge
from engine.simulate.overheads import Overheads
from engine.simulate.quality import Quality, summary
from engine.simulate.what_if import WhatIf
from scheduler.choice import AUTO
from scheduler.policies import policies
from scheduler.state import SchedulerSettings
from scheduler.trains import AUTO_TUPLES

LONG_TRAIN = AUTO_TUPLES  # tuples of a train in ``capacity_rates``
SUSTAINED = 0.95  # of the utility at the lowest load
ROUGHLY = 0.7  # of the estimated knee: the load at which the workers' busy time is measured
KNEE_NS = 2_000_000_000
KNEE_LOOKS = 8  # at most
BELOW = 0.8  # the largest share of busy time that is trusted: above it a queue may be growing

Floats = npt.NDArray[np.float64]
Progress = Callable[[str, float, float], None]
"""Takes the policy, the load, and the share of that run that is done."""
T = TypeVar("T")


@dataclass(frozen=True)
class Experiment:
    """What to run: everything that the results depend on."""

    network: Network
    statistics: Statistics
    policies: tuple[str, ...]
    loads: tuple[float, ...]
    seed: int = 0
    duration_ns: int = 10_000_000_000
    process: str = "poisson"
    trace: Mapping[int, Trains] = field(default_factory=dict)  # recorded arrivals, at load 1; their times are scaled
    workers: int = 1
    settings: SchedulerSettings = field(default_factory=SchedulerSettings)
    overheads: Overheads = field(default_factory=Overheads)
    decode_ns: tuple[float, ...] = ()  # by stream, of a row (``edge_limits``); empty: decoding has no limit
    rates_per_s: tuple[float, ...] = ()  # by stream: rows a second instead of ``loads``


class Memory(NamedTuple):
    """Bytes on queues over a run."""

    mean_bytes: float
    peak_bytes: float
    samples: tuple[tuple[float, float], ...]  # seconds, bytes


class Overhead(NamedTuple):
    """Shares of the busy time, as in figure 9 of P0."""

    boxes: float
    scheduler: float
    storage: float
    worker: float
    plans: int
    calls: int


class ExperimentRun(NamedTuple):
    """The results of one load under one policy."""

    policy: str
    load: float
    rate_per_s: float  # of all streams
    arrived: int
    expired: int
    backlog_ratio: float  # share of the arrived tuples that still waited when arrivals ended
    overall: Quality
    outputs: tuple[tuple[str, Quality], ...]
    memory: Memory
    overhead: Overhead
    choices: tuple[Chosen, ...] = ()  # of the policy auto: when, which policy and why


def knee_per_s(rate_per_s: float, workers_share: float, busiest_share: float) -> float:
    """Return the rate that would keep all workers busy all the time, or the busiest unit, which cannot run twice at
    once.

    It follows from their shares of busy time at a lower rate.
    """
    return rate_per_s / max(workers_share, busiest_share, 1e-9)


def knee_rates(experiment: Experiment) -> Floats:
    """Return the tuples a second at load 1, by stream.

    ``bench overload`` finds the daemon's knee in the same way: first an estimate from the boxes alone, then from the
    busy time of the workers at seven tenths of it. This is repeated from the new value until the workers are clearly
    below full: overheads may be most of the work, and one unit may be all of it.
    """
    rough = capacity_rates(experiment.network, experiment.statistics, experiment.workers, experiment.overheads)
    total = float(rough.sum())
    if not total:
        return rough
    found = total
    for look in range(KNEE_LOOKS):
        rates = rough * (ROUGHLY * found / total)
        trains = {s: arrivals("uniform", experiment.seed, s, rate, KNEE_NS) for s, rate in enumerate(rates.tolist())}
        simulation, _ = build(experiment, experiment.policies[0], trains)
        simulation.run(KNEE_NS)
        workers_share = simulation.busy_ns / (KNEE_NS * experiment.workers)
        # Where the I/O thread runs most plans, it is full before the workers are.
        busiest_share = max(simulation.threads.io_busy_ns, *simulation.unit_busy_ns) / KNEE_NS
        found = knee_per_s(float(rates.sum()), workers_share, busiest_share)
        if look and max(workers_share, busiest_share) < BELOW:
            break
    rates = rough * (found / total)
    return rates * min(1.0, most_at_the_edge(rates, experiment.decode_ns))


def capacity_rates(network: Network, statistics: Statistics, workers: int, overheads: Overheads) -> Floats:
    """Return the tuples a second at which the boxes alone, in long trains, keep all workers busy, by stream."""
    per_tuple = statistics.cost_per_tuple_ns + (statistics.cost_per_call_ns + overheads.call_ns) / LONG_TRAIN
    work_ns = LoadModel(network).coefficients(per_tuple, statistics.port_selectivity).streams
    shares = statistics.rate_per_s.copy()
    if not shares.any():
        shares = np.ones(len(network.streams))
    total_ns = float(np.dot(shares, work_ns))
    return shares * (workers * 1e9 / total_ns) if total_ns > 0 else np.zeros(len(shares))


def run_experiment(experiment: Experiment, progress: Progress | None = None) -> list[ExperimentRun]:
    """Run every load under every policy."""
    runs = over_loads(experiment, lambda policy, load, trains: run_one(experiment, policy, load, trains, progress))
    return sorted(runs, key=lambda r: (experiment.policies.index(r.policy), r.load))


def over_loads(experiment: Experiment, one: Callable[[str, float, Mapping[int, Trains]], T]) -> list[T]:
    """Call ``one`` for every load and policy, with the same arrivals for all policies."""
    base = np.zeros(0) if experiment.trace else knee_rates(experiment)
    found: list[T] = []
    if experiment.rates_per_s:
        rates = np.array(experiment.rates_per_s)
        load = float(rates.sum() / max(base.sum(), 1e-9))
        return [one(policy, load, draw(experiment, rates, load)) for policy in experiment.policies]
    for load in experiment.loads:
        trains = draw(experiment, base * load, load)
        found += [one(policy, load, trains) for policy in experiment.policies]
    return found


def draw(experiment: Experiment, rates: Floats, load: float) -> dict[int, Trains]:
    """Draw the arrivals of one load, by stream."""
    if experiment.trace:
        return {s: ((times / load).astype(np.int64), counts) for s, (times, counts) in experiment.trace.items()}
    return {
        stream: arrivals(experiment.process, experiment.seed, stream, rate, experiment.duration_ns)
        for stream, rate in enumerate(rates.tolist())
    }


def build(
    experiment: Experiment, policy: str, trains: Mapping[int, Trains], warm_up_ns: int = 0
) -> tuple[Simulation, Chooser | None]:
    """Build a simulation of these arrivals, not begun yet, and its chooser if the policy is `auto`."""
    chooser = make_chooser(experiment) if policy == AUTO else None
    simulation = Simulation(
        experiment.network,
        policies()[policy if chooser is None else chooser.choice.policy],
        trains,
        statistics=experiment.statistics,
        settings=experiment.settings,
        workers=experiment.workers,
        overheads=experiment.overheads,
        warm_up_ns=warm_up_ns,
    )
    if chooser is not None:
        SimulatedAutopilot(simulation, chooser)
    return simulation, chooser


def run_one(
    experiment: Experiment,
    policy: str,
    load: float,
    trains: Mapping[int, Trains],
    progress: Progress | None = None,
) -> ExperimentRun:
    """Run one load under one policy."""
    simulation, chooser = build(experiment, policy, trains)
    end_ns = max((int(times[-1]) for times, _ in trains.values() if len(times)), default=0)
    report = None if progress is None else lambda now_ns: progress(policy, load, now_ns / max(end_ns, 1))
    simulation.run(end_ns, report)
    inside, read = simulation.state.waiting_tuples, simulation.arrived
    mean_bytes = simulation.storage.byte_ns / max(end_ns, 1)
    simulation.run(None, report)
    arrived = simulation.arrived
    simulation.count_expired()
    totals = simulation.totals
    busy_ns = max(totals.box_ns + totals.scheduler_ns + totals.storage_ns + totals.worker_ns, 1.0)
    return ExperimentRun(
        policy=policy,
        load=load,
        rate_per_s=arrived / max(end_ns / 1e9, 1e-9),
        arrived=arrived,
        expired=sum(simulation.storage.expired),
        backlog_ratio=inside / max(read, 1),
        overall=summary(simulation.recorders),
        outputs=tuple(
            (o.name, r.quality()) for o, r in zip(experiment.network.outputs, simulation.recorders, strict=True)
        ),
        memory=Memory(mean_bytes, simulation.storage.peak_bytes, tuple(simulation.samples)),
        overhead=Overhead(
            totals.box_ns / busy_ns,
            totals.scheduler_ns / busy_ns,
            totals.storage_ns / busy_ns,
            totals.worker_ns / busy_ns,
            totals.plans,
            totals.calls,
        ),
        choices=tuple(chooser.history) if chooser is not None else (),
    )


def make_chooser(experiment: Experiment) -> Chooser:
    what_if = WhatIf(
        experiment.network,
        settings=experiment.settings,
        workers=experiment.workers,
        overheads=experiment.overheads,
        seed=experiment.seed,
    )
    return Chooser(experiment.network, what_if)


def knee(runs: Sequence[ExperimentRun]) -> tuple[float | None, float | None]:
    """Return the last load that one policy carries, and the first that it does not. The runs are by rising load.

    A load is carried if the utility is near that of the lowest load and the queues do not grow: less than a twentieth
    of the arrived tuples still wait when the arrivals end.
    """
    best = runs[0].overall.utility
    held: float | None = None
    for run in runs:
        if run.overall.utility < SUSTAINED * best or run.backlog_ratio > 1 - SUSTAINED:
            return held, run.load
        held = run.load
    return held, None
