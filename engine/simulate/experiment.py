"""A network at several loads under several policies: what `aurorad simulate` runs.

A load is a share of capacity: at 1 the boxes alone, in long trains, keep all workers busy. The engine's own overheads
come on top, so the knee lies below 1. Streams share the load as their measured rates say, or evenly where none is
known. Arrivals are drawn once for each load, and every policy gets the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from catalog.load import LoadModel
from catalog.network import Network
from catalog.stats import Statistics
from engine.chooser import Chooser, Chosen
from engine.simulate.arrivals import Trains, arrivals
from engine.simulate.core import Simulation
from engine.simulate.execution import Overheads
from engine.simulate.measure import Quality, summary
from engine.simulate.pilot import Pilot
from engine.simulate.what_if import WhatIf
from scheduler.choice import AUTO
from scheduler.policies import policies
from scheduler.state import SchedulerSettings
from scheduler.trains import AUTO_TUPLES

LONG_TRAIN = AUTO_TUPLES  # tuples: what "in long trains" means
SUSTAINED = 0.95  # of the utility at the lowest load

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Experiment:
    network: Network
    statistics: Statistics
    policies: tuple[str, ...]
    loads: tuple[float, ...]
    seed: int = 0
    duration_ns: int = 10_000_000_000
    process: str = "poisson"
    trace: Mapping[int, Trains] = field(default_factory=dict)  # a recorded one, at load 1; scaled in time
    workers: int = 1
    settings: SchedulerSettings = field(default_factory=SchedulerSettings)
    overheads: Overheads = field(default_factory=Overheads)


class Memory(NamedTuple):
    mean_bytes: float
    peak_bytes: float
    samples: tuple[tuple[float, float], ...]  # seconds, bytes


class Overhead(NamedTuple):
    """Shares of the time that workers were busy, as in figure 9 of P0."""

    boxes: float
    scheduler: float
    storage: float
    worker: float
    plans: int
    calls: int


class Run(NamedTuple):
    policy: str
    load: float
    rate_per_s: float  # of all streams
    arrived: int
    expired: int
    backlog_ratio: float  # of what had arrived, still inside when arrivals ended
    overall: Quality
    outputs: tuple[tuple[str, Quality], ...]
    memory: Memory
    overhead: Overhead
    choices: tuple[Chosen, ...] = ()  # of the policy auto: when, which and why


def capacity_rates(network: Network, statistics: Statistics, workers: int, overheads: Overheads) -> Floats:
    """By stream: tuples a second at load 1."""
    per_tuple = statistics.cost_per_tuple_ns + (statistics.cost_per_call_ns + overheads.call_ns) / LONG_TRAIN
    work_ns = LoadModel(network).coefficients(per_tuple, statistics.port_selectivity).streams
    shares = statistics.rate_per_s.copy()
    if not shares.any():
        shares = np.ones(len(network.streams))
    total_ns = float(np.dot(shares, work_ns))
    return shares * (workers * 1e9 / total_ns) if total_ns > 0 else np.zeros(len(shares))


def run_experiment(experiment: Experiment, progress: Callable[[str, float, float], None] | None = None) -> list[Run]:
    """Every load under every policy. ``progress`` hears of policy, load and the share of that run that is done."""
    runs: list[Run] = []
    base = capacity_rates(experiment.network, experiment.statistics, experiment.workers, experiment.overheads)
    for load in experiment.loads:
        trains = draw(experiment, base * load, load)
        runs += [run_one(experiment, policy, load, trains, progress) for policy in experiment.policies]
    return sorted(runs, key=lambda r: (experiment.policies.index(r.policy), r.load))


def draw(experiment: Experiment, rates: Floats, load: float) -> dict[int, Trains]:
    if experiment.trace:
        return {s: ((times / load).astype(np.int64), counts) for s, (times, counts) in experiment.trace.items()}
    return {
        stream: arrivals(experiment.process, experiment.seed, stream, rate, experiment.duration_ns)
        for stream, rate in enumerate(rates.tolist())
    }


def run_one(
    experiment: Experiment,
    policy: str,
    load: float,
    trains: Mapping[int, Trains],
    progress: Callable[[str, float, float], None] | None = None,
) -> Run:
    chooser = make_chooser(experiment) if policy == AUTO else None
    simulation = Simulation(
        experiment.network,
        policies()[policy if chooser is None else chooser.choice.policy],
        trains,
        statistics=experiment.statistics,
        settings=experiment.settings,
        workers=experiment.workers,
        overheads=experiment.overheads,
    )
    if chooser is not None:
        Pilot(simulation, chooser)
    end_ns = max((int(times[-1]) for times, _ in trains.values() if len(times)), default=0)
    report = None if progress is None else lambda now_ns: progress(policy, load, now_ns / max(end_ns, 1))
    simulation.run(end_ns, report)
    inside = simulation.state.waiting_tuples
    arrived = simulation.arrived
    mean_bytes = simulation.storage.byte_ns / max(end_ns, 1)
    simulation.run(None, report)
    simulation.count_expired()
    totals = simulation.totals
    busy_ns = max(totals.box_ns + totals.scheduler_ns + totals.storage_ns + totals.worker_ns, 1.0)
    return Run(
        policy=policy,
        load=load,
        rate_per_s=arrived / max(end_ns / 1e9, 1e-9),
        arrived=arrived,
        expired=sum(simulation.storage.expired),
        backlog_ratio=inside / max(arrived, 1),
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


def knee(runs: Sequence[Run]) -> tuple[float | None, float | None]:
    """Of one policy's runs by rising load: the last load that is held, and the first that is not.

    Held: utility is near that of the lowest load, and the queues do not grow (a twentieth of all that came is not still
    inside when the arrivals end).
    """
    best = runs[0].overall.utility
    held: float | None = None
    for run in runs:
        if run.overall.utility < SUSTAINED * best or run.backlog_ratio > 1 - SUSTAINED:
            return held, run.load
        held = run.load
    return held, None
