"""A watched folder: each file once, whatever happens to the files, the JVM and the daemon; bad rows in files of their
own. The oracle is DuckDB over the same files."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest
import yaml

from engine.daemon.daemon import Daemon
from engine.lab.draft.from_spark import draft_from_spark
from engine.run.network_file import read_network
from router.spark.daemon.host import SparkHost
from router.spark.daemon.rounds import RoundBook
from router.spark.daemon.watched_source import WatchedSource
from router.spark.wire.errors import SparkUnavailableError
from tests.e2e.daemon import TRADES, wait_for
from tests.spark.data import Reader, trades

pytest.importorskip("pyspark")

LONG_AGO = 10**9


def network(source: str, data: Path) -> str:
    return f"""
http: {{listen: "off"}}
engine: {{data_dir: {data}}}
streams:
  trades: {{schema: {TRADES}, source: {source}}}
outputs:
  out: {{from: trades}}
"""


@contextmanager
def watching(text: str, host: SparkHost, *, once: bool = False) -> Iterator[tuple[Daemon, Reader]]:
    daemon = Daemon(read_network(text, {}), spark=host, once=once)
    reader = Reader()
    daemon.subscribe("out", reader)
    daemon.start()
    try:
        yield daemon, reader
    finally:
        daemon.stop()


def put(path: Path, rows: int, seed: int, start: int = 0) -> None:
    """A whole file that has not changed for long: it is ready at the first look."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(trades(rows, seed, start), path)
    os.utime(path, (LONG_AGO + seed, LONG_AGO + seed))


def taken(daemon: Daemon) -> int:
    return daemon.readings().watched[0].taken


def prices(reader: Reader) -> list[float]:
    return sorted(reader.column("price"))


def wanted(files: str) -> list[float]:
    return [price for (price,) in duckdb.sql(f"select price from '{files}' order by price").fetchall()]


