"""``bench spark``: the pipeline on Spark, against plain Spark and against no Spark at all, on the same files.

- push: Parquet through Spark into a stream with five filters, against ``df.toArrow()``; the time of the first tuples as
  a share of the whole; and pyarrow alone, as the floor.
- sink: an output into Parquet through Spark, against ``createDataFrame(arrow).coalesce(2).write``.
- live: the p99 of an unrelated output while a bulk job runs, against the same without one.
- memory: the peak of the daemon's process while 20 M rows go through it (``memory.py``).

One driver serves push and sink, and each case is warmed up once, so that the start of a JVM is not measured. The driver
has normal priority, because plain Spark beside it has; for live it has the low priority that a daemon gives it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from threading import Event, Thread
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from engine.daemon.daemon import Daemon
from engine.lab.bench import workload
from engine.lab.bench.harness import BenchError, Options, interleave
from engine.lab.bench.report import Result
from engine.lab.bench.spark.memory import memory
from engine.run.network_file import read_network
from engine.run.tuning import tune_process
from router.spark.daemon.host import LOW_PRIORITY, SparkHost
from storage.train import Train

CASES = ("push", "sink", "live", "memory")
FILES = 5
WAIT_SECONDS = 600.0
LIVE_SECONDS = 4.0
LIVE_PAUSE_SECONDS = 0.002
LIVE_WARM = 50  # trains of the daemon's first tenth of a second: they do not count, in both cases


def write_files(folder: Path, rows: int) -> Path:
    """Write the four columns of every benchmark, in row groups of a usual size."""
    folder.mkdir(parents=True)
    for i in range(FILES):
        table = as_table(workload.columns(rows // FILES, i))
        pq.write_table(table, folder / f"{i}.parquet", row_group_size=250_000)
    return folder


def network(folder: Path, *, live: bool = False) -> str:
    bounds = workload.bounds(0)
    chain, before = [], "history"
    for i, predicate in enumerate(bounds.predicates):
        chain.append(f'  f{i}: {{filter: {before}, where: "{predicate}"}}')
        before = f"f{i}"
    schema = "{seq: bigint, symbol: string, price: double, size: int}"
    extra = f"  live: {{schema: {schema}}}\n" if live else ""
    boxes = '  quick: {filter: live, where: "price > 0"}\n' if live else ""
    out = "  now: {from: quick, qos: {deadline: 50ms}}\n" if live else ""
    source = f"source: {{spark: parquet, path: {folder}}}"
    return (
        f"http: {{listen: 'off'}}\nstreams:\n  history: {{schema: {schema}, {source}}}\n"
        f"{extra}boxes:\n{chr(10).join(chain)}\n{boxes}outputs:\n  out: {{from: {before}}}\n{out}"
    )


class BulkPush:
    """One bulk job through a daemon of its own: the seconds until its first tuples and until its end."""

    def __init__(self, host: SparkHost, folder: Path, expected: int) -> None:
        daemon = Daemon(read_network(network(folder), {}), spark=host)
        self.first_s = self.seconds = 0.0
        through = 0

        def take(train: Train) -> None:
            nonlocal through
            if not through:
                self.first_s = time.perf_counter() - begun
            through += train.count

        daemon.subscribe("out", take)
        begun = time.perf_counter()
        daemon.start()
        try:
            wait_read(daemon)
            if not daemon.engine.drain(WAIT_SECONDS):
                raise BenchError("the network did not drain")
            self.seconds = time.perf_counter() - begun
        finally:
            daemon.stop()
        if through != expected:
            raise BenchError(f"{through} tuples came through instead of {expected}")


def wait_read(daemon: Daemon) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while daemon.spark.is_reading:
        if time.monotonic() > deadline:
            raise BenchError("the bulk job did not end")
        time.sleep(0.002)
    if daemon.spark.failures:
        raise BenchError(daemon.spark.failures[0])


def push(host: SparkHost, folder: Path, rows: int, options: Options) -> Iterator[Result]:
    table = pq.read_table(folder)
    columns = tuple(table.column(n).to_numpy() for n in ("seq", "price", "size"))
    expected = int(np.count_nonzero(workload.bounds(0).mask((columns[0], columns[0], columns[1], columns[2]))))
    del table, columns
    firsts: list[float] = []

    def pushed() -> float:
        one = BulkPush(host, folder, expected)
        firsts.append(one.first_s / one.seconds)
        return rows / one.seconds

    def to_arrow() -> float:
        done = host.call("to_arrow", WAIT_SECONDS, path=str(folder))
        return float(done["rows"] / done["seconds"])

    def floor() -> float:
        begun = time.perf_counter()
        return pq.read_table(folder).num_rows / (time.perf_counter() - begun)

    pushed(), to_arrow()  # warm-up
    firsts.clear()
    rates = interleave({"push": pushed, "to_arrow": to_arrow, "pyarrow": floor}, 3 if options.quick else 10)
    best = {name: max(values) for name, values in rates.items()}
    yield Result("spark", "push,filters=5", "rows_per_s", best["push"], best["to_arrow"], at_least=0.9)
    yield Result("spark", "pyarrow alone", "rows_per_s", best["pyarrow"], best["to_arrow"])
    yield Result("spark", "push,first tuples", "share_of_total", median(firsts), 1.0, at_most=0.25)


def sink(host: SparkHost, folder: Path, work: Path, rows: int, options: Options) -> Iterator[Result]:
    trains = workload.trains(max(1, rows // 50_000), 50_000)
    source = work / "sink.parquet"
    write_trains(source, trains)
    schema = "{seq: bigint, symbol: string, price: double, size: int}"

    def ours() -> float:
        out = work / "ours"
        shutil.rmtree(out, ignore_errors=True)
        text = (
            f"http: {{listen: 'off'}}\nstreams:\n  s: {{schema: {schema}}}\n"
            f"outputs:\n  o: {{from: s, sink: {{spark: parquet, path: {out}, every: 1h, files: 2}}}}\n"
        )
        daemon = Daemon(read_network(text, {}), spark=host)
        daemon.start()
        try:
            begun = time.perf_counter()
            for train in trains:
                daemon.ingress.admit(daemon.network.stream("s").number, train)
            if not daemon.engine.drain(WAIT_SECONDS) or not daemon.spark.flush(WAIT_SECONDS):
                raise BenchError("the sink did not commit")
            seconds = time.perf_counter() - begun
        finally:
            daemon.stop()
        if (found := pq.read_table(out).num_rows) != rows:
            raise BenchError(f"{found} rows were committed instead of {rows}")
        return rows / seconds

    def plain() -> float:
        done = host.call("plain_write", WAIT_SECONDS, path=str(source), out=str(work / "plain"))
        return float(done["rows"] / done["seconds"])

    ours(), plain()  # warm-up; the JVM goes on compiling for some rounds, of both
    rates = interleave({"ours": ours, "plain": plain}, 2 if options.quick else 20)
    yield Result("spark", "sink,parquet", "rows_per_s", max(rates["ours"]), max(rates["plain"]), at_least=0.9)


def write_trains(path: Path, trains: list[Train]) -> None:
    pq.write_table(pa.concat_tables([as_table(train.columns) for train in trains]), path)


def as_table(columns: workload.Columns) -> pa.Table:
    seq, symbol, price, size = columns
    names: Any = pa.array(workload.SYMBOLS)
    arrays: dict[str, Any] = {"seq": seq, "symbol": names.take(pa.array(symbol)), "price": price, "size": size}
    return pa.table(arrays)


def live(folder: Path, options: Options) -> Iterator[Result]:
    """Measure alone and beside a bulk job, in turns; report the best of each."""
    alone, beside = [], []
    host = make_host(LOW_PRIORITY)
    try:
        host.start()
        for _ in range(2 if options.quick else 4):
            alone.append(live_p99(SparkHost(), folder, with_bulk=False))
            beside.append(live_p99(host, folder, with_bulk=True))
    finally:
        host.stop()
    yield Result("spark", "live output,during bulk", "p99_s", min(beside), min(alone), at_most=2.0)


def live_p99(host: SparkHost, folder: Path, *, with_bulk: bool) -> float:
    text = network(folder, live=True)
    if not with_bulk:
        text = text.replace(f", source: {{spark: parquet, path: {folder}}}", "")
    daemon = Daemon(read_network(text, {}), spark=host)
    latencies: list[int] = []
    daemon.subscribe("now", lambda train: latencies.append(daemon.now_ns() - int(train.arrival_ns[0])))
    stopped = Event()
    train = workload.trains(1, 10)[0]

    def feed() -> None:
        while not stopped.wait(LIVE_PAUSE_SECONDS):
            stamped = Train(train.schema, train.columns, np.full(10, daemon.now_ns(), np.int64), pools=train.pools)
            daemon.ingress.admit(daemon.network.stream("live").number, stamped)

    feeder = Thread(target=feed, name="live")
    daemon.start()
    try:
        feeder.start()
        if with_bulk:
            wait_read(daemon)
        else:
            time.sleep(LIVE_SECONDS)
    finally:
        stopped.set()
        feeder.join()
        daemon.stop()
    if len(latencies) < 2 * LIVE_WARM:
        raise BenchError(f"only {len(latencies)} live trains: the bulk job was too short")
    return float(np.quantile(latencies[LIVE_WARM:], 0.99)) / 1e9


def make_host(nice: int) -> SparkHost:
    return SparkHost(f"local[{os.cpu_count()}]", {"spark.driver.memory": "2g"}, nice=nice)


def run(options: Options, cases: Sequence[str] = CASES) -> Iterator[Result]:
    tune_process()
    rows = 1_000_000 if options.quick else 5_000_000
    with tempfile.TemporaryDirectory() as work:
        folder = write_files(Path(work, "in"), rows)
        if {"push", "sink"} & set(cases):
            host = make_host(0)
            try:
                yield from push(host, folder, rows, options) if "push" in cases else ()
                yield from sink(host, folder, Path(work), rows // 2, options) if "sink" in cases else ()
            finally:
                host.stop()
        if "live" in cases:
            yield from live(folder, options)
        if "memory" in cases:
            yield from memory(Path(work), write_files, 2_000_000 if options.quick else 20_000_000)
