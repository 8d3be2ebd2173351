"""Run a query: feed its network in the order of arrival, then the end of time, and collect the results."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from engine.lab.bench.harness import BenchError
from engine.lab.bench.nexmark.generator import Events
from engine.lab.bench.nexmark.queries import Query
from engine.run.core import Engine
from engine.run.network_file import read_network
from router.event_time import EventTime
from storage.train import Train

WAIT_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class QueryRun:
    trains: list[Train]
    seconds: float
    state_bytes: int  # the most of all boxes together, read after each train
    late: int


def run_query(
    query: Query, events: Events, *, size: int = 10_000, slack: str = "0s", workers: int = 1, watch: bool = False
) -> QueryRun:
    """Run the query. ``watch`` reads the boxes' state size after each train, which costs time."""
    network = read_network(query.network(slack=slack, workers=workers), {})
    trains: list[Train] = []
    lock = threading.Lock()

    def collect(train: Train) -> None:
        with lock:
            trains.append(train)

    clocks = EventTime(network, time.time_ns)
    engine = Engine(network, [collect], workers=workers, memory_bytes=1 << 30, event_time=clocks)
    parts = [(network.stream(name).number, train) for name, train in events.in_time(query.streams, size)]
    largest = 0
    engine.start()
    try:
        begun = time.perf_counter()
        for number, train in parts:
            engine.ingress.admit(number, train)
            if watch:
                _rest(engine)
                largest = max(largest, sum(box.state_bytes for box in engine.readings.boxes()))
        for stream in network.streams:
            engine.ingress.admit(stream.number, clocks.end(stream.number))
        _rest(engine)
        seconds = max(engine.pool.ended_ns) / 1e9 - begun  # the last tuple is through: not that the engine rests
    finally:
        engine.stop()
    readings = engine.readings.boxes()
    if dead := sum(box.dead for box in readings):
        raise BenchError(f"{query.name}: {dead} tuples were lost in boxes that failed")
    return QueryRun(trains, seconds, largest, sum(box.late for box in readings))


def _rest(engine: Engine) -> None:
    if not engine.drain(WAIT_SECONDS):
        raise BenchError(f"the engine did not drain within {WAIT_SECONDS:g} s")
