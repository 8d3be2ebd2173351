"""The daemon under a fixed shed plan, over real sockets: what is missing is what was dropped, to the tuple."""

from __future__ import annotations

import json
import re
import socket
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from engine.cli import make_app
from engine.daemon.daemon import Daemon
from engine.run.network_file import read_network
from load_shedder.shed_plan import Drop, DropPlace, ShedPlan
from tests.e2e.daemon import connect, ndjson, send, trade, wait_for

NETWORK = """
{engine}
http: {{listen: 127.0.0.1:0}}
streams:
  trades:
    schema: {{ts: timestamp, symbol: string, price: double, size: int, venue: string?}}
    time: ts
    source: {{tcp: 127.0.0.1:0}}
    overload: shed
boxes:
  some: {{filter: trades, where: "price >= 0"}}
  sums: {{aggregate: some, window: {{tumbling: 100ns}}, select: {{n: "count(*)", s: "sum(price)"}},
         bounds: [window_start]}}
outputs:
  all:  {{from: some, qos: {{lossy: 50%, prefer: "price >= 3"}}, sink: {{tcp: 127.0.0.1:0}}}}
  sum:  {{from: sums, qos: {{lossy: 50%}}, sink: {{tcp: 127.0.0.1:0}}}}
"""


@contextmanager
def running(engine: str = "", *, crash: bool = False) -> Iterator[Daemon]:
    daemon = Daemon(read_network(NETWORK.format(engine=engine), {}))
    daemon.overload._apply = lambda plan: None  # the plan is the test's, also on a machine that is busy
    daemon.start()
    try:
        yield daemon
    finally:
        daemon.failed = crash
        daemon.stop(10.0)


def plan(daemon: Daemon, number: int, **drops: tuple[str, Any, float]) -> ShedPlan:
    arcs = {a.name: a.number for a in daemon.network.arcs}
    return ShedPlan(
        number,
        0.4,
        tuple(
            Drop(DropPlace(arcs[arc], manner, (0,), 100), share, gain_ns=2e6, loss=0.01, slope=5e-9)
            for arc, manner, share in drops.values()
        ),
        why="the load is 2 times the capacity",
    )


def get(daemon: Daemon, path: str) -> Any:
    assert daemon.http is not None
    with urllib.request.urlopen(daemon.http.url + path, timeout=10) as response:
        body = response.read()
    return json.loads(body) if path.startswith("/api") else body.decode()


def everything(sock: socket.socket) -> list[dict[str, Any]]:
    sock.settimeout(1.0)
    data = b""
    try:
        while more := sock.recv(1 << 20):
            data += more
    except TimeoutError:
        pass
    return [json.loads(line) for line in data.splitlines()]


def admitted(daemon: Daemon) -> int:
    return int(daemon.readings().streams[0].admitted)


def trades(first: int, last: int) -> bytes:
    return ndjson([trade(n, price=float(n % 10)) for n in range(first, last)])


def test_what_is_missing_is_what_was_dropped(tmp_path: Path) -> None:
    with running() as daemon:
        address = daemon.server.address
        with connect(address("output all")[1]) as reader, connect(address("output sum")[1]) as sums:
            wait_for(lambda: all(o.readers for o in daemon.readings().outputs), "both readers are there")
            send(address("stream trades")[1], trades(0, 1_000))
            wait_for(lambda: admitted(daemon) == 1_000, "they are in")
            daemon.engine.shed(plan(daemon, 7, a=("some->all", "semantic", 0.5), b=("trades->some", "windows", 0.25)))
            send(address("stream trades")[1], trades(1_000, 20_000))
            wait_for(lambda: admitted(daemon) == 20_000 and daemon.engine.is_quiet(), "all are in")
            rows, windows = everything(reader), everything(sums)
            answer, metrics = get(daemon, "/api/v1/drops"), get(daemon, "/metrics")
            dropped = {(d["arc"], d["reason"]): d["tuples"] for d in answer["dropped"]}
            assert dropped.keys() == {("some->all", "semantic"), ("trades->some", "window")}
            assert len(rows) == 20_000 - sum(dropped.values())
            assert dropped["some->all", "semantic"] == pytest.approx(
                0.5 * (19_000 - dropped["trades->some", "window"]), rel=0.1
            )
            assert sum(r["price"] < 3 for r in rows) < 1_000, "who is not preferred goes first"
            assert {w["n"] for w in windows} == {100}
            assert {w["s"] for w in windows} == {450.0}
            gone = dropped["trades->some", "window"] / 100
            assert len(windows) == 199 - gone  # the last one is still open
            [entry] = answer["plans"]
            assert (entry["plan"], entry["why"], entry["until_ns"]) == (7, "the load is 2 times the capacity", None)
            assert {(d["arc"], d["reason"]): d["tuples"] for d in entry["dropped"]} == dropped
            assert entry["drops"][0]["slope"] == 5e-9
            for (arc, reason), tuples in dropped.items():
                found = re.search(rf'aurorad_tuples_dropped_total{{arc="{arc}",reason="{reason}"}} (\S+)', metrics)
                assert found is not None
                assert float(found[1]) == tuples
            assert 'aurorad_tuples_dropped_unintended_total{arc="some->all"} 0' in metrics
            assert sum(daemon.monitor.stats()["conservation_residual"].values()) == 0
            _explains(daemon)


