"""The page in a real Chromium, over a real daemon under a real overload: every view, and what axe says of it.

Without a Chromium on the machine (``make test`` installs Debian's) these tests are skipped.
"""

from __future__ import annotations

import re
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.e2e.daemon import RunningDaemon, free_ports, running

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("console"),  # one daemon and one browser for all
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
]
PATIENCE_MS = 130_000  # more than the daemon gives a command: at load 20 a forecast takes over a minute
RATE_PER_S = 8_000
BEGIN_NS = 1_767_225_600_000_000_000

NETWORK = """
scheduler: {{policy: qos}}
streams:
  trades:
    schema: {{at: timestamp, symbol: string, price: double}}
    source: {{tcp: "127.0.0.1:{trades}", format: ndjson}}
    overload: shed
boxes:
  dear: {{universal: trades, cost: 300us}}
  cheap: {{filter: trades, where: "price > 50"}}
outputs:
  slow:
    from: dear
    qos: {{latency: [[0s, 1], [1s, 1], [3s, 0]], loss: [[0, 0], [1, 1]]}}
    sink: {{tcp: "127.0.0.1:{slow}"}}
  fast:
    from: cheap
    qos: {{latency: [[0s, 1], [100ms, 1], [1s, 0]]}}
    sink: {{tcp: "127.0.0.1:{fast}"}}
"""


class Feed(threading.Thread):
    """Sends rows at a steady rate until ``ended`` is set. One symbol is markup."""

    def __init__(self, port: int) -> None:
        super().__init__(name="feed", daemon=True)
        self.port, self.ended = port, threading.Event()

    def run(self) -> None:
        with socket.create_connection(("127.0.0.1", self.port)) as out:
            number, begun = 0, time.monotonic()
            while not self.ended.wait(0.05):
                due = int((time.monotonic() - begun) * RATE_PER_S)
                rows = [
                    {
                        "at": BEGIN_NS + i,
                        "symbol": "<b>A</b>" if i % 2 else "é😀\u0007",
                        "price": i % 100,
                    }
                    for i in range(number, min(due, number + RATE_PER_S))
                ]
                number = due
                try:
                    out.sendall(b"".join(orjson.dumps(row) + b"\n" for row in rows))
                except OSError:
                    return


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    http, trades, slow, fast = free_ports(4)
    text = NETWORK.format(trades=trades, slow=slow, fast=fast)
    with running(tmp_path_factory.mktemp("console"), text, http) as started:
        feed = Feed(trades)
        feed.start()
        yield started
        feed.ended.set()
        feed.join(10)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def page(browser: Browser, daemon: RunningDaemon) -> Iterator[Page]:
    context = browser.new_context(
        viewport={"width": 1280, "height": 860}, base_url=f"http://127.0.0.1:{daemon.http_port}"
    )
    context.add_init_script("localStorage.setItem('aurorad.toured', 'yes')")
    context.set_default_timeout(PATIENCE_MS)
    expect.set_options(timeout=PATIENCE_MS)
    opened = context.new_page()
    wrong: list[str] = []
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    yield opened
    assert not wrong, wrong
    context.close()


def go(page: Page, view: str) -> None:
    page.goto(f"/#{view}")
    page.reload()
    expect(page.locator(".connection")).to_have_text("live")


def accessible(page: Page) -> None:
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()


def test_the_network_is_drawn_with_its_drops(page: Page) -> None:
    go(page, "network")
    expect(page.locator("[data-node]")).to_have_count(5)
    expect(page.locator("[data-node=dear]")).to_have_attribute("aria-label", re.compile(r"box dear: .*/s"))
    expect(page.locator(".drops.shown").first).to_be_visible()
    page.get_by_role("button", name="busyness").click()
    page.get_by_placeholder("find").fill("chea")
    expect(page.locator("[data-node=cheap]")).to_have_class(re.compile("found"))
    accessible(page)


def test_a_tap_shows_rows_as_text_and_filters_them(page: Page) -> None:
    go(page, "network")
    page.locator("[data-node=cheap]").click()
    panel = page.get_by_role("complementary")
    expect(panel).to_contain_text("price > 50")
    panel.get_by_label("only rows for which").fill("price = 77")
    panel.get_by_role("button", name="watch rows").click()
    rows = panel.get_by_role("region", name="rows of the tap").locator("tbody tr")
    expect(rows.first).to_contain_text("<b>A</b>")
    assert set(rows.locator("td.number").all_inner_texts()) == {"77"}
    panel.get_by_role("button", name="stop").click()
    panel.get_by_label("only rows for which").fill("price ==")
    panel.get_by_role("button", name="watch rows").click()
    expect(panel.get_by_role("alert")).to_contain_text("where:")
    accessible(page)


