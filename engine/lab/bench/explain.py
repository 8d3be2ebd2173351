"""``bench explain``: the cost of sampling tuples' journeys, by which the daemon explains why a tuple was late.

The network is that of ``bench chain``, chains of five filters in trains of 10,000. Here a daemon in this process runs
it: with arrival times, latency records and the monitor. The baseline is the same daemon without sampling.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from engine.daemon.daemon import Daemon
from engine.lab.bench import workload
from engine.lab.bench.chain import Countdown, prepare
from engine.lab.bench.harness import BenchError, Options, interleave
from engine.lab.bench.report import Result
from engine.run.network_file import read_network
from engine.run.tuning import tune_process
from storage.train import Train, constant_ns

TRAIN_TUPLES = 10_000
QUERIES = (1, 40)
AT_LEAST = 0.98
WAIT_SECONDS = 120.0


class DaemonPair:
    """Two started daemons: one samples journeys, the other does not."""

    def __init__(self, queries: int) -> None:
        self.by_name = {"with": _daemon(queries, True), "without": _daemon(queries, False)}
        self.finish: dict[str, Countdown] = {}
        for name, daemon in self.by_name.items():
            finish = self.finish[name] = Countdown(queries)
            for output in daemon.network.outputs:
                daemon.subscribe(output.name, lambda train, n=output.number, f=finish: f.outlet(n, train))  # type: ignore[misc]
            daemon.start()

    def run(self, name: str, trains: Sequence[Train], expected: Sequence[int]) -> float:
        """Feed all trains and wait for the last result; return tuples per second."""
        daemon, finish = self.by_name[name], self.finish[name]
        finish.expect(expected)
        begun = time.perf_counter()
        for t in trains:
            stamped = Train(t.schema, t.columns, constant_ns(daemon.now_ns(), t.count), pools=t.pools)
            daemon.ingress.admit(daemon.network.stream("rows").number, stamped)
        if not finish.done.wait(WAIT_SECONDS):
            raise BenchError(f"{sum(finish.left)} tuples are missing after {WAIT_SECONDS:g} s")
        return sum(t.count for t in trains) / (time.perf_counter() - begun)

    def stop(self) -> None:
        for daemon in self.by_name.values():
            daemon.stop()


def _daemon(queries: int, explain: bool) -> Daemon:
    text = workload.chain_network(queries)
    return Daemon(read_network(text.replace("memory: 1GiB", f"memory: 1GiB, explain: {str(explain).lower()}"), {}))


def on_against_off(queries: int, options: Options) -> Result:
    trains, expected = prepare(queries, TRAIN_TUPLES, (4_000_000 if options.quick else 20_000_000) // queries)
    daemons = DaemonPair(queries)
    try:
        for name in daemons.by_name:
            daemons.run(name, *prepare(queries, TRAIN_TUPLES, 0))
        rates = interleave(
            {name: lambda name=name: daemons.run(name, trains, expected) for name in daemons.by_name},  # type: ignore[misc]
            6 * options.rounds,  # to find a difference of 1 % on machines with more noise than that
        )
        sampled = daemons.by_name["with"].engine.journeys
        assert sampled is not None
        extra = {"journeys": len(sampled.finished)}
    finally:
        daemons.stop()
    return Result(
        "explain", f"queries={queries}", "tuples_per_s", max(rates["with"]), max(rates["without"]),
        at_least=AT_LEAST, extra=extra,
    )  # fmt: skip


def run(options: Options) -> Iterator[Result]:
    tune_process()
    for queries in QUERIES:
        yield on_against_off(queries, options)
