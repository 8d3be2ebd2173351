"""The progress of a recovery that an operator sees: how much is done, and how long is left."""

from __future__ import annotations

import io
import sys

import pytest

from engine.daemon.durable.progress import ProgressBar, describe
from engine.daemon.durable.recovery import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_what_is_left_follows_from_what_is_done() -> None:
    assert describe(Progress(25, 100, 1_500, 2.0)) == "25%, 1,500 tuples, 6 s left"
    assert describe(Progress(0, 100, 0, 0.0)) == "0%, 0 tuples, 0 s left"


def test_a_terminal_gets_a_bar_that_ends_with_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    bar = ProgressBar()
    bar(Progress(0, 0, 0, 0.0))  # nothing to recover: nothing to see
    assert screen.getvalue() == ""
    bar(Progress(50, 100, 10, 1.0))
    bar(Progress(100, 100, 20, 2.0))
    first, second = screen.getvalue().split("\r")[1:]
    assert first.startswith("recovering [###############...............] 50%")
    assert second.startswith(f"recovering [{'#' * 30}] 100%") and second.endswith("\n")
