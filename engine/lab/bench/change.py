"""``bench change``: add a query to a network of many queries under load, and remove it again.

The daemon runs in this process, without sockets. A thread feeds one stream, so that the engine is busy for about a
quarter of the time, and every query is a filter on that stream. Measured:

- the time until an added query is live, and until the door has answered
- the p99 latency of outputs that have nothing to do with the change: before it, during it (until 200 ms after the
  answer), and afterwards
- the throughput after many changes, against a daemon that has just started with the same network
- the time to read a network and to make a daemon of it
- bills: how much of the busy time is in no bill
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from statistics import median
from threading import Event, Thread
from time import monotonic, perf_counter, sleep

import numpy as np

from engine.daemon.daemon import Daemon
from engine.lab.bench.harness import BenchError, Options, interleave
from engine.lab.bench.report import Result
from engine.run.network_file import read_network
from engine.run.tuning import tune_process
from storage.train import Train, constant_ns

SIZES = (10, 1_000, 3_000)
TRAIN = 50
NS_PER_CALL = 60_000  # of a plan of one filter with a short train, roughly: it sets the pace of the feeder
LOAD = 0.25
WATCHED = 5
SETTLE_S = 1.0
AFTER_S = 0.2
LIVE_GOAL_S = 0.1  # at 1,000 queries
READ_GOAL_S = 2.0  # at 3,000 queries
CHANGES = 1_000
BURST = 400_000  # tuples of one measurement of throughput
LIMIT_S = 120.0


def network_text(queries: int) -> str:
    boxes = "\n".join(f'  b{i}: {{filter: s, where: "n % {i + 2} = 0 and price > {i % 97}"}}' for i in range(queries))
    outputs = "\n".join(f"  o{i}: {{from: b{i}, qos: {{deadline: 1s}}}}" for i in range(queries))
    head = 'http: {listen: "off"}\nstreams:\n  s: {schema: {n: bigint, price: double}, overload: block}\n'
    return f"{head}boxes:\n{boxes}\noutputs:\n{outputs}\n"


def query_text(number: int) -> str:
    box = f'{{filter: s, where: "n > {number}"}}'
    return f"boxes: {{added{number}: {box}}}\noutputs: {{new{number}: {{from: added{number}}}}}\n"


class Load:
    """Feeds the stream, and records the latency of each train that the first outputs deliver."""

    def __init__(self, daemon: Daemon, queries: int) -> None:
        self._daemon = daemon
        self._pause_s = max(0.005, queries * NS_PER_CALL / 1e9 / LOAD)
        self._train = train_of(daemon, TRAIN)
        self._ended = Event()
        self._thread = Thread(target=self._feed, name="feeder")
        self.latencies: list[tuple[float, float]] = []  # when, and how long, in seconds
        for number in range(min(queries, WATCHED)):
            daemon.subscribe(f"o{number}", self._note)

    def _note(self, train: Train) -> None:
        self.latencies.append((monotonic(), (self._daemon.now_ns() - int(train.arrival_ns[0])) / 1e9))

    def _feed(self) -> None:
        while not self._ended.wait(self._pause_s):
            self._daemon.ingress.admit(0, arrived(self._train, self._daemon.now_ns()))

    @contextmanager
    def running(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._ended.set()
            self._thread.join()

    def p99_s(self, begun: float, ended: float) -> float:
        found = [took for at, took in self.latencies if begun <= at < ended]
        if not found:
            raise BenchError("no result came for a while: the machine is too busy to measure")
        return float(np.quantile(found, 0.99))


def train_of(daemon: Daemon, tuples: int) -> Train:
    schema = daemon.network.stream("s").schema
    numbers = list(range(tuples))
    return Train.from_pylists(schema, {"n": numbers, "price": [100.0] * tuples}, daemon.now_ns())


def arrived(train: Train, now_ns: int) -> Train:
    """Return the same tuples, arrived at this time."""
    return Train(train.schema, train.columns, constant_ns(now_ns, train.count))


@contextmanager
def daemon_of(text: str) -> Iterator[Daemon]:
    daemon = Daemon(read_network(text, {}), text=text)
    daemon.start()
    try:
        yield daemon
    finally:
        daemon.stop(0.0)


def timed_change(daemon: Daemon, change: Callable[[], object]) -> tuple[float, float]:
    """Make a change; return the seconds until the next network runs, and until the door has answered."""
    version = daemon.network.version
    live: list[float] = []

    def watch() -> None:
        while daemon.network.version == version:
            sleep(0.001)
        live.append(monotonic())

    watcher = Thread(target=watch, name="watcher")
    watcher.start()
    begun = monotonic()
    change()
    answered = monotonic()
    watcher.join()
    return live[0] - begun, answered - begun


def changes_under_load(queries: int, options: Options) -> Iterator[Result]:
    text = network_text(queries)
    begun = perf_counter()
    read_network(text, {})
    read_s = perf_counter() - begun
    yield _with_goal(queries, "read, seconds", read_s, SIZES[2], READ_GOAL_S)
    live: dict[str, list[float]] = {"add": [], "remove": []}
    answered: dict[str, list[float]] = {"add": [], "remove": []}
    p99s: list[tuple[float, ...]] = []
    with daemon_of(text) as daemon:
        load = Load(daemon, queries)
        daemon.changes.add_query(query_text(0), dry_run=False)  # the first edit of a text takes longer
        with load.running():
            sleep(SETTLE_S)
            for number in range(1, 1 + options.rounds):
                for word, change in (
                    ("add", partial(daemon.changes.add_query, query_text(number), dry_run=False)),
                    ("remove", partial(daemon.changes.remove_query, f"new{number}", dry_run=False)),
                ):
                    start = monotonic()
                    live_s, answered_s = timed_change(daemon, change)
                    end = monotonic() + AFTER_S
                    sleep(AFTER_S + SETTLE_S)
                    live[word].append(live_s)
                    answered[word].append(answered_s)
                    spans = ((start - SETTLE_S, start), (start, end), (end, end + SETTLE_S))
                    p99s.append(tuple(load.p99_s(*span) for span in spans))
            billing = daemon.readings().billing
    yield from report(queries, live, answered, p99s)
    share = abs(billing.residual_ns) / max(1, billing.busy_ns)
    yield Result("change", f"{queries} queries", "in no bill, share", share, 0.01, at_most=1.0)


def report(
    queries: int,
    live: dict[str, list[float]],
    answered: dict[str, list[float]],
    p99s: Sequence[tuple[float, ...]],
) -> Iterator[Result]:
    case = f"{queries} queries"
    for word in live:
        yield _with_goal(queries, f"{word} until live, seconds", median(live[word]), SIZES[1], LIVE_GOAL_S)
        yield Result("change", case, f"{word} until answered, seconds", median(answered[word]))
    before, during, after = (median(column) for column in zip(*p99s, strict=True))
    yield Result("change", case, "p99 of others during, seconds", during, before, at_most=2.0)
    yield Result("change", case, "p99 of others after, seconds", after, before)


def _with_goal(queries: int, metric: str, value: float, size: int, goal: float) -> Result:
    """Make a result whose baseline is the goal for networks of this size."""
    if queries != size:
        return Result("change", f"{queries} queries", metric, value)
    return Result("change", f"{queries} queries", metric, value, goal, at_most=1.0)


def throughput_after_changes(options: Options) -> Iterator[Result]:
    text = network_text(SIZES[0])
    made = CHANGES // 10 if options.quick else CHANGES
    with daemon_of(text) as changed:
        for number in range(made // 2):
            changed.changes.add_query(query_text(number), dry_run=False)
            changed.changes.remove_query(f"new{number}", dry_run=False)
        with daemon_of(text) as fresh:
            contenders = {"changed": lambda: tuples_per_s(changed), "fresh": lambda: tuples_per_s(fresh)}
            interleave(contenders, 1)
            found = interleave(contenders, options.rounds)
    yield Result.of_rounds(
        "change", f"after {made} changes", "tuples a second", found["changed"], found["fresh"], "in memory",
        at_least=0.97,
    )  # fmt: skip


def tuples_per_s(daemon: Daemon, length: int = 10_000) -> float:
    train = train_of(daemon, length)
    begun = perf_counter()
    for _ in range(BURST // length):
        daemon.ingress.admit(0, arrived(train, daemon.now_ns()), timeout_s=LIMIT_S)
    if not daemon.engine.drain(LIMIT_S):
        raise BenchError("the engine has not come to rest")
    return BURST / (perf_counter() - begun)


def run(options: Options, queries: Sequence[int] = ()) -> Iterator[Result]:
    tune_process()  # as aurorad run does
    for size in queries or SIZES:
        yield from changes_under_load(size, options)
    if not queries:
        yield from throughput_after_changes(options)
