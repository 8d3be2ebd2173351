"""A daemon at work, seen from outside: metrics, statistics and taps of the real engine."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.client import HTTPConnection

import numpy as np
import orjson
import pytest
from prometheus_client.parser import text_string_to_metric_families as parse

from catalog.build import build_network
from engine.daemon.daemon import Daemon
from engine.operators.boxes import box_kinds
from engine.run.network_file import read_network
from qos_monitor.conservation import LAWS, breaches, residuals
from router.boundary import SOCKET
from scheduler.loop import SchedulerLoop
from scheduler.plan import Plan
from scheduler.policies import policies
from storage.train import Train

NETWORK = """
http: {listen: 127.0.0.1:0}
streams:
  trades:
    schema: {symbol: string, price: double, size: int}
boxes:
  big: {filter: trades, where: "size >= 50"}
  huge: {filter: big, where: "size >= 90"}
  split: {case: trades, when: {a: "symbol = 'A'"}, otherwise: rest}
outputs:
  alerts: {from: huge, qos: {latency: [[0ms, 1.0], [100ms, 1.0], [60s, 0.0]]}}
  others: {from: split.rest, qos: {deadline: 60s}}
  raw: {from: trades}
"""
SINGLE = """
http: {listen: 127.0.0.1:0}
engine: {explain: false}  # a probe would take its tuple off the fast path
streams: {s: {schema: {x: double}}}
boxes: {f: {filter: s, where: "x > 0"}}
outputs: {o: {from: f}}
"""
TRAINS, TUPLES = 40, 500
LIMIT_S = 30


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    daemon = Daemon(build_network(NETWORK, box_kinds(), {}), version="9.9")
    daemon.start()
    yield daemon
    daemon.stop()


def feed(daemon: Daemon, trains: int = TRAINS) -> int:
    """Sizes 0 to 99, symbols A and B in turn; how many tuples."""
    sizes = np.arange(TUPLES) % 100
    schema = daemon.network.stream("trades").schema
    for _ in range(trains):
        data = {"symbol": ["A", "B"] * (TUPLES // 2), "price": [1.5] * TUPLES, "size": sizes.tolist()}
        assert daemon.ingress.admit(
            daemon.network.stream("trades").number, Train.from_pylists(schema, data, daemon.now_ns()), timeout_s=LIMIT_S
        )
    return trains * TUPLES


def get(daemon: Daemon, path: str) -> bytes:
    assert daemon.http is not None
    connection = HTTPConnection(daemon.http.host, daemon.http.port, timeout=LIMIT_S)
    connection.request("GET", path)
    response = connection.getresponse()
    body = response.read()
    connection.close()
    assert response.status == 200, body
    return body


def metrics(daemon: Daemon) -> dict[tuple[str, ...], float]:
    """By name and label values."""
    families = parse(get(daemon, "/metrics").decode())
    return {(s.name, *(v for _, v in sorted(s.labels.items()))): s.value for m in families for s in m.samples}


def test_what_went_through_is_what_the_metrics_say(daemon: Daemon) -> None:
    fed = feed(daemon)
    assert daemon.engine.drain(LIMIT_S)
    daemon.monitor.tick()
    seen = metrics(daemon)
    assert seen["aurorad_tuples_in_total", "trades"] == fed
    assert seen["aurorad_tuples_out_total", "raw"] == fed
    assert seen["aurorad_tuples_out_total", "alerts"] == fed / 10
    assert seen["aurorad_tuples_out_total", "others"] == fed / 2
    assert seen["aurorad_box_tuples_total", "big", "in"] == fed
    assert seen["aurorad_box_tuples_total", "huge", "in"] == fed / 2
    assert seen["aurorad_train_tuples_sum", "huge"] == fed / 2
    assert seen["aurorad_output_latency_seconds_count", "alerts"] == fed / 10
    assert seen["aurorad_output_latency_seconds_bucket", "60.0", "alerts"] == fed / 10
    assert 0 < seen["aurorad_output_latency_window_seconds", "alerts", "p50"] < LIMIT_S
    assert seen["aurorad_output_deadline_missed_total", "others"] == 0
    assert seen["aurorad_box_cost_seconds_total", "split"] > 0
    assert seen["aurorad_build_info", "round_robin", "superbox", "9.9"] == 1
    assert [seen["aurorad_conservation_residual", law] for law in LAWS] == [0] * len(LAWS)
    assert residuals(daemon.readings()) == dict.fromkeys(LAWS, 0)


def test_what_auto_chose_and_why_can_be_seen() -> None:
    """From start to end, with sockets and threads; and it stops at once, whatever it is computing."""
    text = NETWORK.replace("streams:", "scheduler: {policy: auto}\nstreams:", 1)
    daemon = Daemon(read_network(text, {}), version="9.9")
    daemon.start()
    try:
        feed(daemon)
        assert daemon.engine.drain(LIMIT_S)
        daemon.monitor.tick()
        stats = orjson.loads(get(daemon, "/api/v1/stats"))["scheduler"]
        assert stats["asked"] == "auto" and stats["policy"] in policies() and stats["reason"]
        chosen = [key for key in metrics(daemon) if key[0] == "aurorad_scheduler_choice"]
        decided_by = "forecast" if stats["changes"] else "graphs"
        assert chosen == [("aurorad_scheduler_choice", decided_by, stats["policy"], "auto", stats["traversal"])]
        assert metrics(daemon)["aurorad_scheduler_plans_total", "min_cost"] > 0
    finally:
        daemon.stop()


def test_statistics_learn_from_what_runs(daemon: Daemon) -> None:
    daemon.monitor.tick()
    feed(daemon)
    assert daemon.engine.drain(LIMIT_S)
    daemon.monitor.tick()
    stats = orjson.loads(get(daemon, "/api/v1/stats"))
    boxes = {b["name"]: b for b in stats["boxes"]}
    assert boxes["big"]["selectivity"] == pytest.approx(0.5, abs=0.02)
    assert boxes["huge"]["selectivity"] == pytest.approx(0.2, abs=0.02)
    assert boxes["split"]["effective_cost_ns"] > 0
    assert boxes["split"]["mean_train_tuples"] > 1
    assert stats["scheduler"]["steps"] > 0
    assert daemon.catalog.stats.observed_calls.min() > 0
    assert breaches(daemon.readings()) == []


@pytest.mark.parametrize(
    ("name", "sizes"),
    [("trades", range(100)), ("trades->big", range(100)), ("big->huge", range(50, 100)), ("huge", range(90, 100)),
     ("alerts", range(90, 100)), ("split.rest", range(1, 100, 2))],
)  # fmt: skip
def test_a_tap_sees_what_passes_its_place(daemon: Daemon, name: str, sizes: range) -> None:
    """Also on an arc inside a superbox, where nothing is queued."""
    stop = threading.Event()

    def keep_feeding() -> None:
        while not stop.wait(0.02):
            feed(daemon, 1)

    feeder = threading.Thread(target=keep_feeding)
    feeder.start()
    body = get(daemon, f"/api/v1/tap?name={name}&limit={2 * len(sizes)}")
    stop.set()
    feeder.join()
    rows = [row for line in body.splitlines() if "_gap" not in (row := orjson.loads(line))]
    assert len(rows) == 2 * len(sizes)
    assert {row["size"] for row in rows} == set(sizes)


def test_a_port_that_leads_nowhere_is_no_place(daemon: Daemon) -> None:
    assert daemon.http is not None
    connection = HTTPConnection(daemon.http.host, daemon.http.port, timeout=LIMIT_S)
    connection.request("GET", "/api/v1/tap?name=split.a")
    response = connection.getresponse()
    assert response.status == 404
    assert orjson.loads(response.read())["error"] == "there is no stream, box, arc or output 'split.a'"
    connection.close()


@pytest.mark.parametrize("idle_fast_path", [True, False])
def test_the_scheduler_s_thread_decides_whatever_waits(idle_fast_path: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """All plans but those of tuples that find the engine at rest; and each of them goes through the execution queue."""
    deciders: set[str] = set()
    dispatch = SchedulerLoop.dispatch

    def by(loop: SchedulerLoop, plan: Plan) -> None:
        deciders.add(threading.current_thread().name)
        dispatch(loop, plan)

    monkeypatch.setattr(SchedulerLoop, "dispatch", by)
    text = f"scheduler: {{idle_fast_path: {str(idle_fast_path).lower()}}}\n{SINGLE}"
    daemon = Daemon(build_network(text, box_kinds(), {}), version="9.9")
    daemon.start()
    try:
        schema = daemon.network.stream("s").schema
        for count in (1, 1, 1, 5_000):
            daemon.ingress.admit(0, Train.from_pylists(schema, {"x": [1.0] * count}, daemon.now_ns()), SOCKET)
            assert daemon.engine.drain(LIMIT_S)
        families = {family.name: family for family in parse(get(daemon, "/metrics").decode())}
        found = {sample.labels["by"]: sample.value for sample in families["aurorad_plans"].samples}
        ran_by_workers = sum(worker.plans for worker in daemon.engine.readings.workers())
    finally:
        daemon.stop()
    assert found == ({"idle": 3, "scheduler": 1} if idle_fast_path else {"idle": 0, "scheduler": 4})
    assert deciders == {"scheduler"} and ran_by_workers == found["scheduler"]
