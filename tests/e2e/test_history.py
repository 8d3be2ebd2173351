"""History and views as a user meets them: a daemon, ``aurorad history`` and ``aurorad query run``, the client."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from time import time_ns
from typing import NamedTuple

import orjson
import polars as pl
import pytest
from aurorad_client import RefusedError, view

from engine.cli import main
from engine.daemon.daemon import Daemon
from engine.run.network_file import read_network
from storage.train import Train
from tests.e2e.daemon import wait_for

ROWS = 20_000
BEGIN_NS = time_ns() - 60 * 10**9


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    network = read_network(
        f"""
engine: {{data_dir: {tmp_path_factory.mktemp("data")}}}
http: {{listen: 127.0.0.1:0}}
streams:
  trades:
    schema: {{ts: timestamp, symbol: string, price: double, size: int}}
    time: ts
    overload: block
    keep: {{for: 24h}}
boxes:
  sides: {{case: trades, when: {{buys: "size > 10"}}, otherwise: sells, keep: {{for: 1h, ports: [buys]}}}}
  prices: {{view: trades, key: [symbol], last: 2}}
outputs:
  tape: {{from: trades}}
  bought: {{from: sides.buys}}
  sold: {{from: sides.sells}}
"""
    )
    daemon = Daemon(network)
    daemon.start()
    schema = network.stream("trades").schema
    for first in range(0, ROWS, 1_000):
        numbers = range(first, first + 1_000)
        rows = {
            "ts": [BEGIN_NS + n * 10**6 for n in numbers],
            "symbol": [f"S{n % 7}" for n in numbers],
            "price": [n / 10 for n in numbers],
            "size": [n % 100 for n in numbers],
        }
        daemon.ingress.admit(0, Train.from_pylists(schema, rows, time_ns()))
    assert daemon.keeper is not None
    keeper = daemon.keeper
    wait_for(lambda: keeper.is_settled and daemon.engine.is_quiet(), "everything has passed")
    assert keeper.checkpointer.make()
    yield daemon
    daemon.stop()


class Done(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Done]


@pytest.fixture
def aurorad(daemon: Daemon, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*words: str) -> Done:
        assert daemon.http is not None
        url = ["--url", f"http://{daemon.http.host}:{daemon.http.port}"]
        monkeypatch.setattr(sys, "argv", ["aurorad", *words, *url])
        with pytest.raises(SystemExit) as caught:
            main()
        return Done(int(caught.value.code or 0), *capsys.readouterr())

    return call


def test_an_ad_hoc_query_prints_rows_and_leaves_nothing_behind(daemon: Daemon, aurorad: Run, tmp_path: Path) -> None:
    version = daemon.network.version
    asked = '{aggregate: trades, window: {tumbling: 365d}, by: [symbol], select: {total: "sum(size)"}}'
    done = aurorad("query", "run", asked, "--format", "ndjson")
    rows = [orjson.loads(line) for line in done.out.splitlines()]
    expected: dict[str, int] = {}
    for n in range(ROWS):
        expected[f"S{n % 7}"] = expected.get(f"S{n % 7}", 0) + n % 100
    assert {row["symbol"]: row["total"] for row in rows} == expected, done.err
    file = tmp_path / "late.parquet"
    start = datetime.fromtimestamp(BEGIN_NS / 1e9 + 10, UTC).isoformat()  # halfway
    asked = '{filter: sides.buys, where: "size = 99"}'
    done = aurorad("query", "run", asked, "--from", start, "--format", "parquet", "--out", str(file))
    late = pl.read_parquet(file)
    assert done.code == 0 and late.height == ROWS // 200 and set(late["size"]) == {99}, done.err
    assert daemon.network.version == version and len(daemon.network.boxes) == 2


def test_a_query_that_follows_gets_live_rows_behind_the_history(aurorad: Run) -> None:
    asked = '{filter: trades, where: "size = 7"}'
    done = aurorad("query", "run", asked, "--follow", "--limit", "5", "--format", "ndjson")
    assert [orjson.loads(line)["price"] for line in done.out.splitlines()] == [0.7, 10.7, 20.7, 30.7, 40.7]


def test_what_is_wrong_with_a_query_is_said(aurorad: Run) -> None:
    for words, code, said in (
        (("{filter: sold, where: 'size > 1'}",), 1, "reads no place that keeps history"),
        (("{filter: trades, where: 'sice > 1'}",), 78, "no field sice"),
        (("{filter: trades, where: 'size > 1'}", "--from", "yesterday"), 2, "a start is"),
    ):
        done = aurorad("query", "run", *words)
        assert done.code == code and said in done.err, done.err


def test_the_list_shows_what_is_kept(aurorad: Run) -> None:
    done = aurorad("history", "list", "--files")
    assert "trades: 20.0k tuples" in done.out and "sides.buys: " in done.out and "1 to 20000" in done.out


def test_a_view_is_asked_by_the_client(daemon: Daemon) -> None:
    assert daemon.http is not None
    url = f"http://{daemon.http.host}:{daemon.http.port}"
    rows = view(url, "prices", where="symbol in ('S1', 'S2')")
    last = {f"S{k}": [n / 10 for n in range(ROWS) if n % 7 == k][-2:] for k in (1, 2)}
    assert [r["price"] for r in rows] == sorted([*last["S1"], *last["S2"]])
    assert len(view(url, "prices", limit=3)) == 3
    with pytest.raises(RefusedError, match="no field nothing"):
        view(url, "prices", where="nothing > 1")
    with pytest.raises(RefusedError, match="there is no view 'price'"):
        view(url, "price")
