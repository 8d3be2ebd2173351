"""Sinks: every tuple committed once, in few files, whatever dies on the way."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from engine.daemon.daemon import Daemon
from engine.run.network_file import read_network
from router.spark.daemon import jobs
from router.spark.daemon.host import SparkHost
from router.spark.wire.pipe import fields_of
from storage.train import Train
from tests.e2e.daemon import TRADES, wait_for
from tests.spark.conftest import ELSEWHERE

pytest.importorskip("pyspark")


def network(sink: str, boxes: str = "", out: str = "trades", engine: str = "") -> str:
    return f"""
http: {{listen: "off"}}
engine: {{{engine}}}
streams:
  trades: {{schema: {TRADES}}}
boxes: {{{boxes}}}
outputs:
  archive: {{from: {out}, sink: {sink}}}
"""


@contextmanager
def sinking(text: str, host: SparkHost) -> Iterator[Daemon]:
    daemon = Daemon(read_network(text, {}), spark=host)
    daemon.start()
    try:
        yield daemon
    finally:
        daemon.stop()


def feed(daemon: Daemon, start: int, rows: int) -> None:
    schema = daemon.network.stream("trades").schema
    numbers = range(start, start + rows)
    data: dict[str, list[Any]] = {
        "ts": [n * 1_000 for n in numbers],
        "symbol": [f"S{n % 7}" for n in numbers],
        "price": [float(n) for n in numbers],
        "size": [n % 100 for n in numbers],
        "venue": [None if n % 10 == 0 else "N" for n in numbers],
    }
    daemon.ingress.admit(daemon.network.stream("trades").number, Train.from_pylists(schema, data, daemon.now_ns()))


def manifests(path: Path) -> list[dict[str, Any]]:
    return [json.loads(file.read_text()) for file in sorted((path / "_aurorad" / "commits").glob("*.json"))]


def prices(path: Path) -> list[float]:
    """By DuckDB, over what any reader of the folder finds."""
    rows = duckdb.sql(f"select price from read_parquet('{path}/*.parquet') order by price").fetchall()
    return [price for (price,) in rows]


def test_parquet_in_few_files_with_a_manifest(host: SparkHost, tmp_path: Path) -> None:
    out = tmp_path / "out"
    big = 'big: {filter: trades, where: "price >= 100"}'
    with sinking(network(f"{{spark: parquet, path: {out}, every: 1s}}", big, "big"), host) as daemon:
        for start in range(0, 1_000, 100):
            feed(daemon, start, 100)
        sink = daemon.spark.sinks[0]
        wait_for(lambda: sink.committed == 900, "all is committed by time", 60)
        feed(daemon, 1_000, 50)
        assert daemon.engine.drain(30) and daemon.spark.flush(60)
        [reading] = daemon.readings().sinks
        assert (reading.committed, reading.buffered, reading.offered) == (950, 0, 950)
    assert prices(out) == [float(n) for n in range(100, 1_050)]
    entries = manifests(out)
    assert sum(entry["rows"] for entry in entries) == 950
    files = {file["to"] for entry in entries for file in entry["files"]}
    assert files == {p.name for p in out.glob("*.parquet")}
    assert len(files) == len(entries) <= 4, "a file for a commit"
    assert not list((out / "_aurorad" / "staging").iterdir())
    [row] = duckdb.sql(
        f"select ts, symbol, size, venue from read_parquet('{out}/*.parquet') where price = 110"
    ).fetchall()
    assert (row[0].timestamp(), *row[1:]) == (110e-6, "S5", 10, None)


def test_folders_by_field_and_other_formats(host: SparkHost, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with sinking(network(f"{{spark: json, path: {out}, partition_by: [symbol]}}"), host) as daemon:
        feed(daemon, 0, 70)
    assert {p.name for p in out.iterdir()} == {"_aurorad", *[f"symbol=S{i}" for i in range(7)]}
    rows = duckdb.sql(
        f"select price, symbol from read_json('{out}/symbol=*/*.json', hive_partitioning = true)"
    ).fetchall()
    assert sorted(rows) == sorted((float(n), f"S{n % 7}") for n in range(70))


def test_a_disk_that_is_full_when_a_commit_is_noted_repeats_it_and_goes_on(host: SparkHost, tmp_path: Path) -> None:
    """And folders of a field that begins with a sign of Spark's own hold its rows all the same."""
    out = tmp_path / "out"
    box = "b: {map: trades, add: {_s: symbol}}"
    with sinking(network(f"{{spark: parquet, path: {out}, partition_by: [_s]}}", box, "b"), host) as daemon:
        outlet = daemon.spark.sinks[0]
        remove, failed = outlet.segments.remove, []

        def fail_once(segment: Any) -> None:
            if not failed:
                failed.append(segment)
                raise OSError(errno.ENOSPC, "No space left on device")
            remove(segment)

        outlet.segments.remove = fail_once  # type: ignore[method-assign]
        feed(daemon, 0, 100)
        assert daemon.engine.drain(30) and outlet.flush(60)
        assert failed and outlet.retries == 1
    found = duckdb.sql(f"select price from read_parquet('{out}/_s=*/*.parquet') order by price").fetchall()
    assert [price for (price,) in found] == [float(n) for n in range(100)]


