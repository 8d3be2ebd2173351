"""Why was this late? Asked of the real daemon, in process and over its socket."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import quote

import pytest

from engine.cli.views.journeys import draw
from engine.daemon.daemon import Daemon
from engine.run.journeys.explain import ExplainError
from engine.run.network_file import read_network
from storage.train import Train
from tests.e2e.daemon import connect, free_ports, running, wait_for

SLOW_BOX = """
http: {{listen: off}}
scheduler: {{policy: {policy}, unit: {unit}}}
streams:
  trades: {{schema: {{n: bigint, symbol: string}}}}
boxes:
  quick:  {{filter: trades, where: "n >= 0"}}
  slow:   {{universal: quick, cost: 400us}}
  after:  {{map: slow, add: {{double: "n * 2"}}}}
  aside:  {{universal: trades, cost: 20us}}
outputs:
  late:   {{from: after, qos: {{deadline: 10ms}}}}
  prompt: {{from: aside, qos: {{deadline: 100ms}}}}
"""


@contextmanager
def started(text: str) -> Iterator[Daemon]:
    daemon = Daemon(read_network(text, {}))
    daemon.start()
    try:
        yield daemon
    finally:
        daemon.stop()


def feed(daemon: Daemon, seconds: float, every_s: float = 0.01, tuples: int = 20) -> None:
    schema = daemon.network.stream("trades").schema
    deadline, n = time.monotonic() + seconds, 0
    while time.monotonic() < deadline:
        rows = {"n": list(range(n, n + tuples)), "symbol": ["ODD" if i % 2 else "EVEN" for i in range(tuples)]}
        daemon.ingress.admit(daemon.network.stream("trades").number, Train.from_pylists(schema, rows, daemon.now_ns()))
        n += tuples
        time.sleep(every_s)


@pytest.mark.parametrize("policy", ["round_robin", "qos", "fcfs", "hnr"])
@pytest.mark.parametrize("unit", ["superbox", "box"])
def test_the_slow_box_is_named_first_and_the_parts_are_the_whole(policy: str, unit: str) -> None:
    with started(SLOW_BOX.format(policy=policy, unit=unit)) as daemon:
        feed(daemon, 1.0)
        assert daemon.engine.drain(30)
        answer = daemon.explain("late", "", 5)
    assert answer["sampled"] > 2  # how many are followed depends on how often the feeder got a core
    assert answer["blame"][0]["box"] == "slow", answer["blame"]
    assert sum(row["share"] for row in answer["blame"]) == pytest.approx(1, abs=0.01)
    for journey in answer["journeys"]:
        parts_ns = sum(part["ns"] for part in journey["parts"])
        assert parts_ns == pytest.approx(journey["latency_ns"], rel=0.05)
        assert all(part["ns"] >= 0 for part in journey["parts"]), journey
        assert journey["row"]["double"] == 2 * journey["row"]["n"]
    assert answer["journeys"][0]["latency_ns"] == answer["latency"]["max_ns"]


def test_decisions_that_passed_a_tuple_over_are_counted_with_their_priority() -> None:
    with started(SLOW_BOX.format(policy="qos", unit="superbox")) as daemon:
        feed(daemon, 1.0)
        assert daemon.engine.drain(30)
        answers = [daemon.explain(output, "", 20) for output in ("late", "prompt")]
    hops = [hop for answer in answers for journey in answer["journeys"] for hop in journey["hops"]]
    assert any(hop["priority"] for hop in hops), "qos has priorities"
    passed = [by for hop in hops for by in hop["passed_over_by"]]
    assert passed, "at this load somebody was passed over"
    assert all(by["times"] > 0 and by["priority"] for by in passed)


def test_tuples_are_chosen_by_their_fields() -> None:
    with started(SLOW_BOX.format(policy="qos", unit="superbox")) as daemon:
        feed(daemon, 0.5, tuples=1)
        assert daemon.engine.drain(30)
        everything = daemon.explain("prompt", "", 100)
        even = daemon.explain("prompt", "symbol = 'EVEN' and n >= 0", 100)
        none = daemon.explain("prompt", "symbol = 'NONE'", 100)
        with pytest.raises(ExplainError, match="simbol"):
            daemon.explain("prompt", "simbol = 'EVEN'", 1)
        with pytest.raises(ExplainError):
            daemon.explain("prompt", "n + 1", 1)
    assert everything["sampled"] == even["sampled"] > 0 == none["sampled"]
    assert {journey["row"]["symbol"] for journey in even["journeys"]} == {"EVEN"}
    assert "no sampled tuple" in str(draw(none))


def test_ways_that_part_inside_a_plan_each_add_up() -> None:
    text = """
http: {listen: off}
streams:
  trades: {schema: {n: bigint, symbol: string}}
boxes:
  parted: {case: trades, when: {even: "symbol = 'EVEN'"}, otherwise: odd}
  left:   {universal: parted.even, cost: 200us}
  right:  {universal: parted.odd, cost: 300us}
  both:   {union: [left, right]}
outputs: {out: {from: both}, side: {from: parted.even}}
"""
    with started(text) as daemon:
        feed(daemon, 1.0)
        assert daemon.engine.drain(30)
        answer = daemon.explain("out", "", 20)
    assert answer["sampled"] > 2  # how many are followed depends on how often the feeder got a core
    for journey in answer["journeys"]:
        assert all(part["ns"] >= 0 for part in journey["parts"]), journey
        assert sum(part["ns"] for part in journey["parts"]) == pytest.approx(journey["latency_ns"], rel=0.05)


def test_a_window_that_holds_a_tuple_is_to_blame() -> None:
    text = """
http: {listen: off}
streams:
  trades: {schema: {n: bigint, symbol: string}}
