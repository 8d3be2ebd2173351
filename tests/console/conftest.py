"""A real Chromium for the tests of the page, and pages of it that fail a test when their script fails."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PATIENCE_MS = 130_000  # more than the daemon gives a command: at load 20 a forecast takes over a minute


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@contextmanager
def open_page(browser: Browser, http_port: int, **options: Any) -> Iterator[Page]:
    """Open a page of a daemon, without the tour."""
    shape = {"viewport": {"width": 1280, "height": 860}, **options}
    context = browser.new_context(base_url=f"http://127.0.0.1:{http_port}", **shape)
    context.add_init_script("localStorage.setItem('aurorad.toured', 'yes')")
    context.set_default_timeout(PATIENCE_MS)
    expect.set_options(timeout=PATIENCE_MS)
    opened = context.new_page()
    wrong: list[str] = []
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    yield opened
    assert not wrong, wrong
    context.close()
