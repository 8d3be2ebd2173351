"""The HTTP app without a socket: requests in, responses out, as ASGI messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import orjson
import pytest

from catalog.describe import TapPlace, tap_places
from catalog.errors import AuroraError
from router.http.app import MAX_TAPS, HttpApp, HttpQueries
from router.tap import PENDING_TUPLES
from storage.train import Train
from tests.unit.monitored import diamond

NETWORK = diamond()
SCHEMA = NETWORK.stream("trades").schema


class Taps:
    """A tap source that keeps who listens."""

    def __init__(self) -> None:
        self.open: list[tuple[TapPlace, Callable[[Train], None]]] = []

    def __call__(self, place: TapPlace, callback: Callable[[Train], None]) -> Callable[[], None]:
        entry = (place, callback)
        self.open.append(entry)
        return lambda: self.open.remove(entry)

    def send(self, count: int, first: int = 0) -> None:
        data = {
            "ts": [10**18] * count, "symbol": ["A"] * count, "price": [1.5] * count,
            "size": list(range(first, first + count)),
        }  # fmt: skip
        for _, callback in self.open:
            callback(Train.from_pylists(SCHEMA, data, 0))


def _explain(output: str, where: str, limit: int) -> dict[str, Any]:
    if where == "nonsense":
        raise AuroraError("where: there is no field 'nonsense'")
    return {"output": output, "where": where, "limit": limit}


class Browser:
    """Runs the app on one loop. ``get`` answers (status, headers, body)."""

    def __init__(self, why_not_ready: str = "") -> None:
        self.taps = Taps()
        self.letters = [{"stream": "trades", "reason": "null", "line": i} for i in range(200)]
        self.app = HttpApp(
            HttpQueries(
                metrics=lambda accept: (f"accept {accept}".encode(), "text/plain; version=0.0.4; charset=utf-8"),
                stats=lambda: {"engine": {"load_ratio": 0.5}},
                bills=lambda: {"bills": []},
                network=lambda: NETWORK,
                ready=lambda: {"state": why_not_ready, "disk": ""},
                dead_letters=lambda limit: self.letters[-limit:],
                tap=self.taps,
                explain=_explain,
                follow=lambda output, where, found: lambda: None,
                drops=lambda limit: {"plans": [], "limit": limit},
            )
        )
        self.bodies: list[bytes] = []
        self.started: dict[str, Any] = {}
        self.begun = asyncio.Event()
        self.leave = asyncio.Event()

    async def get(
        self, path: str, accept: str = "", method: str = "GET", client: str = "127.0.0.1"
    ) -> tuple[int, dict[str, str], bytes]:
        path, _, query = path.partition("?")
        scope = {
            "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1", "method": method,
            "path": path, "raw_path": path.encode(), "query_string": query.encode(), "root_path": "", "scheme": "http",
            "headers": [(b"accept", accept.encode()), (b"host", b"localhost")], "server": ("localhost", 80),
            "client": (client, 1),
        }  # fmt: skip
        await self.app(scope, self._receive(), self._send)
        headers = {k.decode(): v.decode() for k, v in self.started["headers"]}
        return self.started["status"], headers, b"".join(self.bodies)

    def _receive(self) -> Callable[[], Coroutine[Any, Any, dict[str, Any]]]:
        asked = False

        async def receive() -> dict[str, Any]:
            nonlocal asked
            if not asked:
                asked = True
                return {"type": "http.request", "body": b"", "more_body": False}
            await self.leave.wait()
            return {"type": "http.disconnect"}

        return receive

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.started, self.bodies = message, []
            self.begun.set()
        else:
            self.bodies.append(message.get("body", b""))


def get(path: str, accept: str = "", why_not_ready: str = "", method: str = "GET") -> tuple[int, dict[str, str], bytes]:
    return asyncio.run(_get(path, accept, why_not_ready, method))


async def _get(path: str, accept: str, why_not_ready: str, method: str) -> tuple[int, dict[str, str], bytes]:
    return await Browser(why_not_ready).get(path, accept, method)


def test_health_and_readiness() -> None:
    assert get("/health")[0] == 200
    assert get("/ready")[0] == 200
    status, _, body = get("/ready", why_not_ready="draining")
    assert status == 503
    checks = {"state": "draining", "disk": "ok"}
    assert orjson.loads(body) == {"status": "not ready", "why": "state: draining", "checks": checks}
    assert get("/health", why_not_ready="draining")[0] == 200, "alive is not ready"


def test_metrics_pass_on_what_the_scraper_accepts() -> None:
    status, headers, body = get("/metrics", accept="application/openmetrics-text")
    assert (status, body) == (200, b"accept application/openmetrics-text")
    assert headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"


def test_the_network_as_data() -> None:
    network = orjson.loads(get("/api/v1/network")[2])
    assert [s["name"] for s in network["streams"]] == ["trades"]
    assert network["streams"][0]["schema"][1] == {"name": "symbol", "type": "string", "nullable": False}
    big = next(b for b in network["boxes"] if b["name"] == "big")
    assert big["parameters"]["where"] == "price * size > 1000"
    assert big["declared_cost_ns"] == 2_000
    split = next(b for b in network["boxes"] if b["name"] == "split")
    assert [p["name"] for p in split["ports"]] == ["a", "rest"]
    assert {(a["from"], a["to"]) for a in network["arcs"]} == {
        ("trades", "big"), ("trades", "split"), ("big", "both"), ("split.a", "both"), ("both", "alerts"),
        ("split.rest", "others"), ("trades", "raw"),
    }  # fmt: skip
    alerts = next(o for o in network["outputs"] if o["name"] == "alerts")
    assert alerts["qos"]["latency"] == [[0.0, 1.0], [1e8, 1.0], [1e9, 0.0]]


def test_statistics_and_dead_letters() -> None:
    assert orjson.loads(get("/api/v1/stats")[2]) == {"engine": {"load_ratio": 0.5}}
    assert len(orjson.loads(get("/api/v1/dead_letters")[2])["dead_letters"]) == 100
    assert orjson.loads(get("/api/v1/dead_letters?limit=1")[2])["dead_letters"][0]["line"] == 199


def test_explain_passes_the_question_on() -> None:
    asked = get("/api/v1/explain?output=alerts&where=price%20%3E%201&limit=7")[2]
    assert orjson.loads(asked) == {"output": "alerts", "where": "price > 1", "limit": 7}
    assert orjson.loads(get("/api/v1/explain?output=alerts")[2])["limit"] == 3


@pytest.mark.parametrize(
    ("path", "status", "message", "hint"),
    [
        ("/api/v1/stat", 404, "there is nothing at /api/v1/stat", "did you mean '/api/v1/stats'?"),
        ("/api/v1/tap", 400, "the request must name one place to tap", "?name="),
        ("/api/v1/tap?name=trades&arc=x", 400, "the request must name one place to tap", "?name="),
        ("/api/v1/tap?name=trade", 404, "there is no stream, box, arc or output 'trade'", "did you mean 'trades'?"),
        ("/api/v1/tap?arc=trades", 404, "there is no arc 'trades'", "did you mean 'trades->"),
        ("/api/v1/tap?output=alert", 404, "there is no output 'alert'", "did you mean 'alerts'?"),
        ("/api/v1/tap?name=trades&every=0", 400, "every must be a whole number from 1", ""),
        ("/api/v1/tap?name=trades&limit=-1", 400, "limit must be a whole number from 0", ""),
        ("/api/v1/tap?name=trades&limit=1e3", 400, "limit must be a whole number", ""),
        ("/api/v1/tap?name=trades&limit=99999999999999999999", 400, "limit must be a whole number", ""),
        ("/api/v1/dead_letters?limit=0", 400, "limit must be a whole number from 1", ""),
        ("/api/v1/explain", 404, "there is no output ''", "?output= one of alerts"),
        ("/api/v1/explain?output=alert", 404, "there is no output 'alert'", "did you mean 'alerts'?"),
        ("/api/v1/explain?output=alerts&limit=0", 400, "limit must be a whole number from 1", ""),
        ("/api/v1/explain?output=alerts&where=nonsense", 400, "there is no field 'nonsense'", ""),
    ],
)
def test_bad_requests_are_told_what_is_wrong(path: str, status: int, message: str, hint: str) -> None:
    found, headers, body = get(path)
    assert found == status
    assert headers["content-type"] == "application/json"
    answer = orjson.loads(body)
    assert message in answer["error"]
    assert hint in answer["hint"]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_nothing_can_be_changed(method: str) -> None:
    assert get("/api/v1/stats", method=method)[0] == 405


# -- taps -------------------------------------------------------------------------------------------------------------


async def opened(browser: Browser, path: str, client: str = "127.0.0.1") -> asyncio.Task[Any]:
    browser.begun.clear()
    task = asyncio.create_task(browser.get(path, client=client))
    await asyncio.wait_for(browser.begun.wait(), 10)
    assert not task.done()
    return task


def sizes(body: bytes) -> list[int]:
    rows = [orjson.loads(line) for line in body.splitlines()]
    return [row["size"] for row in rows if "size" in row]


@pytest.mark.parametrize(
    ("name", "kind"),
    [("trades", "stream"), ("trades->big", "arc"), ("big", "arc"), ("split.a", "arc"), ("alerts", "output"),
     ("both->alerts", "output"), ("both", "output")],
)  # fmt: skip
def test_a_tap_finds_its_place(name: str, kind: str) -> None:
    async def run() -> None:
        browser = Browser()
        task = await opened(browser, f"/api/v1/tap?name={name}&limit=1")
        assert browser.taps.open[0][0].kind == kind
        browser.taps.send(1)
        assert sizes((await task)[2]) == [0]

    asyncio.run(run())


def test_a_tap_ends_at_its_limit_and_unregisters() -> None:
    async def run() -> None:
        browser = Browser()
        task = await opened(browser, "/api/v1/tap?stream=trades&limit=7")
        browser.taps.send(5)
        browser.taps.send(5, first=5)
        status, headers, body = await task
        assert (status, headers["content-type"]) == (200, "application/x-ndjson")
        assert sizes(body) == list(range(7))
        assert orjson.loads(body.splitlines()[0])["symbol"] == "A"
        assert browser.taps.open == []

    asyncio.run(run())


def test_a_tap_takes_each_nth_tuple_across_trains() -> None:
    async def run() -> None:
        browser = Browser()
        task = await opened(browser, "/api/v1/tap?stream=trades&limit=6&every=3")
        for first in range(0, 20, 4):
            browser.taps.send(4, first)
        assert sizes((await task)[2]) == [0, 3, 6, 9, 12, 15]

    asyncio.run(run())


def test_a_slow_watcher_loses_tuples_and_is_told() -> None:
    async def run() -> None:
        browser = Browser()
        task = await opened(browser, f"/api/v1/tap?stream=trades&limit={PENDING_TUPLES}")
        browser.taps.send(PENDING_TUPLES - 10)
        browser.taps.send(30)  # the watcher had no turn in between
        body = (await task)[2]
        assert sizes(body) == [*range(PENDING_TUPLES - 10), *range(10)]
        assert sum(orjson.loads(line).get("_gap", 0) for line in body.splitlines()) == 20

    asyncio.run(run())


def test_a_watcher_that_leaves_is_forgotten() -> None:
    async def run() -> None:
        browser = Browser()
        task = await opened(browser, "/api/v1/tap?stream=trades&limit=0")
        browser.taps.send(3)
        browser.leave.set()
        await asyncio.wait_for(task, 10)
        assert browser.taps.open == []

    asyncio.run(run())


def test_taps_are_few_and_are_given_back() -> None:
    async def run() -> None:
        browser = Browser()
        tasks = [
            await opened(browser, "/api/v1/tap?stream=trades&limit=1", client=f"10.0.0.{n}") for n in range(MAX_TAPS)
        ]
        status, _, body = await browser.get("/api/v1/tap?stream=trades&limit=1", client="10.0.9.9")
        assert status == 503
        assert "taps are already open" in orjson.loads(body)["error"]
        browser.taps.send(1)
        await asyncio.gather(*tasks)
        again = await opened(browser, "/api/v1/tap?stream=trades&limit=1")
        browser.taps.send(1)
        await again

    asyncio.run(run())


def test_one_peer_cannot_take_all_taps() -> None:
    """Sixteen taps that one peer left open once kept everybody from looking."""

    async def run() -> None:
        browser = Browser()
        greedy = [
            await opened(browser, "/api/v1/tap?stream=trades&limit=0", client="10.0.0.1") for _ in range(MAX_TAPS)
        ]
        other = await opened(browser, "/api/v1/tap?stream=trades&limit=1", client="10.0.0.2")
        await greedy[0]
        own = await opened(browser, "/api/v1/tap?stream=trades&limit=1", client="10.0.0.1")
        await greedy[1]
        browser.taps.send(1)
        await asyncio.gather(other, own)
        browser.leave.set()
        await asyncio.gather(*greedy)

    asyncio.run(run())


def test_the_places_of_a_tap_begin_with_streams_and_boxes_and_end_with_arcs() -> None:
    places = list(tap_places(diamond()))
    assert places[:8] == ["trades", "big", "split.a", "split.rest", "both", "alerts", "others", "raw"]
    assert all("->" in name for name in places[8:]) and len(places) > 8