boxes:
  quick:  {filter: trades, where: "n >= 0"}
  counted: {aggregate: quick, window: {tumbling: 200ms}, select: {n: "count(*)", last: "max(n)"}}
outputs: {counts: {from: counted}}
"""
    with started(text) as daemon:
        feed(daemon, 1.5)
        time.sleep(0.3)
        answer = daemon.explain("counts", "", 5)
    assert answer["sampled"] > 0
    assert answer["blame"][0]["box"] == "counted"
    assert any(part["kind"] == "held" for journey in answer["journeys"] for part in journey["parts"])


def test_switched_off_it_says_so() -> None:
    with started("engine: {explain: false}\n" + SLOW_BOX.format(policy="qos", unit="superbox")) as daemon:
        feed(daemon, 0.1)
        with pytest.raises(ExplainError, match="does not sample"):
            daemon.explain("late", "", 1)


def test_probes_that_are_filtered_out_are_not_looked_for_any_more() -> None:
    with started(SLOW_BOX.format(policy="qos", unit="superbox").replace("n >= 0", "n < 0")) as daemon:
        feed(daemon, 0.3)
        assert daemon.engine.drain(30)
        journeys = daemon.engine.journeys
        assert journeys is not None and journeys.begun > 10
        assert not journeys.waiting and not journeys.probed_plans and not any(journeys.expected)


def test_over_http_and_on_the_terminal(tmp_path: Path) -> None:
    http, source = free_ports(2)
    network = f"""
streams:
  trades: {{schema: {{n: bigint, symbol: string}}, source: {{tcp: 127.0.0.1:{source}}}, overload: block}}
boxes:
  slow:   {{universal: trades, cost: 2ms}}
outputs:
  late:   {{from: slow, qos: {{deadline: 10ms}}}}
"""
    with running(tmp_path, network, http) as daemon, connect(source) as sender:
        for n in range(40):
            sender.sendall(json.dumps({"n": n, "symbol": "A"}).encode() + b"\n")
            time.sleep(0.006)
        answer: dict[str, Any] = {}

        def sampled() -> bool:
            answer.update(json.loads(daemon.get("/api/v1/explain?output=late&limit=2&where=n%20%3E%200")))
            return bool(answer["sampled"])

        wait_for(sampled, "a sampled tuple has come out")
        for query, status in (
            ("output=lat", 404),
            ("", 404),
            ("output=late&where=x%3E1", 400),
            ("output=late&limit=0", 400),
        ):
            with pytest.raises(urllib.error.HTTPError) as refused:
                daemon.get(f"/api/v1/explain?{query}")
            assert refused.value.code == status
    assert answer["blame"][0]["box"] == "slow"
    assert len(answer["journeys"]) <= 2


FOLLOWED = """
engine: {{explain: true}}
streams: {{trades: {{schema: {{n: bigint, symbol: string}}, overload: block, source: {{tcp: "127.0.0.1:{source}"}}}}}}
boxes:
  slow: {{universal: trades, cost: 2ms}}
  some: {{filter: trades, where: "symbol <> 'NOT'"}}
outputs: {{all: {{from: slow}}, few: {{from: some}}}}
"""


def test_follow_waits_for_the_next_tuple_that_meets_the_condition(tmp_path: Path) -> None:
    """Also in an engine that is busy with others, whose probes take all places of the usual sampling."""
    http, source = free_ports(2)
    with running(tmp_path, FOLLOWED.format(source=source), http) as daemon, connect(source) as sender:
        answers: list[dict[str, Any]] = []

        def ask() -> None:
            query = "/api/v1/explain?output=few&follow=60&where=" + quote("symbol = 'HELLO'")
            with urllib.request.urlopen(f"http://127.0.0.1:{http}{query}", timeout=90) as response:
                answers.append(json.loads(response.read()))

        asking = Thread(target=ask)
        asking.start()
        rows = b"".join(b'{"n":%d,"symbol":"OTHER"}\n' % i for i in range(50))
        hello = b'{"n":7,"symbol":"HELLO"}\n'
        deadline = time.monotonic() + 60
        while asking.is_alive() and time.monotonic() < deadline:  # the request needs a moment until it is there
            sender.sendall(rows + hello + rows)
            asking.join(0.1)
        asking.join(60)
        [answer] = answers
        [journey] = answer["journeys"]
        assert answer["sampled"] == 1 and journey["row"] == {"n": 7, "symbol": "HELLO"}
        assert sum(part["ns"] for part in journey["parts"]) == pytest.approx(journey["latency_ns"], rel=0.05)
        assert any(part["kind"] == "service" and part["box"] == "some" for part in journey["parts"])

        none = json.loads(daemon.get("/api/v1/explain?output=few&follow=1&where=" + quote("symbol = 'NOT'")))
        assert none["sampled"] == 0 and "--follow" in str(draw(none))
        with pytest.raises(urllib.error.HTTPError, match="400"):
            daemon.get("/api/v1/explain?output=few&follow=5&where=" + quote("simbol = 'A'"))
        assert daemon.end() == 0


def test_a_daemon_that_stops_does_not_wait_for_a_follower(tmp_path: Path) -> None:
    http, source = free_ports(2)
    with running(tmp_path, FOLLOWED.format(source=source), http) as daemon:

        def ask() -> None:
            with pytest.raises((OSError, HTTPException)):
                daemon.get("/api/v1/explain?output=few&follow=60")

        asking = Thread(target=ask)
        asking.start()
        wait_for(lambda: "aurorad_" in daemon.get("/metrics").decode(), "the daemon answers")
        begun = time.monotonic()
        assert daemon.end() == 0
        assert time.monotonic() - begun < 25
        asking.join(60)
