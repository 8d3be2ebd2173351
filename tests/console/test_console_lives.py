"""An empty daemon that gets its network from the page and dies under it, and what the page may ask."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import orjson
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

from router import console
from router.http.operations import CHANGE_OPERATIONS, CONSOLE_OPERATIONS, OPERATIONS
from tests.console.conftest import open_page
from tests.e2e.daemon import free_ports, running

pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("console-lives")]
EMPTY = "streams: {}\noutputs: {}\n"
ROWS = "city,temp,at\nBonn,3.5,2026-01-01T00:00:00Z\nBonn,4.5,2026-01-01T00:00:05Z\nKiel,1,2026-01-01T00:01:30Z\n"


def test_ten_rows_run_live_and_a_restart_is_told(browser: Browser, tmp_path: Path) -> None:
    [http] = free_ports(1)
    with running(tmp_path, EMPTY, http) as daemon, open_page(browser, http) as page:
        page.goto("/")
        expect(page.get_by_role("heading", name="Begin with ten rows")).to_be_visible()
        page.get_by_label("rows", exact=True).fill(ROWS)
        page.get_by_label("called").fill("weather")
        page.get_by_role("button", name="make a network of them").click()
        expect(page.locator(".cm-content")).to_contain_text("weather")
        page.get_by_role("button", name="run my rows through it").click()
        expect(page.get_by_role("region", name="rows of weather_summary")).to_contain_text("Bonn")
        page.get_by_role("button", name="deploy it").click()
        expect(page.get_by_text("It runs: version 2")).to_be_visible()
        expect(page.get_by_text("waiting for a row")).to_be_visible()
        page.get_by_role("button", name="send my rows").click()
        expect(page.get_by_role("region", name="rows of the tap")).to_contain_text("Bonn")
        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()
        page.get_by_role("button", name="see it in the network").click()
        expect(page.locator("[data-node]")).to_have_count(3)
        assert page.get_by_text("has restarted").count() == 0, "a change is no restart"
        daemon.end(signal.SIGKILL)
        expect(page.locator(".connection")).to_contain_text(re.compile("lost|stopped"))
        with running(tmp_path, EMPTY, http):
            expect(page.locator(".connection")).to_have_text("live")
            expect(page.get_by_text("The daemon has restarted")).to_be_visible()
            expect(page.locator("[data-node]")).to_have_count(0)
            page.get_by_role("button", name="understood").click()
            expect(page.get_by_text("The daemon has restarted")).to_have_count(0)


def test_all_that_the_page_asks_is_in_the_api() -> None:
    source = Path(console.__file__).parent / "source"
    asked = {
        path.rstrip("/")
        for file in source.rglob("*.js")
        if "node_modules" not in file.parts
        for path in re.findall(r"/api/v1/[a-z_/]+", file.read_text())
    }
    known = {operation.path for operation in (*OPERATIONS, *CHANGE_OPERATIONS, *CONSOLE_OPERATIONS)}
    assert len(asked) > 15 and orjson.dumps(sorted(asked))
    assert [path for path in sorted(asked) if path not in known] == []
