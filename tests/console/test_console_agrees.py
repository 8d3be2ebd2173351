"""The page, ``aurorad top`` and ``/metrics`` show the same numbers, to the digit; the page under attack."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
from playwright.sync_api import Browser, Page, expect
from rich.console import Console

from engine.cli.views.numbers import cost, count, duration, size
from engine.cli.views.stats import draw, share
from router import console
from tests.console.conftest import open_page
from tests.e2e.daemon import RunningDaemon, connect, free_ports, running, wait_for

pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("console-agrees")]
UNITS = Path(console.__file__).parent / "source" / "units.js"
ROWS = 40_000
HOSTILE = ["<img src=x onerror=alert(1)>", "\"'`;--", "a\u0000\u0007\u001b[31mb\u202ec", "😀é\u0301", "x" * 10_000]

NETWORK = """
scheduler: {{policy: qos}}
streams:
  trades:
    schema: {{at: timestamp, symbol: string, price: double}}
    time: at
    idle: 1s
    source: {{tcp: "127.0.0.1:{trades}", format: ndjson}}
    overload: shed
boxes:
  dear: {{universal: trades, cost: 300us}}
  sums: {{aggregate: trades, window: {{tumbling: 1s}}, select: {{total: "sum(price)"}}}}
  cheap: {{filter: trades, where: "price > 50"}}
outputs:
  slow: {{from: dear, qos: {{latency: [[0s, 1], [1s, 1], [3s, 0]], loss: [[0, 0], [1, 1]],
          value: {{field: price, graph: [[0, 0], [100, 1]]}}}}, sink: {{tcp: "127.0.0.1:{slow}"}}}}
  fast: {{from: cheap, qos: {{latency: [[0s, 1], [100ms, 1], [1s, 0]]}}, sink: {{tcp: "127.0.0.1:{fast}"}}}}
  totals: {{from: sums}}
"""


@pytest.fixture(scope="module")
def rested(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """A daemon that had an overload with drops and refused rows, and is at rest again."""
    http, trades, slow, fast = free_ports(4)
    text = NETWORK.format(trades=trades, slow=slow, fast=fast)
    with running(tmp_path_factory.mktemp("agrees"), text, http) as daemon:
        base = 1_767_225_600_000_000_000
        rows = [{"at": base + i * 1_000_000, "symbol": HOSTILE[i % 4], "price": i % 100} for i in range(ROWS)]
        rows += [{"at": base + ROWS * 1_000_000, "symbol": HOSTILE[4], "price": 77}]
        with connect(trades) as out:
            out.settimeout(300)
            out.sendall(b"".join(orjson.dumps(row) + b"\n" for row in rows))
            out.sendall(orjson.dumps({"symbol": HOSTILE[0] + HOSTILE[1], "at": "<b>never</b>"}) + b"\n")
        seen: list[Any] = []

        def is_at_rest() -> bool:
            stats = daemon.stats()
            now = [
                stats["streams"][0]["received"],
                stats["totals"]["dropped"],
                [o["emitted"] for o in stats["outputs"]],
            ]
            seen.append(now)
            return seen[-1] == seen[-2:][0] == seen[-3:][0] and now[0] > ROWS and stats["arcs"][0]["tuples"] == 0

        wait_for(lambda: is_at_rest() and len(seen) > 3, "the daemon is at rest", 200)
        yield daemon


def asked(browser: Browser, calls: Sequence[tuple[str, float]]) -> list[str]:
    """Ask the functions of units.js, in a browser."""
    page = browser.new_page()
    source = "data:text/javascript;base64,"
    found: list[str] = page.evaluate(
        "async ([head, text, calls]) => { const u = await import(head + btoa(unescape(encodeURIComponent(text))));"
        " return calls.map(([name, x]) => u[name](x)); }",
        [source, UNITS.read_text(), calls],
    )
    page.close()
    return found


def test_the_page_rounds_as_the_terminal_does(browser: Browser) -> None:
    drawn = random.Random(7)
    numbers = [drawn.choice((1, 10, 0.5, 0.25)) * drawn.randrange(2_000) for _ in range(600)]
    numbers += [10 ** drawn.uniform(-2, 14) for _ in range(1_500)]
    numbers += [x * y for x in (1, 2.5, 1.25, 12.5, 125, 0.05, 9.95, 99.95, 999.5, 1023.5) for y in (1, 1e3, 1e6, 1e9)]
    terminal = {"count": count, "time": duration, "cost": cost, "bytes": size, "delivered": lambda x: share(x / 1e3)}
    calls = [(name, x / 1e3 if name == "delivered" else x) for name in terminal for x in numbers]
    written = [terminal[name](x * 1e3 if name == "delivered" else x) for name, x in calls]
    wrong = [
        (call, plain(page), top)
        for call, page, top in zip(calls, asked(browser, calls), written, strict=True)
        if plain(page) != top
    ]
    assert not wrong, wrong[:10]


def plain(text: str) -> str:
    """Without the spaces and the long dash that a page has room for."""
    return re.sub(r"[\s\u00a0]", "", text).replace("\u2013", "-")


def table(stats: Any, first: str) -> dict[str, dict[str, str]]:
    """The rows of one of top's tables, each by column."""
    terminal = Console(width=400, color_system=None, force_terminal=False)
    with terminal.capture() as capture:
        terminal.print(draw(stats, boxes=100))
    lines = capture.get().splitlines()
    at = next(i for i, line in enumerate(lines) if line.strip().startswith(first))
    head = re.split(r"\s{2,}", lines[at].strip())
    edges = [lines[at].index(f"{word}") for word in head]
    found = {}
    for line in lines[at + 2 :]:
        if not line.strip():
            break
        cells = re.split(r"\s{2,}", line.strip())
        found[cells[0]] = dict(zip(head, cells, strict=False))
    assert edges and found
    return found


