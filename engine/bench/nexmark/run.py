"""Running a query: an engine around its network, fed in the order of arrival, until the end of time is through."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from engine.bench.harness import BenchError
from engine.bench.nexmark.generator import Events
from engine.bench.nexmark.queries import Query
from engine.core import Engine
from engine.load import load_network
from router.event_time import EventTime
from storage.train import Train

WAIT_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Outcome:
    trains: list[Train]
    seconds: float
    state_bytes: int  # the most that all boxes held together, as seen after each train
    late: int


def run_query(
    query: Query, events: Events, *, size: int = 10_000, slack: str = "0s", workers: int = 1, watch: bool = False
) -> Outcome:
    """``watch`` looks at the boxes' memory after each train, which costs time."""
    network = load_network(query.network(slack=slack, workers=workers), {})
    trains: list[Train] = []
    lock = threading.Lock()

    def collect(train: Train) -> None:
        with lock:
            trains.append(train)

    clocks = EventTime(network, time.time_ns)
    engine = Engine(network, [collect], workers=workers, memory_bytes=1 << 30, stamps=clocks.stamps)
    parts = [(network.stream(name).number, train) for name, train in events.in_time(query.streams, size)]
    largest = 0
    engine.start()
    try:
        begun = time.perf_counter()
        for number, train in parts:
            engine.feed(number, train)
            if watch:
                _rest(engine)
                largest = max(largest, sum(box.state_bytes for box in engine.box_readings()))
        for stream in network.streams:
            engine.feed(stream.number, clocks.end(stream.number))
        _rest(engine)
        seconds = time.perf_counter() - begun
    finally:
        engine.stop()
    readings = engine.box_readings()
    if dead := sum(box.dead for box in readings):
        raise BenchError(f"{query.name}: {dead} tuples died in boxes that failed")
    return Outcome(trains, seconds, largest, sum(box.late for box in readings))


def _rest(engine: Engine) -> None:
    if not engine.drain(WAIT_SECONDS):
        raise BenchError(f"the engine did not come to rest within {WAIT_SECONDS:g} s")
