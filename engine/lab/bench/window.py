"""``bench window``: a keyed window in trains, against the same aggregation of the whole batch by polars and DuckDB.

The query is count, average and maximum per key and second, with 1,000 keys and trains of 10,000. The engine (one
worker) gets train after train and emits each window when it closes; polars and DuckDB get all rows at once, on one
thread each. All must find the same number of groups. With ``--spark`` Spark Structured Streaming runs over the same
rows from Parquet, on all cores.

Two more parts measure what must not matter: the number of open windows and the number of idle keys. The last one
measures the state that a session window keeps for a million keys, each seen once.
"""

from __future__ import annotations

import gc
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import log
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from catalog.schema import Schema
from engine.lab.bench.harness import BenchError, Options, interleave
from engine.lab.bench.report import Result
from engine.operators.boxes.aggregate import Aggregate
from engine.operators.boxes.base import Tally
from engine.run.core import Engine
from engine.run.network_file import read_network
from engine.run.tuning import tune_process
from storage.compiled.compiler import compile_known
from storage.strings import StringPool
from storage.train import Array, Train, constant_ns

TRAIN_TUPLES = 10_000
KEYS = 1_000
ROWS_PER_SECOND = 50_000  # of event time: five trains a window, fifty rows a group
END_OF_TIME_NS = 2**62
WAIT_SECONDS = 120.0
AT_LEAST_POLARS, AT_LEAST_SPARK = 0.5, 3.0
IDLE_KEYS, IDLE_GROWTH = 60_000, 1.5
SESSION_KEYS = 1_000_000

SCHEMA = Schema.of(ts="timestamp", k="string", v="double")
SELECT = '{n: "count(*)", mean: "avg(v)", high: "max(v)"}'


@dataclass(frozen=True)
class WindowRows:
    """Rows in the order of time, at equal distances."""

    ts: Array
    keys: Array
    values: Array
    key_count: int

    @property
    def rows(self) -> int:
        return len(self.ts)

    def trains(self) -> list[Train]:
        pool = StringPool(f"k{i}" for i in range(self.key_count))
        out = []
        for start in range(0, self.rows, TRAIN_TUPLES):
            rows = slice(start, start + TRAIN_TUPLES)
            ts = self.ts[rows]
            columns = (ts, self.keys[rows], self.values[rows])
            arrival = constant_ns(int(ts[0]), len(ts))
            out.append(Train(SCHEMA, columns, arrival, pools=(None, pool, None), watermark_ns=int(ts[-1])))
        return out

    def table(self) -> Any:
        """Make an Arrow table, with plain strings."""
        import pyarrow as pa

        texts = pa.array([f"k{i}" for i in range(self.key_count)])
        strings = pa.DictionaryArray.from_arrays(self.keys, texts).cast(pa.string())
        return pa.table({"ts": self.ts, "k": strings, "v": self.values})