def test_a_database_gets_each_commit_once(
    host: SparkHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"jdbc:derby:{tmp_path}/base;create=true"
    sink = f'{{spark: jdbc, options: {{url: "{url}", dbtable: trades, commit_column: aurorad_commit}}}}'
    with sinking(network(sink), host) as daemon:
        feed(daemon, 0, 100)
        outlet = daemon.spark.sinks[0]
        assert daemon.engine.drain(30) and outlet.flush(60)
        # The crash after the commit and before its segment is removed: the same commit comes again.
        remove, removed = outlet.segments.remove, []

        def lose_once(segment: Any) -> None:
            if not removed:
                removed.append(segment)
                outlet._work.set()
                return
            remove(segment)

        outlet.segments.remove = lose_once  # type: ignore[method-assign]
        feed(daemon, 100, 100)
        assert daemon.engine.drain(30) and outlet.flush(60)
        assert removed
    source = f'{{spark: jdbc, options: {{url: "{url}", dbtable: trades}}}}'
    text = network("{tcp: 127.0.0.1:0}").replace(f"schema: {TRADES}", f"schema: {TRADES}, source: {source}")
    seen: list[float] = []
    daemon = Daemon(read_network(text, {}), spark=host)
    daemon.subscribe("archive", lambda train: seen.extend(train.to_pylist(2)))
    daemon.start()
    try:
        wait_for(lambda: not daemon.spark.is_reading, "the table is read", 60)
        assert not daemon.spark.failures
        assert daemon.engine.drain(10)
    finally:
        daemon.stop()
    assert sorted(seen) == [float(n) for n in range(200)]
    check_increasing(
        text.replace("dbtable: trades}", "dbtable: trades}, increasing: ts"), host, tmp_path, monkeypatch, caplog
    )


def check_increasing(
    text: str, host: SparkHost, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The first run reads the table and says how far it is, the second one only what is new: nothing."""
    monkeypatch.setattr(jobs, "STAGED_SECONDS", 0.05)
    for rows in (200, 0):
        caplog.clear()
        daemon = Daemon(
            read_network(text.replace("engine: {}", f"engine: {{data_dir: {folder}/data}}"), {}), spark=host
        )
        with caplog.at_level("INFO", "aurorad.spark"):
            daemon.start()
            try:
                wait_for(lambda: not daemon.spark.is_reading, "the table is read", 60)  # noqa: B023
                assert not daemon.spark.failures
                assert f"all {rows} rows have come" in caplog.text and "tasks of Spark are done" in caplog.text
            finally:
                daemon.stop()


@pytest.mark.timeout(500)  # three starts of a JVM on a machine that others use
def test_the_jvm_killed_again_and_again_commits_everything_once(own: SparkHost, tmp_path: Path) -> None:
    """A short version of ``kills.py``, which does it twenty times."""
    out = tmp_path / "out"
    rng = np.random.default_rng(7)
    lost = own.reading().lost
    with sinking(network(f"{{spark: parquet, path: {out}, every: 100ms}}"), own) as daemon:
        sent = 0
        for _ in range(2):
            before = daemon.spark.sinks[0].commits
            wait_for(lambda: own.jvm_pid is not None or not feed(daemon, 0, 0), "a JVM is there", 100)
            until = time.monotonic() + rng.random() * 2
            while time.monotonic() < until or daemon.spark.sinks[0].commits == before:
                feed(daemon, sent, 100)
                sent += 100
                time.sleep(0.02)
            pid = own.jvm_pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
        assert daemon.engine.drain(30) and daemon.spark.flush(300)
        assert daemon.readings().spark.lost > lost
    assert prices(out) == [float(n) for n in range(sent)]


def test_what_piles_up_is_prepared_ahead_and_committed_in_order(
    host: SparkHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what was prepared and has gone since is written again."""
    monkeypatch.setattr("router.spark.daemon.outlets.SEGMENT_BYTES", 20_000)
    out = tmp_path / "out"
    asked: list[tuple[str, str]] = []
    ask = host.ask

    def listen(do: str, **arguments: Any) -> Any:
        asked.append((do, arguments["commit"]))
        if [word for word, _ in asked].count("commit") == 3 and do == "commit":
            shutil.rmtree(out / "_aurorad" / "staging" / arguments["commit"])
        return ask(do, **arguments)

    monkeypatch.setattr(host, "ask", listen)
    monkeypatch.setattr("router.spark.daemon.outlets.BATCH_ROWS", 500)
    with sinking(network(f"{{spark: parquet, path: {out}, every: 1h}}"), host) as daemon:
        for start in range(0, 4_000, 500):
            feed(daemon, start, 500)
        assert daemon.engine.drain(30) and daemon.spark.flush(100)
        assert daemon.spark.sinks[0].retries == 0
    commits = [name for do, name in asked if do == "commit"]
    assert commits == sorted(commits) and len(commits) >= 4
    assert [name for do, name in asked if do == "prepare"] == commits[1:], (
        "all but the first, while another is committed"
    )
    assert prices(out) == [float(n) for n in range(4_000)]
    assert [entry["commit"] for entry in manifests(out)] == commits


@pytest.mark.parametrize(
    ("system", "folders", "folder_name"),
    [
        pytest.param("", False, "out", id="here"),
        pytest.param("", True, "out", id="here-folders"),
        pytest.param(ELSEWHERE, False, "out", id="elsewhere"),
        pytest.param(ELSEWHERE, True, "out", id="elsewhere-folders"),
        pytest.param("", False, "o[1]{a,b}:*?u t", id="here-signs"),
        pytest.param("", True, "o[1]{a,b}:*?u t", id="here-folders-signs"),
    ],
)
def test_small_files_are_joined_on_request(
    host: SparkHost, tmp_path: Path, system: str, folders: bool, folder_name: str
) -> None:
    """On this machine, and through a file system of Hadoop's; names of folders are names and no patterns."""
    out = tmp_path / folder_name
    path = f"{system}{out}"
    by = "[symbol]" if folders else "[]"
    with sinking(network(f"{{spark: parquet, path: '{path}', partition_by: {by}}}"), host) as daemon:
        for start in range(0, 280, 70):
            feed(daemon, start, 70)
            assert daemon.engine.drain(30) and daemon.spark.flush(60)
        plain = tmp_path / "plain"  # DuckDB takes the signs of the folder's name for a pattern
        plain.symlink_to(out)
        glob = f"{plain}/symbol=*/*.parquet" if folders else f"{plain}/*.parquet"
        read = f"select price, symbol, venue from read_parquet('{glob}', hive_partitioning = {folders}) order by price"
        before = duckdb.sql(read).fetchall()
        assert len(before) == 280
        sink = daemon.spark.sinks[0]._sink
        request = {
            "sink": {"spark": "parquet", "path": path, "options": {}, "partition_by": sink.partition_by},
            "fields": fields_of(daemon.network.outputs[0].schema), "small_bytes": 10**6,
        }  # fmt: skip
        leftover = out / "_aurorad/staging/compact-of-one-that-was-killed/part-0.parquet"
        leftover.parent.mkdir(parents=True)
        leftover.write_bytes(b"x")
        done = host.call("compact", 60, **request)
        assert not leftover.parent.exists()
        assert (done["before"], done["after"]) == ((28, 7) if folders else (4, 1))
        assert duckdb.sql(read).fetchall() == before
        assert host.call("compact", 60, **request)["before"] == 0, "nothing is left to join"
        feed(daemon, 280, 70)
    assert len(duckdb.sql(read).fetchall()) == 350


def test_a_target_that_cannot_be_written_is_tried_again_and_blocks_nobody(host: SparkHost, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.write_text("a file where the folder should be")
    with sinking(network(f"{{spark: parquet, path: {out}, every: 100ms}}"), host) as daemon:
        feed(daemon, 0, 100)
        wait_for(lambda: daemon.readings().sinks[0].retries > 0, "the commit failed", 60)
        [reading] = daemon.readings().sinks
        assert reading.buffered == 100 and reading.error
        out.unlink()
        wait_for(lambda: daemon.readings().sinks[0].committed == 100, "it was tried again", 60)
    assert prices(out) == [float(n) for n in range(100)]
