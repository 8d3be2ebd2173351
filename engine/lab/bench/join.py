"""``bench join``: joins of two streams in trains, against the same join of the whole batch by polars and DuckDB.

Two streams of 24 bytes a row have the same times, 1,000 keys, trains of 10,000 and about one match a row. The engine
(one worker) gets train after train and emits each pair as soon as it is found; polars and DuckDB get all rows at once,
on one thread each. For them the band is written as buckets, as a good engineer would (in plain SQL DuckDB takes 20
times as long). All must find the same number of pairs.

A second part measures the cost of 60,000 idle keys, which should be nothing. With ``--spark`` Spark Structured
Streaming runs over the same rows from Parquet, on all cores.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from catalog.schema import Schema
from engine.lab.bench.harness import BenchError, Options, interleave
from engine.lab.bench.report import Result
from engine.run.core import Engine
from engine.run.network_file import read_network
from engine.run.tuning import tune_process
from storage.compiled.compiler import compile_known
from storage.strings import StringPool
from storage.train import Array, Train, constant_ns

TRAIN_TUPLES = 10_000
KEYS = 1_000
TICK_NS = 1_000
IDLE_KEYS = 60_000  # together with the others they fit one string pool
IDLE_GROWTH = 1.5
SPARK_ROWS = 200_000
SPARK_FILE_ROWS = 20_000  # a batch: Spark joins each row with all rows of its key in the state, so more is slower
WAIT_SECONDS = 120.0
END_OF_TIME_NS = 2**62

SCHEMAS = (Schema.of(ts="timestamp", k="string", x="double"), Schema.of(ts="timestamp", k="string", y="double"))
FIELDS = "schema: {{ts: timestamp, k: string, {}: double}}, time: ts"


@cache
def string_pool() -> StringPool:
    return StringPool([*(f"k{i}" for i in range(KEYS)), *(f"idle {i}" for i in range(IDLE_KEYS))])


@dataclass(frozen=True)
class JoinRows:
    """The rows of both streams: keys and values by stream. Row i has the time i * TICK_NS in both."""

    keys: tuple[Array, Array]
    values: tuple[Array, Array]
    within_ns: int

    @property
    def rows(self) -> int:
        return sum(len(k) for k in self.keys)

    def trains(self, stream: int) -> list[Train]:
        pool = string_pool()
        out = []
        for start in range(0, len(self.keys[stream]), TRAIN_TUPLES):
            rows = slice(start, start + TRAIN_TUPLES)
            ts = np.arange(start, start + len(self.keys[stream][rows])) * TICK_NS
            columns = (ts, self.keys[stream][rows], self.values[stream][rows])
            arrival = constant_ns(int(ts[0]), len(ts))
            out.append(Train(SCHEMAS[stream], columns, arrival, pools=(None, pool, None), watermark_ns=int(ts[-1])))
        return out

    def table(self, stream: int) -> Any:
        """Make an Arrow table, with plain strings."""
        import pyarrow as pa

        texts = pa.array([f"k{i}" for i in range(KEYS)])
        strings = pa.DictionaryArray.from_arrays(self.keys[stream], texts).cast(pa.string())
        ts = np.arange(len(self.keys[stream])) * TICK_NS
        return pa.table({"ts": ts, "k": strings, "xy"[stream]: self.values[stream]})


def make_work(rows: int) -> JoinRows:
    random = np.random.default_rng(0)
    keys = tuple(random.integers(0, KEYS, rows, np.int32) for _ in range(2))
    values = tuple(random.random(rows) for _ in range(2))
    # A band of KEYS ticks, half of it on either side, holds one row of each key.
    return JoinRows((keys[0], keys[1]), (values[0], values[1]), KEYS * TICK_NS // 2)


# -- the engine -------------------------------------------------------------------------------------------------------


def network_text(box: str) -> str:
    streams = [f"  {name}: {{{FIELDS.format(value)}}}" for name, value in (("left", "x"), ("right", "y"))]
    head = ["engine: {workers: 1, memory: 1GiB}", "http: {listen: off}", "streams:", *streams]
    return "\n".join([*head, "boxes:", f"  joined: {box}", "outputs: {out: {from: joined}}"]) + "\n"


def band_box(work: JoinRows) -> str:
    return f'{{join: [left, right], on: "l.k = r.k", within: {work.within_ns}ns}}'


ASOF_BOX = '{join: [left, right], on: "l.k = r.k", asof: true}'


class JoinBench:
    """An engine with one join, and the number of its results."""

    def __init__(self, box: str) -> None:
        self.results = 0
        network = read_network(network_text(box), {})
        self.engine = Engine(network, [self._count], workers=1, memory_bytes=2**30)

    def _count(self, train: Train) -> None:
        self.results += train.count

    def run(self, streams: tuple[list[Train], list[Train]], first: list[Train]) -> float:
        """Feed ``first`` to the right stream, then both streams in turn; return the seconds of the latter."""
        self.engine.start()
        try:
            for train in first:
                self.engine.ingress.admit(1, train)
            self._drain()
            begun = time.perf_counter()
            for pair in zip(*streams, strict=True):
                for stream, train in enumerate(pair):
                    self.engine.ingress.admit(stream, train)
            for stream, schema in enumerate(SCHEMAS):
                self.engine.ingress.admit(stream, Train.empty(schema, END_OF_TIME_NS))
            self._drain()
            return max(self.engine.pool.ended_ns) / 1e9 - begun  # the last pair is out: not that the engine rests
        finally:
            self.engine.stop()

    def _drain(self) -> None:
        if not self.engine.drain(WAIT_SECONDS):
            raise BenchError(f"the engine has not finished after {WAIT_SECONDS:g} s")


def engine_rate(box: str, work: JoinRows, expected: int, first: list[Train] | None = None) -> Callable[[], float]:
    streams = (work.trains(0), work.trains(1))

    def once() -> float:
        joined = JoinBench(box)
        seconds = joined.run(streams, first or [])
        check("the engine", joined.results, expected)
        return work.rows / seconds

    return once


def idle_trains() -> list[Train]:
    """Make trains of keys that come once, before everything else, and never match."""
    codes = np.arange(KEYS, KEYS + IDLE_KEYS, dtype=np.int32)
    columns = (np.full(IDLE_KEYS, -1), codes, np.zeros(IDLE_KEYS))
    whole = Train(SCHEMAS[1], columns, constant_ns(0, IDLE_KEYS), pools=(None, string_pool(), None))
    return [whole.slice(i, i + TRAIN_TUPLES) for i in range(0, IDLE_KEYS, TRAIN_TUPLES)]


# -- the others -------------------------------------------------------------------------------------------------------


def polars_contenders(work: JoinRows) -> dict[str, Callable[[], tuple[int, float]]]:
    import polars as pl

    left, right = pl.from_arrow(work.table(0)).lazy(), pl.from_arrow(work.table(1)).lazy()  # type: ignore[union-attr]
    half, width = work.within_ns, 2 * work.within_ns

    def band() -> tuple[int, float]:
        a = left.with_columns(b=pl.col("ts") // width)
        b = right.with_columns(b=pl.concat_list((pl.col("ts") - half) // width, (pl.col("ts") + half) // width))
        pairs = a.join(b.explode("b"), on=["k", "b"]).filter((pl.col("ts") - pl.col("ts_right")).abs() <= half)
        return _timed(lambda: len(pairs.collect()))

    def asof() -> tuple[int, float]:
        pairs = left.join_asof(right, on="ts", by="k", check_sortedness=False).drop_nulls("y")
        return _timed(lambda: len(pairs.collect()))

    return {"band": band, "asof": asof}


def duckdb_contenders(work: JoinRows) -> dict[str, Callable[[], tuple[int, float]]]:
    """Return nothing if DuckDB is not installed: the daemon does not need it."""
    try:
        import duckdb
    except ImportError:
        return {}
    db = duckdb.connect()
    db.execute("set threads = 1")
    db.register("lt", work.table(0))
    db.register("rt", work.table(1))
    half, width = work.within_ns, 2 * work.within_ns
    # One width above zero, because // rounds towards zero.
    buckets = f"unnest([(ts + {width - half}) // {width}, (ts + {width + half}) // {width}])"
    band = f"""select l.ts, l.k, x, r.ts as r_ts, r.k as r_k, y
               from (select *, (ts + {width}) // {width} as b from lt) l join (select *, {buckets} as b from rt) r
               on l.k = r.k and l.b = r.b and r.ts between l.ts - {half} and l.ts + {half}"""  # noqa: S608
    asof = "select lt.ts, lt.k, x, rt.ts as r_ts, rt.k as r_k, y from lt asof join rt on lt.k = rt.k and lt.ts >= rt.ts"

    def of(sql: str) -> Callable[[], tuple[int, float]]:
        return lambda: _timed(lambda: int(db.sql(sql).to_arrow_table().num_rows))

    return {"band": of(band), "asof": of(asof)}


def _timed(count: Callable[[], int]) -> tuple[int, float]:
    begun = time.perf_counter()
    found = count()
    return found, time.perf_counter() - begun


def batch_rate(
    name: str, contender: Callable[[], tuple[int, float]], work: JoinRows, expected: int
) -> Callable[[], float]:
    def once() -> float:
        found, seconds = contender()
        check(name, found, expected)
        return work.rows / seconds

    return once


def check(name: str, found: int, expected: int) -> None:
    if found != expected:
        raise BenchError(f"{name} found {found} pairs instead of {expected}")


# -- Spark ------------------------------------------------------------------------------------------------------------


def spark_rate(work: JoinRows, expected: int) -> float:
    """Run Structured Streaming over the rows from Parquet, a file of each stream at a time; return rows per second."""
    import pyarrow.parquet as pq
    from pyspark.sql import SparkSession

    with tempfile.TemporaryDirectory() as folder:
        for stream, name in enumerate(("left", "right")):
            (Path(folder) / name).mkdir()
            table = work.table(stream)
            for i, start in enumerate(range(0, table.num_rows, SPARK_FILE_ROWS)):
                pq.write_table(table.slice(start, SPARK_FILE_ROWS), Path(folder) / name / f"{i:05d}.parquet")
        builder = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false")
        builder = builder.config("spark.sql.shuffle.partitions", str(os.cpu_count() or 1))
        spark = builder.getOrCreate()
        try:
            spark.sparkContext.setLogLevel("ERROR")
            for name in ("left", "right"):  # the first run warms the JVM up
                _spark_stream(spark, f"{folder}/{name}", name).createOrReplaceTempView(f"{name}_rows")
            _spark_join(spark, work, f"{folder}/first")
            found, seconds = _spark_join(spark, work, f"{folder}/second")
        finally:
            spark.stop()
    check("Spark", found, expected)
    return work.rows / seconds


def _spark_stream(spark: Any, path: str, name: str) -> Any:
    value = "x" if name == "left" else "y"
    raw = spark.readStream.schema(f"ts bigint, k string, {value} double").option("maxFilesPerTrigger", 1).parquet(path)
    at = f"timestamp_micros(ts div 1000 + 1000000) as {name}_at"  # a row at 0 would be late for Spark
    return raw.selectExpr(at, f"k as {name}_k", value).withWatermark(f"{name}_at", "10 milliseconds")


def _spark_join(spark: Any, work: JoinRows, checkpoint: str) -> tuple[int, float]:
    half = f"interval {work.within_ns // 1_000} microseconds"
    joined = spark.sql(
        f"""select * from left_rows join right_rows on left_k = right_k
            and right_at >= left_at - {half} and right_at <= left_at + {half}"""  # noqa: S608
    )
    begun = time.perf_counter()
    query = (
        joined.writeStream.format("noop").trigger(availableNow=True).option("checkpointLocation", checkpoint).start()
    )
    query.awaitTermination()
    seconds = time.perf_counter() - begun
    found = 0
    for progress in query.recentProgress:
        found += int(progress["sink"]["numOutputRows"]) if isinstance(progress, dict) else progress.sink.numOutputRows
    return found, seconds


# -- all of it --------------------------------------------------------------------------------------------------------


def run(options: Options, *, spark: bool = False) -> Iterator[Result]:
    os.environ.setdefault("POLARS_MAX_THREADS", "1")  # one core each; has no effect if polars is already imported
    compile_known()
    tune_process()
    work = make_work(200_000 if options.quick else 1_000_000)
    boxes = {"band": band_box(work), "asof": ASOF_BOX}
    others = {"polars": polars_contenders(work), "duckdb": duckdb_contenders(work)}
    for case, box in boxes.items():
        expected = others["polars"][case]()[0]
        contenders = {"engine": engine_rate(box, work, expected)}
        for name, found in others.items():
            if case in found:
                contenders[name] = batch_rate(name, found[case], work, expected)
        rates = interleave(contenders, options.rounds)
        for name in list(rates)[1:]:
            yield Result.of_rounds(
                "join", f"{case},batch={name}", "rows_per_s", rates["engine"], rates[name], "in memory"
            )
        if spark and case == "band":
            engine = median(rates["engine"])
            yield Result("join", "band,spark", "rows_per_s", engine, against_spark(), at_least=3.0)
        if case == "asof":
            yield idle_keys(work, expected, options)


def against_spark() -> float:
    work = make_work(SPARK_ROWS)
    return spark_rate(work, polars_contenders(work)["band"]()[0])


def idle_keys(work: JoinRows, expected: int, options: Options) -> Result:
    """Compare with and without idle keys. An as-of join keeps the last row of every key; idle ones must be free."""
    contenders = {
        "few": engine_rate(ASOF_BOX, work, expected),
        "many": engine_rate(ASOF_BOX, work, expected, idle_trains()),
    }
    costs = {name: [1e9 / r for r in rates] for name, rates in interleave(contenders, options.rounds).items()}
    case = f"asof,idle_keys={IDLE_KEYS}"
    return Result.of_rounds("join", case, "row_cost_ns", costs["many"], costs["few"], "in memory", at_most=IDLE_GROWTH)
