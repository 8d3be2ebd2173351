"""The real daemon, from files to files: ``run --once``, ``ingest``, killed in the middle and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import duckdb
import pytest

from engine.lab.processes import command
from tests.e2e.daemon import TRADES, free_ports, running, wait_for
from tests.spark.conftest import SPARK
from tests.spark.data import write_parquet

pytest.importorskip("pyspark")

BATCH = Path("configs/batch.yaml")


def run_once(file: Path, environ: dict[str, str], seconds: float = 200.0) -> subprocess.CompletedProcess[bytes]:
    words = command("run", str(file), "--once")
    return subprocess.run(words, env={**os.environ, **environ}, capture_output=True, timeout=seconds, check=False)


def rows(query: str) -> list[tuple[Any, ...]]:
    return duckdb.sql(query).fetchall()


def check(folder: Path, out: Path) -> None:
    """Bars and large trades, by DuckDB over the files that went in."""
    bars = "n, volume, round(low, 6), round(high, 6), round(traded, 2)"
    got = rows(f"select symbol, {bars} from '{out}/bars/*.parquet' order by all")
    wanted = rows(f"""
        select symbol, count(*), sum(size), round(min(price), 6), round(max(price), 6), round(sum(price * size), 2)
        from '{folder}/*.parquet' group by symbol, time_bucket(interval 1 minute, ts) order by all""")
    assert got == wanted
    columns = "epoch_us(ts), symbol, price, size"
    large = rows(f"select {columns}, venue from read_parquet('{out}/large/venue=*/*.parquet') order by all")
    kept = "price * size >= 50000 and venue is not null"
    assert large == rows(f"select {columns}, venue from '{folder}/*.parquet' where {kept} order by all")
    assert large


def test_the_example_from_files_to_files_killed_and_run_again(tmp_path: Path) -> None:
    """Killed with its JVM in the middle; the second run ends it exactly; the third finds nothing to do."""
    folder, out = write_parquet(tmp_path / "in", 3, 100_000), tmp_path / "out"
    [port] = free_ports(1)
    file = tmp_path / "batch.yaml"
    file.write_text(BATCH.read_text().replace("spark:\n  master: ${SPARK_MASTER:-local[*]}\n", SPARK))
    environ = {
        "AURORAD_IN": str(folder), "AURORAD_OUT": str(out), "AURORAD_DATA": str(tmp_path / "data"),
        "AURORAD_HTTP_PORT": str(port),
    }  # fmt: skip
    process = subprocess.Popen(
        command("run", str(file), "--once"), env={**os.environ, **environ}, stderr=subprocess.DEVNULL
    )
    wait_for(lambda: has_begun(tmp_path / "data") or process.poll() is not None, "rows are in the log", 100)
    process.kill()
    process.wait()
    second = run_once(file, environ)
    assert second.returncode == 0, second.stderr.decode()
    check(folder, out)
    third = run_once(file, environ)
    assert third.returncode == 0, third.stderr.decode()
    assert b"has read this input before, and does not start for it" in third.stderr
    assert b"Spark 4" not in third.stderr, "no JVM for nothing"
    check(folder, out)


def has_begun(data: Path) -> bool:
    return any(file.stat().st_size > 100_000 for file in (data / "log").glob("*")) if (data / "log").is_dir() else False


def test_once_fails_with_the_reason(tmp_path: Path) -> None:
    file = tmp_path / "network.yaml"
    file.write_text(
        f"http: {{listen: 'off'}}\n{SPARK}streams:\n  trades: {{schema: {TRADES}, "
        f"source: {{spark: parquet, path: {tmp_path}/nowhere}}}}\noutputs:\n  out: {{from: trades}}\n"
    )
    done = run_once(file, {})
    assert done.returncode == 1
    assert b"nowhere" in done.stderr and b"Traceback" not in done.stderr


def test_ingest_by_hand_into_a_running_daemon(tmp_path: Path) -> None:
    folder = write_parquet(tmp_path / "in", 2, 30_000)
    [http, source] = free_ports(2)
    network = f"""{SPARK}
streams:
  trades: {{schema: {TRADES}, source: {{tcp: 127.0.0.1:{source}}}}}
boxes:
  big: {{filter: trades, where: "size > 500"}}
outputs:
  out: {{from: big}}
"""
    with running(tmp_path, network, http) as daemon:
        before = daemon.stats()["spark"]
        assert before["port"] and not before["up"] and before["starts"] == 0

        def ingest(*arguments: str) -> subprocess.CompletedProcess[str]:
            words = command("ingest", str(tmp_path / "network.yaml"), "--stream", "trades", *arguments)
            return subprocess.run(words, capture_output=True, text=True, timeout=100, check=False)

        refused = ingest("--path", str(folder), "--job", "wrong", "--option", "nonsense")
        assert refused.returncode == 2 and "key=value" in refused.stderr
        done = ingest("--path", str(folder), "--job", "once")
        assert done.returncode == 0, done.stderr
        assert "60,000 rows are in stream trades" in done.stdout
        wait_for(lambda: daemon.stream("trades")["admitted"] == 60_000, "all rows are in")
        [wanted] = rows(f"select count(*) from '{folder}/*.parquet' where size > 500")
        wait_for(lambda: daemon.output("out")["emitted"] == wanted[0], "what passes is out")
        assert daemon.stats()["bulk"][0]["state"] == "done"
        metrics = daemon.get("/metrics").decode()
        assert 'aurorad_bulk_rows_total{stream="trades"} 60000.0' in metrics
        assert "aurorad_spark_up 0.0" in metrics, "the daemon itself has no JVM"
        # In the daemon's JVM, which it starts when it is asked to, and then has.
        here = os.path.relpath(folder)
        for job, how in (("theirs", ("--jvm", "daemon")), ("again", ())):
            done = ingest("--path", here, "--job", job, *how)
            assert done.returncode == 0, done.stderr
            assert "60,000 rows are in stream trades" in done.stdout
        wait_for(lambda: daemon.stream("trades")["admitted"] == 180_000, "all rows are in")
        refused = ingest("--path", str(folder / "nowhere"))
        assert refused.returncode == 1 and "nowhere" in refused.stderr
        spark = daemon.stats()["spark"]
        assert spark["up"] and spark["starts"] == 1, "one JVM for all three"
        assert daemon.end(signal.SIGTERM) == 0
    begun = time.monotonic()
    nobody = subprocess.run(
        command("ingest", str(tmp_path / "network.yaml"), "--stream", "trades", "--path", str(folder)),
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert nobody.returncode == 1 and "no aurorad answers" in nobody.stderr
    assert time.monotonic() - begun < 30