def _explains(daemon: Daemon) -> None:
    assert daemon.http is not None
    shown = CliRunner().invoke(make_app(), ["explain", "--drops", "--url", daemon.http.url])
    assert shown.exit_code == 0, shown.output
    for part in ("some->all", "semantic", "50.0%", "those of least value first", "by whole windows", "7,", "4,500"):
        assert part in shown.output, shown.output
    assert CliRunner().invoke(make_app(), ["explain", "--url", daemon.http.url]).exit_code == 2


def test_nothing_was_dropped() -> None:
    with running() as daemon:
        assert daemon.http is not None
        assert get(daemon, "/api/v1/drops?limit=5") == {
            "level": 0.0, "plans_total": 0, "plans": [], "dropped": [], "withheld": [],
        }  # fmt: skip
        shown = CliRunner().invoke(make_app(), ["explain", "--drops", "--url", daemon.http.url])
        assert "nothing has been dropped" in shown.output


def test_after_a_crash_no_drop_counts_twice_and_no_window_is_wrong(tmp_path: Path) -> None:
    """Some tuples of a window are dropped, a checkpoint is made, some more are, and the daemon dies."""
    engine = f"engine: {{data_dir: {tmp_path / 'data'}, checkpoint: 1h}}"
    with running(engine, crash=True) as daemon:
        port = daemon.server.address("stream trades")[1]
        send(port, trades(0, 950))
        wait_for(lambda: admitted(daemon) == 950, "they are in")
        daemon.engine.shed(plan(daemon, 1, a=("trades->some", "random", 0.1)))  # no place for it: 9 to 10 lack some
        send(port, trades(950, 1_050))
        wait_for(lambda: admitted(daemon) == 1_050 and daemon.engine.is_quiet(), "they are in")
        assert daemon.keeper is not None
        assert daemon.keeper.checkpointer.make()
        [before] = get(daemon, "/api/v1/drops")["dropped"]
        assert before["tuples"] > 2
        send(port, trades(1_050, 1_500))
        wait_for(lambda: admitted(daemon) == 1_500 and daemon.engine.is_quiet(), "they are in")
    with running(engine) as daemon:
        wait_for(lambda: admitted(daemon) == 1_500 and daemon.engine.is_quiet(), "all are back")
        assert get(daemon, "/api/v1/drops")["dropped"] == [before], "what came after the checkpoint was not dropped"
        address = daemon.server.address
        with connect(address("output sum")[1]) as sums:
            wait_for(lambda: daemon.readings().outputs[1].readers == 1, "the reader is there")
            send(address("stream trades")[1], trades(1_500, 2_001))
            wait_for(lambda: admitted(daemon) == 2_001 and daemon.engine.is_quiet(), "they are in")
            windows = everything(sums)
        assert {w["n"] for w in windows} == {100}
        readings = daemon.readings()
        assert readings.outputs[1].emitted == 20 - 2, "two windows lacked tuples, before and after the crash"
        assert sum(daemon.monitor.stats()["conservation_residual"].values()) == 0