def heading(stats: Any) -> str:
    terminal = Console(width=400, color_system=None, force_terminal=False)
    with terminal.capture() as capture:
        terminal.print(draw(stats, boxes=1))
    return plain(capture.get().splitlines()[0])


def facts(page: Page, kind: str, name: str) -> dict[str, str]:
    page.goto(f"/#network/{kind}/{name}")
    expect(page.get_by_role("complementary").get_by_role("heading", name=name)).to_be_visible()
    rows = page.get_by_role("complementary").locator("dl.facts div")
    return {row.locator("dt").inner_text(): plain(row.locator("dd").inner_text()) for row in rows.all()}


def test_page_top_and_metrics_agree_to_the_digit(browser: Browser, rested: RunningDaemon) -> None:
    stats = rested.stats()
    look = f"retry: 600000\nevent: stats\ndata: {orjson.dumps(stats).decode()}\n\n"
    with open_page(browser, rested.http_port) as page:
        page.route("**/api/v1/live", lambda route: route.fulfill(content_type="text/event-stream", body=look))
        page.goto("/")
        outputs = page.get_by_role("region", name="outputs")
        expect(outputs.locator("tbody tr")).to_have_count(3)
        head = [th.inner_text() for th in outputs.locator("thead th").all()]
        top = table(stats, "output")
        for row in outputs.locator("tbody tr").all():
            cells = dict(zip(head, [plain(c.inner_text()) for c in row.locator("th, td").all()], strict=True))
            for word in head[1:]:
                assert cells[word].removesuffix("/s") == top[cells["output"]][word], (cells["output"], word)
        told = {
            div.locator("dt").inner_text(): plain(div.locator("dd").inner_text())
            for div in page.locator("dl.figures > div").all()
        }
        for word in ("utility", "load", "memory", "up"):
            assert f"{word}{told[word]}" in heading(stats), (word, told, heading(stats))
        for box, figures in table(stats, "box").items():
            shown = facts(page, "box", box)
            for word in ("in/s", "cost/tuple", "cost/call", "selectivity", "busy"):
                assert shown[word].removesuffix("/s") == figures[word], (box, word, shown, figures)
        stream = facts(page, "stream", "trades")
        metrics = rested.get("/metrics").decode()
        assert rested.stats()["totals"]["dropped"] == stats["totals"]["dropped"], "the daemon is at rest"
        dropped = sum(measured(metrics, "aurorad_tuples_dropped_total"))
        dropped += sum(measured(metrics, "aurorad_tuples_undecoded_total", needed=False))
        dropped += sum(measured(metrics, "aurorad_output_dropped_tuples_total", needed=False))
        assert dropped == stats["totals"]["dropped_tuples"] > 0
        assert told["dropped"] == f"{count(dropped)}tuples"
        assert stream["received"] == count(sum(measured(metrics, "aurorad_tuples_in_total")))
        assert stream["refused"] == "1" == count(sum(stats["streams"][0]["rejected"].values()))
        for arc in ("trades->dear", "trades->cheap"):
            lost = sum(measured(metrics, f'aurorad_tuples_dropped_total{{arc="{arc}"', needed=False))
            told_of_arc = facts(page, "arc", arc)["dropped"]
            assert told_of_arc.partition("(")[0] == count(lost), (arc, told_of_arc)


