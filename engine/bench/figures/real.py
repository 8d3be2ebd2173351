"""The real engine on given arrivals, in real time: fed by this thread, run by one worker.

A tuple's latency counts from the moment at which it was due, not from when this thread came round to feeding it: a
feeder that is kept waiting must not make the engine look fast.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from itertools import groupby
from operator import itemgetter
from time import perf_counter_ns, sleep, time_ns
from typing import Any, Protocol

import numpy as np

from catalog.network import Network
from catalog.stats import Statistics
from engine.bench.figures.lab import Deliveries, Outcome
from engine.bench.harness import BenchError
from engine.core import Engine
from engine.simulate.arrivals import Trains
from engine.simulate.calibrate import make_train
from engine.simulate.core import merge
from engine.tuning import tune_process
from scheduler.policies import Policy
from scheduler.state import SchedulerSettings
from storage.train import Train, constant_ns

DRAIN_S = 120.0


class Runnable(Protocol):
    """``Engine`` or ``ThreadPerBox``."""

    network: Network
    runtimes: Any

    def start(self) -> None: ...

    def feed(self, stream: int, train: Train, timeout_s: float | None = None) -> bool: ...

    def drain(self, timeout_s: float) -> bool: ...

    def stop(self) -> None: ...


def run_real(
    network: Network,
    trains: Mapping[int, Trains],
    policy: str | Policy,
    settings: SchedulerSettings,
    statistics: Statistics,
) -> Outcome:
    deliveries = Deliveries(network, statistics)
    name = policy if isinstance(policy, str) else "round_robin"
    engine = Engine(network, deliveries.outlets, workers=1, policy=name, settings=settings, statistics=statistics)
    if not isinstance(policy, str):
        engine.loop.follow(policy)
    elapsed_ns = drive(engine, trains)
    reading = engine.scheduler_reading()
    return outcome(
        engine,
        deliveries,
        elapsed_ns,
        scheduler_ns=reading.scheduler_ns,
        storage_ns=reading.storage_ns,
        worker_ns=reading.worker_ns,
        plans=reading.steps,
    )


def drive(engine: Runnable, trains: Mapping[int, Trains]) -> int:
    """Start, feed each train when it is due, drain, stop; how long it took from the first arrival."""
    times, streams, counts = merge(trains)
    schemas = [s.schema for s in engine.network.streams]
    made = {key: make_train(schemas[key[0]], key[1], seed=0) for key in set(zip(streams, counts, strict=True))}
    tune_process()
    engine.start()
    try:
        begun_ns = feed(engine, times, [made[key] for key in zip(streams, counts, strict=True)], streams)
        if not engine.drain(DRAIN_S):
            raise BenchError(f"the engine was not done {DRAIN_S:.0f} s after the last arrival")
        return perf_counter_ns() - begun_ns
    finally:
        engine.stop()


def feed(engine: Runnable, times: Sequence[int], trains: Sequence[Train], streams: Sequence[int]) -> int:
    """When it began, on the monotonic clock. What is due at one moment is there before anything is decided on it."""
    begun_ns = perf_counter_ns()
    stamp_ns = time_ns()
    for due_ns, together in groupby(zip(times, trains, streams, strict=True), key=itemgetter(0)):
        ahead_ns = due_ns - (perf_counter_ns() - begun_ns)
        if ahead_ns > 0:
            sleep(ahead_ns / 1e9)  # wakes some 60 us late, and leaves Python's lock to the worker until then
        group = list(together)
        with engine.loop.held() if len(group) > 1 and isinstance(engine, Engine) else nullcontext():
            for _, train, stream in group:
                arrivals = constant_ns(stamp_ns + due_ns, train.count)
                engine.feed(stream, Train(train.schema, train.columns, arrivals, pools=train.pools))
    return begun_ns


def outcome(engine: Runnable, deliveries: Deliveries, elapsed_ns: int, **overheads: float) -> Outcome:
    """``overheads``: what is known beside the boxes; nothing for an engine without a scheduler."""
    known: dict[str, Any] = dict.fromkeys(("scheduler_ns", "storage_ns", "worker_ns", "plans"), 0) | overheads
    return Outcome(
        **deliveries.qualities(),  # type: ignore[arg-type]
        elapsed_ns=float(elapsed_ns),
        box_ns=float(np.sum([r.cost_ns for r in engine.runtimes])),
        calls=int(np.sum([r.calls for r in engine.runtimes])),
        mean_bytes=0.0,
        **known,
    )