def test_each_file_is_taken_once_and_what_changes_later_is_told(
    host: SparkHost, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "in"
    put(folder / "a.parquet", 1_000, 1)
    put(folder / "odd [name] %20, 100%.parquet", 500, 2)
    put(folder / "_hidden.parquet", 10, 3)
    (folder / "half.parquet").write_bytes(b"PAR1 not all of it yet")
    os.utime(folder / "half.parquet", (LONG_AGO, LONG_AGO))
    text = network(f"{{spark: parquet, path: {folder}, watch: 100ms}}", tmp_path / "data")
    with caplog.at_level("INFO", "aurorad.spark"), watching(text, host) as (daemon, reader):
        wait_for(lambda: taken(daemon) == 2, "both files are taken", 100)
        assert "half.parquet: not a file of parquet" in caplog.text
        put(folder / "half.parquet", 200, 4)  # now it is whole
        wait_for(lambda: taken(daemon) == 3, "the file that was set aside is tried again", 100)
        put(folder / "a.parquet", 7, 5)
        (folder / "half.parquet").rename(folder / "whole.parquet")
        wait_for(lambda: daemon.readings().watched[0].changed == 1, "the change is told", 100)
        wait_for(lambda: daemon.readings().watched[0].renamed == 1, "the new name is told", 100)
        wait_for(lambda: reader.count == 1_700, "all rows are in", 100)
    assert "a.parquet: it has changed since it was taken" in caplog.text
    assert "whole.parquet was taken as" in caplog.text
    expected = sorted([*trades(1_000, 1)["price"].to_pylist(), *trades(500, 2)["price"].to_pylist(),
                       *trades(200, 4)["price"].to_pylist()])  # fmt: skip
    assert prices(reader) == expected
    # The next start knows all of it, and starts no Spark when nothing is new.
    caplog.clear()
    with caplog.at_level("INFO", "aurorad.spark"), watching(text, host, once=True) as (daemon, reader):
        wait_for(lambda: not daemon.spark.is_reading, "nothing is new", 60)
        assert taken(daemon) == 4, "three files and one more name"
        assert reader.count == 0 and not daemon.spark.failures
    assert "round" not in caplog.text


def test_a_file_that_grows_is_waited_for(host: SparkHost, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    path = folder / "a.csv"
    text = network(f"{{spark: csv, path: {folder}, watch: 700ms}}", tmp_path / "data")
    with path.open("w") as out, watching(text, host) as (daemon, reader):
        out.write("ts,symbol,price,size,venue\n")
        for i in range(10):
            out.write(f"2026-01-01T00:00:00Z,A,{i},1,N\n")
            out.flush()
            wait_for(lambda: daemon.readings().watched[0].waiting == 1 or taken(daemon), "it is seen", 30)
            assert taken(daemon) == 0 or i > 0
        out.flush()
        os.fsync(out.fileno())
        wait_for(lambda: taken(daemon) == 1, "it has come to rest", 100)
        wait_for(lambda: reader.count > 0, "its rows are in", 100)
        assert prices(reader) == [float(i) for i in range(reader.count)] and reader.count == 10


def test_rows_that_do_not_fit_have_a_file_with_their_reasons(host: SparkHost, tmp_path: Path) -> None:
    folder, bad = tmp_path / "in", tmp_path / "bad"
    folder.mkdir()
    good = "2026-01-01T00:00:00Z,A,1.5,2,N"
    lines = {  # the text of a row that does not parse; of one that does, a part of what it holds
        "2026-01-01T00:00:00Z,B,dear,2,N": "price is no double: dear",
        "2026-01-01T00:00:00Z,C,1.5,18446744073709551616,N": "size is no int: 18446744073709551616",
        '"size":2222': "symbol is NULL",
        "yesterday,D,1.5,2,N": "ts is no timestamp: yesterday",
        '"symbol":"E"': "ts is out of range",
        "2026-01-01T00:00:00Z,F,1.5": "",
    }
    whole = [line for line in lines if not line.startswith('"')]
    parsed = ["2026-01-01T00:00:00Z,,1.5,2222,N", "3026-01-01T00:00:00Z,E,1.5,2,N"]
    (folder / "a.csv").write_text("ts,symbol,price,size,venue\n" + "\n".join([good, *whole, good, *parsed]) + "\n")
    # Another order of columns, and one of its own; NaN is a double.
    (folder / "b.csv").write_text("size,price,extra,symbol,ts\n7,NaN,x,Z,2026-01-01T00:00:00Z\n,1,x,Y,2026-01-01\n")
    for name in ("a.csv", "b.csv"):
        os.utime(folder / name, (LONG_AGO, LONG_AGO))
    text = network(f"{{spark: csv, path: {folder}, watch: 100ms, bad_rows: {bad}}}", tmp_path / "data")
    with watching(text, host, once=True) as (daemon, reader):
        wait_for(lambda: not daemon.spark.is_reading, "both files are read", 100)
        assert not daemon.spark.failures
        assert daemon.engine.drain(30)
        assert sorted(reader.column("size")) == [2, 2, 7]
        assert sorted(map(str, reader.column("price"))) == ["1.5", "1.5", "nan"]
        stream = daemon.readings().streams[0]
        assert (stream.received, stream.admitted, dict(stream.rejected)) == (10, 3, {"quarantined": 7})
        assert daemon.readings().watched[0].bad_rows == 7
    [file] = bad.glob("*.ndjson")
    found = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(found) == 7
    for line, why in lines.items():
        [entry] = [entry for entry in found if line in entry["record"]]
        assert why in entry["reason"] and entry["file"] == str(folder / "a.csv"), entry
    [other] = [entry for entry in found if entry["file"] == str(folder / "b.csv")]
    assert other["reason"] == "size is NULL" and json.loads(other["record"])["symbol"] == "Y"


def test_a_csv_whose_columns_stand_in_another_order_is_no_other_data(host: SparkHost, tmp_path: Path) -> None:
    """Without ``watch`` too: Spark alone would read the prices of the second file as sizes."""
    (tmp_path / "a.csv").write_text("ts,symbol,price,size,venue\n2026-01-01T00:00:00Z,A,1,2,N\n")
    (tmp_path / "b.csv").write_text("ts,symbol,size,price,venue\n2026-01-01T00:00:00Z,A,4,3,N\n")
    text = network(f"{{spark: csv, path: {tmp_path}/*.csv}}", tmp_path / "data")
    with watching(text, host, once=True) as (daemon, _):
        wait_for(lambda: not daemon.spark.is_reading, "it is read", 100)
        [failure] = daemon.spark.failures
        assert "header" in failure.lower()
    bad = network(f"{{spark: csv, path: {tmp_path}/*.csv, bad_rows: {tmp_path}/bad}}", tmp_path / "data2")
    with watching(bad, host, once=True) as (daemon, reader):
        wait_for(lambda: not daemon.spark.is_reading, "it is read", 100)
        assert not daemon.spark.failures
        assert daemon.engine.drain(30)
        assert sorted(zip(reader.column("price"), reader.column("size"), strict=True)) == [(1.0, 2), (3.0, 4)]
    assert not list((tmp_path / "bad").glob("*"))


@pytest.mark.parametrize("step", ["decide", "_enter", "done"])
def test_a_round_that_is_cut_off_enters_once(
    host: SparkHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Before it is decided, before its rows enter, and when all of them have. Another file comes while it is down, and
    one that was decided on is gone: its staged rows enter all the same."""
    folder = tmp_path / "in"
    for i in range(3):
        put(folder / f"{i}.parquet", 300, i, 300 * i)
    before = wanted(f"{folder}/*.parquet")
    text = network(f"{{spark: parquet, path: {folder}, watch: 100ms}}", tmp_path / "data")
    cut: list[str] = []

    def cut_off(*_: object) -> None:
        cut.append(step)
        raise SparkUnavailableError("the power is cut")

    with monkeypatch.context() as patch:
        patch.setattr(WatchedSource if step == "_enter" else RoundBook, step, cut_off)
        with watching(text, host) as (daemon, first):
            wait_for(lambda: cut and not daemon.spark.is_reading, "the power is cut", 100)
            assert daemon.engine.drain(30)
    if step != "decide":
        (folder / "0.parquet").unlink()
    put(folder / "new.parquet", 100, 9, 5_000)
    with watching(text, host, once=True) as (daemon, second):
        wait_for(lambda: not daemon.spark.is_reading, "all is read", 100)
        assert not daemon.spark.failures
        assert daemon.engine.drain(30)
        assert taken(daemon) == 4
    assert first.count == (900 if step == "done" else 0)
    assert sorted(prices(first) + prices(second)) == sorted(before + wanted(f"{folder}/new.parquet"))


def test_what_the_schema_of_odd_files_says_can_be_run(host: SparkHost, tmp_path: Path) -> None:
    rows = duckdb.sql("""
        select i::tinyint as tiny, (i * 1.25)::decimal(20, 2) as price, date '2026-01-01' + i::int as day,
               {'a': i, 'b': [i]} as nested, case when i = 3 then null else i end as gap,
               timestamp '2026-01-01' + to_seconds(i) as ts, 'x' || i as "odd.name", encode('b' || i) as raw
        from range(10) t(i)""")
    rows.write_parquet(str(tmp_path / "a.parquet"))
    source = {"spark": "parquet", "path": str(tmp_path / "a.parquet"), "options": {}}
    text = draft_from_spark(source, host.call("infer", **source))
    stream = yaml.safe_load(text)["streams"]["rows"]
    assert stream["schema"] == {
        "tiny": "int", "price": "double", "day": "timestamp", "nested": "string", "gap": "bigint?", "ts": "timestamp",
        "odd_name": "string", "raw": "string",
    }  # fmt: skip
    whole = "http: {listen: 'off'}\n" + text.replace("all_rows: {from: rows}", "out: {from: rows}")
    with watching(whole, host, once=True) as (daemon, reader):
        wait_for(lambda: not daemon.spark.is_reading, "it is read", 100)
        assert not daemon.spark.failures
        assert daemon.engine.drain(30)
        assert sorted(reader.column("price")) == [i * 1.25 for i in range(10)]
        assert sorted(json.loads(text)["b"][0] for text in reader.column("nested")) == list(range(10))
        assert sorted(reader.column("odd_name")) == [f"x{i}" for i in range(10)]
        assert reader.column("gap").count(None) == 1
