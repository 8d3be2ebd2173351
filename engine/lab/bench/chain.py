"""``bench chain``: the cost of the engine over bare numpy, with tuples that are in memory already.

The network has chains of five filters on one stream. This process feeds it in trains of 10,000; one worker runs it. The
baseline applies the same predicates to the same trains with ``Bounds.mask`` and one gather. A second part compares two
workers with one, by train size.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from catalog.network import Network
from engine.lab.bench import workload
from engine.lab.bench.harness import BenchError, Options, interleave
from engine.lab.bench.report import Result
from engine.run.core import Engine
from engine.run.network_file import read_network
from engine.run.tuning import tune_process
from scheduler.state import SchedulerSettings
from storage.compiled.compiler import compile_known
from storage.train import Train

TRAIN_TUPLES = 10_000
TARGETS = {1: 0.7, 40: 0.8, 200: 0.8}
WORKER_TRAINS = (1_000, 10_000, 100_000)
WORKER_QUERIES = 40
LEAST_REPEATS = 4  # of the trains: a run of 200 queries over 8 trains takes 65 ms, and half of that is the start
DISTINCT_TRAINS = 8  # more than fit a core's cache, as with a real stream
WAIT_SECONDS = 120.0


class Countdown:
    """Count down the tuples that each output still lacks; the engine's outlets call it."""

    def __init__(self, outputs: int) -> None:
        self.left = [0] * outputs
        self.open = 0
        self.lock = threading.Lock()
        self.done = threading.Event()

    def expect(self, tuples: Sequence[int]) -> None:
        self.left[:] = tuples
        self.open = sum(1 for n in tuples if n)
        if self.open:
            self.done.clear()
        else:
            self.done.set()

    def outlet(self, number: int, train: Train) -> None:
        """Count a train. A box runs in one plan at a time, so an output has one writer; only its last tuple locks."""
        left = self.left[number] - train.count
        self.left[number] = left
        if left == 0:
            with self.lock:
                self.open -= 1
                if self.open == 0:
                    self.done.set()


class ChainEngine:
    """A started engine with chains of filters."""

    def __init__(self, queries: int, *, workers: int = 1, unit: str = "superbox", idle_boxes: int = 0) -> None:
        self.queries = queries
        text = workload.chain_network(queries, workers=workers, unit=unit, idle_boxes=idle_boxes)
        self.network: Network = read_network(text, {})
        self.finish = Countdown(queries)
        outlets = [self._outlet(n) for n in range(len(self.network.outputs))]
        settings = SchedulerSettings(unit=unit)
        self.engine = Engine(self.network, outlets, workers=workers, memory_bytes=1 << 30, settings=settings)
        self.engine.start()

    def _outlet(self, number: int) -> Callable[[Train], None]:
        return lambda train: self.finish.outlet(number, train)

    def run(self, trains: Sequence[Train], expected: Sequence[int]) -> float:
        """Feed all trains and wait for the last result; return tuples per second."""
        self.finish.expect(expected)
        begun = time.perf_counter()
        for train in trains:
            self.engine.ingress.admit(0, train)
        self._wait()
        return sum(t.count for t in trains) / (time.perf_counter() - begun)

    def run_one_by_one(self, trains: Sequence[Train], expected: Sequence[int]) -> None:
        """Feed a train only after the last one is through: the scheduler then makes a plan for each. For one query."""
        for train, count in zip(trains, expected, strict=True):
            self.finish.expect([count])
            self.engine.ingress.admit(0, train)
            self._wait()
        self.engine.drain(WAIT_SECONDS)

    def _wait(self) -> None:
        if not self.finish.done.wait(WAIT_SECONDS):
            raise BenchError(f"{sum(self.finish.left)} tuples are missing after {WAIT_SECONDS:g} s")

    def stop(self) -> None:
        """Stop the engine. Raise BenchError if a box failed: it has not done the work that was measured."""
        self.engine.stop()
        if dead := sum(box.dead for box in self.engine.readings.boxes()):
            raise BenchError(f"{dead} tuples were lost in boxes that failed")


def bare_run(trains: Sequence[Train], queries: int) -> float:
    """Do the same work without an engine; return tuples per second."""
    chains = [workload.bounds(query) for query in range(queries)]
    begun = time.perf_counter()
    for train in trains:
        columns = train.columns
        for chain in chains:
            index = np.flatnonzero(chain.mask(columns))
            [column.take(index) for column in columns]
    return sum(t.count for t in trains) / (time.perf_counter() - begun)


def prepare(queries: int, size: int, tuples: int) -> tuple[list[Train], list[int]]:
    """Make trains of about ``tuples`` tuples in all, and count how many of them pass each query."""
    distinct = workload.trains(DISTINCT_TRAINS, size)
    repeat = max(1, tuples // (size * DISTINCT_TRAINS))
    expected = [
        sum(int(np.count_nonzero(workload.bounds(q).mask(t.columns))) for t in distinct) for q in range(queries)
    ]
    return distinct * repeat, [repeat * count for count in expected]


def engine_against_bare(queries: int, options: Options) -> Result:
    tuples = (4_000_000 if options.quick else 20_000_000) // queries
    least = TRAIN_TUPLES * DISTINCT_TRAINS * (1 if options.quick else LEAST_REPEATS)
    trains, expected = prepare(queries, TRAIN_TUPLES, max(tuples, least))
    chains = ChainEngine(queries)
    try:
        chains.run(*prepare(queries, TRAIN_TUPLES, 0))  # warm-up: sequences are compiled at their first use
        rates = interleave(
            {"bare": lambda: bare_run(trains, queries), "engine": lambda: chains.run(trains, expected)}, options.rounds
        )
    finally:
        chains.stop()
    return Result.of_rounds(
        "chain",
        f"queries={queries}",
        "tuples_per_s",
        rates["engine"],
        rates["bare"],
        "in memory",
        at_least=TARGETS.get(queries, 0.8),
    )


def second_worker(size: int, options: Options) -> Result:
    trains, expected = prepare(WORKER_QUERIES, size, 200_000 if options.quick else 1_000_000)
    one, two = ChainEngine(WORKER_QUERIES), ChainEngine(WORKER_QUERIES, workers=2)
    try:
        for chains in (one, two):
            chains.run(*prepare(WORKER_QUERIES, size, 0))
        rates = interleave(
            {"one": lambda: one.run(trains, expected), "two": lambda: two.run(trains, expected)}, options.rounds
        )
    finally:
        one.stop()
        two.stop()
    case = f"queries={WORKER_QUERIES},workers=2,train={size}"
    return Result.of_rounds("chain", case, "tuples_per_s", rates["two"], rates["one"], "in memory")


def run(options: Options, queries: Sequence[int] = (), *, workers: bool = True) -> Iterator[Result]:
    compile_known()
    tune_process()  # as the daemon does; the bare loop profits from it too
    for count in queries or tuple(TARGETS):
        yield engine_against_bare(count, options)
    if workers and not queries:
        for size in WORKER_TRAINS:
            yield second_worker(size, options)