def measured(metrics: str, start: str, *, needed: bool = True) -> list[float]:
    found = [float(line.rsplit(" ", 1)[1]) for line in metrics.splitlines() if line.startswith(start)]
    assert found or not needed, f"no {start} in /metrics"
    return found


def test_hostile_values_are_text_everywhere(browser: Browser, rested: RunningDaemon) -> None:
    with open_page(browser, rested.http_port) as page:
        alerts: list[str] = []
        page.on("dialog", lambda dialog: (alerts.append(dialog.message), dialog.dismiss()))
        page.goto("/#network/stream/trades")
        panel = page.get_by_role("complementary")
        panel.get_by_text("dead letters").click()
        expect(panel.get_by_role("region", name="when, reason")).to_contain_text("<b>never</b>")
        panel.get_by_label("only rows for which").fill("symbol = '<img src=x onerror=alert(1)>' and <b>")
        panel.get_by_role("button", name="watch rows").click()
        expect(panel.get_by_role("alert")).to_contain_text("where")
        panel.get_by_label("only rows for which").fill("")
        panel.get_by_role("button", name="watch rows").click()
        sent = [{"at": 1_767_225_700_000_000_000, "symbol": text, "price": 99} for text in HOSTILE]
        body = {"stream": "trades", "rows": "".join(orjson.dumps(row).decode() + "\n" for row in sent)}
        expect(panel.get_by_text("waiting for a row")).to_be_visible()
        page.evaluate("b => fetch('/api/v1/feed', {method: 'POST', body: JSON.stringify(b)})", body)
        rows = panel.get_by_role("region", name="rows of the tap")
        expect(rows.locator("tbody tr")).to_have_count(len(HOSTILE))
        expect(rows).to_contain_text(HOSTILE[0])
        expect(rows).to_contain_text("😀")
        assert page.locator("img").count() == 0 and not alerts
        page.goto("/#network/nothing/%3Cimg%20src%3Dx%3E")
        page.goto("/#network/box/%3Cimg%20src%3Dx%3E")
        expect(page.get_by_role("complementary")).to_contain_text("no box of this name now")
        assert page.locator("img").count() == 0 and page.evaluate("document.documentElement.scrollWidth") <= 1280


def test_watermarks_and_the_point_on_a_value_graph(browser: Browser, rested: RunningDaemon) -> None:
    with open_page(browser, rested.http_port) as page:
        page.goto("/")
        shown = facts(page, "box", "sums")
        assert re.search(r"UTC,(level with|.*behind)the newest row".replace(" ", ""), shown["watermark"]), shown
        assert facts(page, "stream", "trades")["newest row"].startswith("2026-01-01")
        page.goto("/#qos")
        value = page.locator("article", has_text="slow").locator("figure", has_text="by value of price")
        rows = "".join(f'{{"at": 1767225800000000000, "symbol": "v", "price": {p}}}\n' for p in (20, 40))
        page.evaluate(
            "r => fetch('/api/v1/feed', {method: 'POST', body: JSON.stringify({stream: 'trades', rows: r})})", rows
        )
        expect(value.locator("circle.point")).to_be_visible()
        expect(value).to_contain_text(re.compile(r"mean [0-9.]+; "))


def test_a_tab_that_slept_for_an_hour_wakes_up(browser: Browser, rested: RunningDaemon) -> None:
    with open_page(browser, rested.http_port) as page:
        page.clock.install()
        page.goto("/")
        expect(page.locator(".connection")).to_have_text("live")
        opened: list[str] = []
        page.on("request", lambda request: opened.append(request.url) if request.url.endswith("/live") else None)
        page.clock.fast_forward("01:00:00")
        wait_until(page, lambda: bool(opened), "a new connection")
        expect(page.locator(".connection")).to_have_text("live")
        expect(page.get_by_role("region", name="outputs").locator("tbody tr")).to_have_count(3)


def wait_until(page: Page, condition: Any, what: str) -> None:
    for _ in range(600):
        if condition():
            return
        page.wait_for_timeout(200)
    raise AssertionError(f"waited until {what}")
