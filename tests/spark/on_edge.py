"""configs/edge.yaml feeds configs/cluster.yaml: a daemon that restarts, a query that runs in pieces, executors that
have neither our packages nor ``format("aurorad")``; and the bars are those of DuckDB over what was sent.

    python -m pytest tests/spark/on_edge.py

Not in `make test`: it has not been run on a JVM yet."""

from __future__ import annotations

import json
import random
import socket
import time
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from router.spark.wire.aurorad_wire import Connection
from tests.e2e.daemon import RunningDaemon, free_ports, running, wait_for
from tests.spark.on_spark_world import bare_python, run_spark

pytest.importorskip("pyspark")

PORTS = (9400, 9401, 9402, 9403, 9411, 9412)


def shipped(name: str, moved: dict[int, int]) -> str:
    """An example on other ports, without its http section, which the test has."""
    text = Path("configs", name).read_text()
    for old, new in moved.items():
        text = text.replace(f":{old}", f":{new}")
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("http:"))


def made_up(seed: int, start_us: int, rows: int) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    return [
        {
            "ts": start_us + i * 60 * 10**6 // rows, "symbol": rng.choice(["A", "B", "ßü", ""]),
            "price": rng.choice([0.0, 10.5, 99.25]), "size": rng.choice([-1, 7, 20_000]), "venue": rng.choice("NPX"),
        }
        for i in range(rows)
    ]  # fmt: skip


def send(daemon: RunningDaemon, port: int, trades: list[dict[str, Any]]) -> None:
    before = daemon.stream("trades")["admitted"]
    with socket.create_connection(("127.0.0.1", port)) as sender:
        sender.sendall(b"".join(json.dumps(t | {"ts": t["ts"] * 1_000}).encode() + b"\n" for t in trades))
    wait_for(lambda: daemon.stream("trades")["admitted"] == before + len(trades), "all trades are in", 60)


@pytest.mark.timeout(600)
def test_the_cluster_has_what_the_edge_has_let_through(
    session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
    edge = shipped("edge.yaml", moved).replace("./data/edge", str(tmp_path / "edge"))
    cluster = shipped("cluster.yaml", moved).replace("./out", str(tmp_path / "out"))
    assert str(tmp_path) in edge and str(tmp_path) in cluster
    python = bare_python(tmp_path / "python", with_packages=True)
    monkeypatch.setattr(session.sparkContext, "pythonExec", str(python))
    start_us = int(time.time() - 600) // 60 * 60 * 10**6
    first, second = made_up(1, start_us, 3_000), made_up(2, start_us + 60 * 10**6, 3_000)
    with running(tmp_path, edge, moved[9400]) as daemon:
        with Connection(f"127.0.0.1:{moved[9403]}") as connection:
            connection.ask("offsets", output="for_cluster", reader="cluster")
        send(daemon, moved[9401], first)
        run_spark(session, cluster, tmp_path, shards=2, ends=False)
        send(daemon, moved[9401], second[:1_000])
        assert daemon.end(seconds=120) == 0
    with running(tmp_path, edge, moved[9400]) as daemon:
        send(daemon, moved[9401], second[1_000:])
        report = run_spark(session, cluster, tmp_path, shards=2).reports[-2]
        assert not daemon.stream("trades").get("shed")
    assert report.rows["trades"] > 0 and not report.late
    columns = "symbol, n, volume, low, high, traded"
    assert shown(f"select {columns} from '{tmp_path}/out/symbol_bars/*.parquet'") == wanted([*first, *second])


def shown(query: str) -> Counter[str]:
    return Counter(repr((*row[:-1], f"{row[-1]:.9g}")) for row in duckdb.sql(query).fetchall())


def wanted(trades: list[dict[str, Any]]) -> Counter[str]:
    table = pa.Table.from_pylist(trades)
    duckdb.register("sent", table)
    return shown("""
        select symbol, count(*), sum(size), min(price), max(price), sum(price * size) from sent
        where price > 0 and size > 0 and venue is not null group by symbol, ts // 10000000""")