def test_outputs_move_on_their_graphs(page: Page, daemon: RunningDaemon) -> None:
    go(page, "qos")
    slow = page.locator("article", has_text="slow").first
    point = slow.locator("figure", has_text="by share delivered").locator("circle.point")
    expect(point).to_be_visible()
    expect(slow.locator("circle.trail").nth(3)).to_be_attached()  # some looks later
    expect(page.get_by_text("What goes first under overload")).to_be_visible()
    expect(page.get_by_role("region", name="drop on")).to_contain_text("trades->dear")
    accessible(page)


def test_it_says_why_tuples_are_late_and_dropped(page: Page) -> None:
    go(page, "why")
    page.get_by_label("output").select_option("slow")
    expect(page.locator(".timeline").first).to_be_visible()
    expect(page.locator(".timeline .part").first).to_be_attached()
    expect(page.get_by_role("region", name="where, why, tuples")).to_contain_text("trades->dear")
    expect(page.locator(".plans li").first).to_contain_text("load")
    accessible(page)


def test_the_simulator_answers_what_if(page: Page) -> None:
    go(page, "what-if")
    page.get_by_role("button", name="simulate").click()
    expect(page.get_by_text("times the knee")).to_be_visible()
    expect(page.get_by_role("region", name="output, utility")).to_contain_text("fast")
    accessible(page)


def test_edit_error_fix_deploy_and_back(page: Page, daemon: RunningDaemon) -> None:
    go(page, "change")
    editor = page.locator(".cm-content")
    expect(editor).to_contain_text("universal: trades")
    before = orjson.loads(daemon.get("/api/v1/network"))["version"]
    text = orjson.loads(daemon.get("/api/v1/network/file"))["text"]
    editor.fill(text.replace("price > 50", "prize > 50"))
    expect(page.locator(".problems")).to_contain_text("prize")
    expect(page.get_by_role("button", name="deploy")).to_be_disabled()
    accessible(page)
    editor.fill(text.replace("price > 50", "price > 60"))
    expect(page.locator(".diff")).to_contain_text("cheap")
    page.get_by_role("button", name="deploy").click()
    expect(page.get_by_role("status").filter(has_text="deployed")).to_be_visible()
    assert orjson.loads(daemon.get("/api/v1/network"))["version"] == before + 1
    page.get_by_role("button", name=f"roll back to {before}", exact=True).click()
    asked = page.get_by_role("alertdialog", name="roll back")
    expect(asked).to_contain_text("cheap")  # the plan, before anything is done
    accessible(page)
    assert orjson.loads(daemon.get("/api/v1/network"))["version"] == before + 1
    asked.get_by_role("button", name="roll back").click()
    expect(page.get_by_role("status").filter(has_text=f"version {before + 2}")).to_be_visible()
    assert "price > 50" in orjson.loads(daemon.get("/api/v1/network/file"))["text"]


def test_ten_rows_become_a_network_with_a_result(page: Page) -> None:
    go(page, "start")
    page.get_by_role("button", name="make a network of them").click()
    expect(page.locator(".cm-content")).to_contain_text("schema")
    page.get_by_role("button", name="run my rows through it").click()
    expect(page.get_by_role("region", name="room")).to_contain_text("kitchen")
    accessible(page)


def test_the_numbers_are_those_of_the_daemon(page: Page, daemon: RunningDaemon) -> None:
    """Between two readings of /metrics the page shows a number of dropped tuples that lies between them."""

    def dropped() -> float:
        lines = daemon.get("/metrics").decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("aurorad_tuples_dropped_total"))

    go(page, "network")
    before = dropped()
    page.wait_for_timeout(2_000)
    look = page.evaluate("fetch('/api/v1/stats').then(a => a.json())")
    after = dropped()
    told = sum(sum(arc["shed"].values()) for arc in look["arcs"])
    assert before <= told <= after and after > 0


def test_on_a_phone_and_in_the_dark(browser: Browser, daemon: RunningDaemon, tmp_path: Path) -> None:
    context = browser.new_context(
        viewport={"width": 390, "height": 844}, color_scheme="dark", base_url=f"http://127.0.0.1:{daemon.http_port}"
    )
    context.add_init_script("localStorage.setItem('aurorad.toured', 'yes')")
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    for view in ("network", "qos", "why", "what-if", "change", "start"):
        go(page, view)
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= 390, f"{view} is {width} pixels wide"
        accessible(page)
    context.close()