def make_work(rows: int, keys: int = KEYS) -> WindowRows:
    random = np.random.default_rng(0)
    ts = np.arange(rows) * (10**9 // ROWS_PER_SECOND)
    return WindowRows(ts, random.integers(0, keys, rows, np.int32), random.random(rows), keys)


# -- the engine -------------------------------------------------------------------------------------------------------


def network_text(window: str) -> str:
    return "\n".join(
        [
            "engine: {workers: 1, memory: 1GiB}",
            'http: {listen: "off"}',
            "streams: {rows: {schema: {ts: timestamp, k: string, v: double}, time: ts}}",
            f"boxes: {{grouped: {{aggregate: rows, window: {window}, by: [k], select: {SELECT}}}}}",
            "outputs: {out: {from: grouped}}",
            "",
        ]
    )


def engine_rate(
    work: WindowRows, expected: int, window: str = "{tumbling: 1s}", first: Sequence[Train] = ()
) -> Callable[[], float]:
    """Make a contender that feeds all trains, waits for the last window and returns rows per second.

    With ``expected`` 0 any number of groups will do. ``first`` is fed before the clock starts.
    """
    trains = work.trains()
    end = Train.empty(SCHEMA, END_OF_TIME_NS)

    def once() -> float:
        found = 0

        def count(train: Train) -> None:
            nonlocal found
            found += train.count

        engine = Engine(read_network(network_text(window), {}), [count], workers=1, memory_bytes=2**30)
        engine.start()
        try:
            for train in first:
                engine.ingress.admit(0, train)
            drain(engine)
            begun = time.perf_counter()
            for train in trains:
                engine.ingress.admit(0, train)
            if expected:  # else measure the tuples alone, without closing the windows that are open at the end
                engine.ingress.admit(0, end)
            drain(engine)
            seconds = max(engine.pool.ended_ns) / 1e9 - begun  # the last tuple is through: not that the engine rests
            engine.ingress.admit(0, end)
            drain(engine)
        finally:
            engine.stop()
        check("the engine", found, expected or found)
        return work.rows / seconds

    return once


def drain(engine: Engine) -> None:
    if not engine.drain(WAIT_SECONDS):
        raise BenchError(f"the engine has not finished after {WAIT_SECONDS:g} s")


def check(name: str, found: int, expected: int) -> None:
    if found != expected or not found:
        raise BenchError(f"{name} found {found} groups instead of {expected}")


# -- the others -------------------------------------------------------------------------------------------------------


def polars_run(work: WindowRows) -> Callable[[], tuple[int, float]]:
    import polars as pl

    rows = pl.from_arrow(work.table()).lazy()  # type: ignore[union-attr]
    second = (pl.col("ts") // 10**9).alias("second")
    value = pl.col("v")
    plan = rows.group_by(second, "k").agg(pl.len(), value.mean().alias("mean"), value.max().alias("high"))
    return lambda: _timed(lambda: len(plan.collect()))


def duckdb_run(work: WindowRows) -> Callable[[], tuple[int, float]] | None:
    """Return None if DuckDB is not installed: the daemon does not need it."""
    try:
        import duckdb
    except ImportError:
        return None
    db = duckdb.connect()
    db.execute("set threads = 1")
    db.register("incoming", work.table())
    sql = "select ts // 1000000000 as second, k, count(*), avg(v), max(v) from incoming group by second, k"
    return lambda: _timed(lambda: int(db.sql(sql).to_arrow_table().num_rows))


def _timed(count: Callable[[], int]) -> tuple[int, float]:
    begun = time.perf_counter()
    found = count()
    return found, time.perf_counter() - begun


def batch_rate(
    name: str, contender: Callable[[], tuple[int, float]], work: WindowRows, expected: int
) -> Callable[[], float]:
    def once() -> float:
        found, seconds = contender()
        check(name, found, expected)
        return work.rows / seconds

    return once


def spark_rate(work: WindowRows, expected: int) -> float:
    """Run Structured Streaming over the same rows from Parquet, ten trains a file; return rows per second of its second
    run."""
    import pyarrow.parquet as pq
    from pyspark.sql import SparkSession

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "rows").mkdir()
        table = work.table()
        for i, start in enumerate(range(0, table.num_rows, 10 * TRAIN_TUPLES)):
            pq.write_table(table.slice(start, 10 * TRAIN_TUPLES), Path(folder) / "rows" / f"{i:05d}.parquet")
        builder = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false")
        for place in ("spark.driver.host", "spark.driver.bindAddress"):
            builder = builder.config(place, "127.0.0.1")
        spark = builder.config("spark.sql.shuffle.partitions", str(os.cpu_count() or 1)).getOrCreate()
        try:
            spark.sparkContext.setLogLevel("ERROR")
            _spark_window(spark, folder, "first")  # warms the JVM up
            found, seconds = _spark_window(spark, folder, "second")
        finally:
            spark.stop()
    if found > expected:  # fewer are fine: its last windows stay open, because the watermark never passes them
        raise BenchError(f"Spark found {found} groups, more than {expected}")
    return work.rows / seconds


def _spark_window(spark: Any, folder: str, run: str) -> tuple[int, float]:
    raw = spark.readStream.schema("ts bigint, k string, v double").option("maxFilesPerTrigger", 4)
    rows = raw.parquet(f"{folder}/rows").selectExpr("timestamp_micros(ts div 1000) as at", "k", "v")
    rows.withWatermark("at", "0 seconds").createOrReplaceTempView("rows")
    grouped = spark.sql(
        "select window(at, '1 second') as w, k, count(*), avg(v), max(v) from rows group by window(at, '1 second'), k"
    )
    begun = time.perf_counter()
    writer = grouped.writeStream.format("noop").outputMode("append").trigger(availableNow=True)
    query = writer.option("checkpointLocation", f"{folder}/{run}").start()
    query.awaitTermination()
    seconds = time.perf_counter() - begun
    return sum(max(0, int(p["sink"]["numOutputRows"])) for p in query.recentProgress), seconds


# -- what must not matter ---------------------------------------------------------------------------------------------


def open_windows(rows: int, options: Options) -> Result:
    """Compare the cost per tuple with 500 open windows and with ten; each emits results every 20 ms."""
    work = make_work(rows, 10)
    few = engine_rate(work, 0, "{sliding: 200ms, advance: 20ms}")
    many = engine_rate(work, 0, "{sliding: 10s, advance: 20ms}")
    case = "open=500,open=10"
    return _compared_costs(case, {"few": few, "many": many}, options, round(log(500) / log(10), 1))


def idle_keys(rows: int, options: Options) -> Result:
    """Compare the cost per tuple with and without 60,000 keys in the window that came once and never again."""
    work = make_work(rows)
    first = make_work(IDLE_KEYS, IDLE_KEYS)
    first = replace(first, ts=np.zeros(IDLE_KEYS, np.int64), keys=np.arange(IDLE_KEYS, dtype=np.int32))
    window = "{tumbling: 1d}"
    contenders = {
        "few": engine_rate(work, 0, window),
        "many": engine_rate(work, 0, window, first.trains()),
    }
    case = f"idle_keys={IDLE_KEYS}"
    return _compared_costs(case, contenders, options, IDLE_GROWTH)


def _compared_costs(case: str, contenders: dict[str, Callable[[], float]], options: Options, at_most: float) -> Result:
    costs = {name: [1e9 / r for r in rates] for name, rates in interleave(contenders, options.rounds).items()}
    return Result.of_rounds("window", case, "tuple_cost_ns", costs["many"], costs["few"], "in memory", at_most=at_most)


def session_memory(keys: int) -> Iterator[Result]:
    """Send one tuple of each key through a session window; report the largest state, and the state at the end."""
    parameters = {"window": {"session": "1s"}, "by": ["k"], "select": {"n": "count(*)"}}
    box = Aggregate(Aggregate.parameters_model.model_validate(parameters))
    schema = Schema.of(ts="timestamp", k="string")
    box.bind((schema,), ("ts",))
    state, tally = box.new_state(), Tally()
    emitted = 0

    def emit(port: int, train: Train) -> None:
        nonlocal emitted
        emitted += train.count

    gc.collect()
    begun_bytes, before = box.state_nbytes(state), resident_bytes()
    largest = 0
    for start in range(0, keys, TRAIN_TUPLES):
        pool = StringPool(f"key number {i}" for i in range(start, start + TRAIN_TUPLES))
        ts = np.full(TRAIN_TUPLES, start * 100_000)  # 10,000 keys a second
        codes = np.arange(TRAIN_TUPLES, dtype=np.int32)
        box.run(state, 0, Train(schema, (ts, codes), constant_ns(0, len(ts)), pools=(None, pool)), emit, tally)
        box.advance(state, int(ts[0]), emit, tally)
        largest = max(largest, box.state_nbytes(state))
    box.advance(state, END_OF_TIME_NS - 1, emit, tally)
    box.advance(state, END_OF_TIME_NS, emit, tally)
    gc.collect()
    check("the session window", emitted, keys)
    extra = {"resident_growth_bytes": resident_bytes() - before, "begun_bytes": begun_bytes}
    yield Result("window", f"session,keys={keys},most", "state_bytes", largest, extra=extra)
    yield Result("window", f"session,keys={keys},left", "state_bytes", box.state_nbytes(state), extra=extra)


def resident_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


def run(options: Options, *, spark: bool = False) -> Iterator[Result]:
    os.environ.setdefault("POLARS_MAX_THREADS", "1")  # one core each; has no effect if polars is already imported
    compile_known()
    tune_process()
    work = make_work(1_000_000 if options.quick else 5_000_000)
    others = {"polars": polars_run(work), "duckdb": duckdb_run(work)}
    expected = others["polars"]()[0]  # type: ignore[misc]
    contenders = {"engine": engine_rate(work, expected)}
    contenders |= {name: batch_rate(name, other, work, expected) for name, other in others.items() if other}
    rates = interleave(contenders, options.rounds)
    for name in list(rates)[1:]:
        target = AT_LEAST_POLARS if name == "polars" else None
        case = f"tumbling,batch={name}"
        yield Result.of_rounds("window", case, "rows_per_s", rates["engine"], rates[name], "in memory", at_least=target)
    if spark:
        rate = spark_rate(work, expected)
        engine = median(rates["engine"])
        yield Result("window", "tumbling,spark", "rows_per_s", engine, rate, at_least=AT_LEAST_SPARK)
    rows = 500_000 if options.quick else 2_000_000
    yield open_windows(rows, options)
    yield idle_keys(rows, options)
    yield from session_memory(SESSION_KEYS // 10 if options.quick else SESSION_KEYS)
