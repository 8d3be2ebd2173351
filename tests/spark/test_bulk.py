"""Bulk sources: every row once, whatever fails on the way; the rest refused with its place."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from engine.daemon.daemon import Daemon
from router.spark.daemon.host import SparkHost
from router.spark.daemon.jobs import BulkJob
from router.spark.daemon.remote import RemoteTarget
from tests.spark.data import finish, loading, network, trades, write_parquet
from tests.spark.flaky import ALL, Flaky

pytest.importorskip("pyspark")

BIG = 'big: {filter: trades, where: "price * size > 20000 and venue is not null"}'
SUMS = "select symbol, count(*) n, round(sum(price * size), 2) amount from {} group by symbol order by symbol"


def sums(rows: pa.Table) -> list[tuple[Any, ...]]:
    """By DuckDB, over what came out of the network."""
    return duckdb.sql(SUMS.format("rows")).fetchall()


def expected(folder: Path, where: str = "price * size > 20000 and venue is not null") -> list[tuple[Any, ...]]:
    """By DuckDB, over the files."""
    return duckdb.sql(SUMS.format(f"(select * from '{folder}/*.parquet' where {where})")).fetchall()


def failure(daemon: Daemon) -> str:
    finish(daemon)
    [reading] = daemon.readings().bulk
    assert reading.state == "failed"
    return reading.error


def test_parquet_through_the_network_equals_duckdb(host: SparkHost, tmp_path: Path) -> None:
    folder = write_parquet(tmp_path / "in", 3, 50_000)
    with loading(network(f"{{spark: parquet, path: {folder}}}", BIG, "big"), host) as (daemon, reader):
        finish(daemon)
        assert sums(reader.table()) == expected(folder)
        readings = daemon.readings()
        [bulk], stream = readings.bulk, readings.streams[0]
        assert (bulk.state, bulk.rows, bulk.rows_expected) == ("done", 150_000, 150_000)
        assert bulk.partitions == bulk.partitions_done > 1
        assert (stream.received, stream.admitted, stream.rejected) == (150_000, 150_000, {})
        assert readings.spark.up


@pytest.mark.parametrize("frames", [1, 2, ALL])
def test_tasks_that_fail_once_bring_every_row_once(host: SparkHost, tmp_path: Path, frames: int) -> None:
    folder = write_parquet(tmp_path / "in", 2, 150_000)
    with loading(network(f"{{spark: parquet, path: {folder}}}", BIG, "big"), host) as (daemon, reader):
        flaky = Flaky(daemon, lambda part: frames)
        finish(daemon)
        assert flaky.cut >= 2, "the test has cut nothing off"
        assert sums(reader.table()) == expected(folder)
        assert daemon.readings().streams[0].received == 300_000


def test_the_jvm_killed_in_the_middle_loses_and_repeats_nothing(own: SparkHost, tmp_path: Path) -> None:
    folder = write_parquet(tmp_path / "in", 2, 300_000)
    before = own.reading().lost
    with loading(network(f"{{spark: parquet, path: {folder}}}", BIG, "big"), own) as (daemon, reader):
        while not 0 < daemon.spark.intake.counts[0].received < 600_000:
            assert daemon.spark.is_reading
            time.sleep(0.001)
        pid = own.jvm_pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        finish(daemon)
        assert daemon.readings().spark.lost > before
        assert sums(reader.table()) == expected(folder)
        assert daemon.readings().streams[0].received == 600_000


@pytest.mark.parametrize("kind", ["csv", "json", "orc"])
def test_other_formats(host: SparkHost, tmp_path: Path, kind: str) -> None:
    table = trades(2_000)
    folder = tmp_path / "in"
    folder.mkdir()
    if kind == "csv":
        pa_csv.write_csv(table.select(["price", "symbol", "ts", "size", "venue"]), folder / "a.csv")
    elif kind == "json":
        (folder / "a.json").write_text(
            "\n".join(str(row).replace("'", '"') for row in table.drop(["ts", "venue"]).to_pylist())
        )
    else:
        from pyarrow import orc

        orc.write_table(table, folder / "a.orc")
    schema = "{symbol: string, price: double, size: int}" if kind == "json" else None
    text = network(f"{{spark: {kind}, path: {folder}}}")
    if schema is not None:
        text = text.replace(text[text.index("{ts:") : text.index("}", text.index("{ts:")) + 1], schema)
    with loading(text, host) as (daemon, reader):
        finish(daemon)
        assert not daemon.readings().bulk[0].error
        assert reader.column("price") == table["price"].to_pylist()
        assert reader.column("symbol") == table["symbol"].to_pylist()
        if kind != "json":
            assert reader.column("ts") == [v.value for v in table["ts"].cast(pa.timestamp("ns", "UTC"))]
            assert reader.column("venue") == table["venue"].to_pylist()


def test_sql_casts_what_does_not_fit(host: SparkHost, tmp_path: Path) -> None:
    table = trades(1_000).set_column(2, "price", [[str(i) for i in range(1_000)]])
    pq.write_table(table, tmp_path / "a.parquet")
    sql = "select ts, symbol, cast(price as double) as price, size, venue from source where size > 500"
    with loading(network(f'{{spark: parquet, path: {tmp_path}, sql: "{sql}"}}'), host) as (daemon, reader):
        finish(daemon)
        sizes, prices = table["size"].to_pylist(), range(1_000)
        assert sorted(reader.column("price")) == [p for p, size in zip(prices, sizes, strict=True) if size > 500]


def test_order_by_and_a_window_behind_it(host: SparkHost, tmp_path: Path) -> None:
    """Two files whose times interleave: sent as they lie, the second would be late for every window."""
    rows = trades(20_000)
    for half in (0, 1):
        pq.write_table(rows.take(list(range(half, 20_000, 2))), tmp_path / f"{half}.parquet")
    window = "w: {aggregate: trades, window: {tumbling: 1s}, select: {n: 'count(*)', total: 'sum(size)'}}"
    text = network(f"{{spark: parquet, path: {tmp_path}}}", window, "w", stream=", time: ts")
    with loading(text, host, batch=True) as (daemon, reader):
        finish(daemon)
        assert daemon.readings().boxes[0].late == 0
        wanted = duckdb.sql("select count(*), sum(size) from rows group by time_bucket(interval 1 second, ts)")
        assert sorted(zip(reader.column("n"), reader.column("total"), strict=True)) == sorted(wanted.fetchall())


def test_the_next_day_goes_on_where_the_files_ended(host: SparkHost, tmp_path: Path) -> None:
    """After the files the stream rests: the window that the last row is in is open, and what is brought later belongs
    to it or comes behind it. A batch run, which ends there, would close it."""
    for day, rows in enumerate((2_500, 3_000)):  # a row a millisecond
        pq.write_table(trades(rows, day, 2_500 * day), tmp_path / f"{day}.parquet")
    window = "w: {aggregate: trades, window: {tumbling: 1s}, select: {n: 'count(*)'}}"
    text = network(f"{{spark: parquet, path: {tmp_path}/0.parquet}}", window, "w", stream=", time: ts")
    with loading(text, host) as (daemon, reader):
        finish(daemon)
        assert reader.column("n") == [1_000, 1_000]
        target = RemoteTarget(daemon.spark.port.address, "", "next", "trades", "as_fast")
        source = {"spark": "parquet", "path": f"{tmp_path}/1.parquet", "options": {}, "sql": None, "order_by": []}
        BulkJob(host, "next", source, daemon.network.stream("trades").schema, target).run()
        assert daemon.engine.drain(30)
        assert daemon.readings().boxes[0].late == 0
        assert reader.column("n") == [1_000] * 5


def test_a_pace_goes_by_the_event_times(host: SparkHost, tmp_path: Path) -> None:
    pq.write_table(trades(2_000), tmp_path / "a.parquet")  # two seconds of event time
    text = network(f"{{spark: parquet, path: {tmp_path}, pace: 4x}}", stream=", time: ts")
    with loading(text, host) as (daemon, reader):
        finish(daemon)
        assert reader.count == 2_000
        arrivals = [int(t.arrival_ns[0]) for t in reader.trains]
        times = [int(t.columns[0][0]) for t in reader.trains]
        lag_ns = [arrival - arrivals[0] - (at - times[0]) / 4 for arrival, at in zip(arrivals, times, strict=True)]
        assert min(lag_ns) > -20e6, "a row came before its time"
        assert arrivals[-1] - arrivals[0] > 0.4e9


def test_null_where_there_must_be_none_is_refused_by_row(host: SparkHost, tmp_path: Path) -> None:
    table = trades(1_000)
    symbols = [None if i % 10 == 3 else s for i, s in enumerate(table["symbol"].to_pylist())]
    pq.write_table(table.set_column(1, "symbol", [symbols]), tmp_path / "a.parquet")
    with loading(network(f"{{spark: parquet, path: {tmp_path}}}"), host) as (daemon, reader):
        finish(daemon)
        stream = daemon.readings().streams[0]
        assert (stream.received, stream.admitted, dict(stream.rejected)) == (1_000, 900, {"null": 100})
        assert reader.count == 900


# -- what cannot be ---------------------------------------------------------------------------------------------------


def test_a_path_that_is_not_there(host: SparkHost, tmp_path: Path) -> None:
    with loading(network(f"{{spark: parquet, path: {tmp_path}/nowhere}}"), host) as (daemon, _):
        assert "nowhere" in failure(daemon)


def test_every_column_that_does_not_fit_is_named_and_nothing_is_read(host: SparkHost, tmp_path: Path) -> None:
    table = trades(100).drop(["size"]).set_column(2, "price", pa.array(["1.0"] * 100).cast(pa.string()))
    pq.write_table(table, tmp_path / "a.parquet")
    with loading(network(f"{{spark: parquet, path: {tmp_path}}}"), host) as (daemon, reader):
        error = failure(daemon)
        assert "column price is string where double is wanted" in error
        assert "column size is missing" in error
        assert "venue" not in error.split("the source has")[0]
        assert reader.count == 0 and daemon.readings().streams[0].received == 0


def test_a_corrupt_file_fails_with_its_name_after_what_was_good(host: SparkHost, tmp_path: Path) -> None:
    folder = write_parquet(tmp_path / "in", 2, 150_000, groups=50_000)
    bad = folder / "1.parquet"
    data = bytearray(bad.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 4_000] = b"\xff" * 4_000
    bad.write_bytes(data)
    with loading(network(f"{{spark: parquet, path: {folder}}}"), host) as (daemon, reader):
        assert "1.parquet" in failure(daemon)
        bulk = daemon.readings().bulk[0]
        assert bulk.rows == reader.count == daemon.readings().streams[0].admitted
        assert 0 < bulk.rows < 300_000


def test_a_line_of_csv_that_does_not_parse_fails_the_job(host: SparkHost, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("symbol,price,size,ts,venue\nA,1.5,2,2024-01-01T00:00:00Z,N\nB,dear,2,x,N\n")
    with loading(network(f"{{spark: csv, path: {tmp_path}}}"), host) as (daemon, _):
        told = failure(daemon)
        assert f"{tmp_path}/a.csv:3: not a row of the stream: B,dear,2,x,N" in told


def test_sql_that_is_no_query_is_refused(host: SparkHost) -> None:
    with loading(network('{spark: sql, sql: "drop table trades"}'), host) as (daemon, _):
        assert "must be a query" in failure(daemon)
