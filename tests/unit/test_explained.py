"""The drawing of ``explain``, a pure function of the daemon's answer."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console, RenderableType

from catalog.loss import DROP_REASONS
from engine.cli.views.drops import REASONS, draw_drops
from engine.cli.views.journeys import draw

DROP = {
    "arc": "trades->venues", "manner": "random", "share": 0.28, "gain_ns": 5.6e8, "loss": 0.01, "slope": 1e-9,
    "outputs": ["tape", "dark"],
}  # fmt: skip
PLAN = {
    "plan": 104, "level": 0.28, "since_ns": 10**18, "until_ns": None, "drops": [DROP],
    "load_ns": 2.4e9, "saved_ns": 0.8e9, "capacity_ns": 1.6e9, "loss": 0.01,
    "dropped": [{"arc": "trades->venues", "reason": "shed", "tuples": 39}],
    "why": "load 150% of capacity: drops 28% of trades->venues, for 0.010 of utility",
}  # fmt: skip
DROPS = {
    "level": 0.28, "plans_total": 1, "plans": [PLAN], "withheld": [],
    "dropped": [{"arc": "trades->venues", "reason": "shed", "tuples": 39, "intended": True}],
}  # fmt: skip


def drawn(width: int, *parts: RenderableType) -> str:
    console = Console(width=width, color_system=None, force_terminal=False)
    with console.capture() as capture:
        for part in parts:
            console.print(part)
    return capture.get()


@pytest.mark.parametrize("width", [80, 100, 140])
def test_a_plan_is_one_line_that_says_where_how_much_and_why(width: int) -> None:
    text = drawn(width, *draw_drops(DROPS))
    line = next(line for line in text.splitlines() if line.strip().startswith(("104", "01:46:40")))
    assert "…" not in text
    for part in ("trades->venues", "28.0%", " 39 ", "0.010", "150%"):
        assert part in line


def test_drops_are_explained_in_words_and_shares_of_capacity() -> None:
    text = " ".join(drawn(140, *draw_drops(DROPS)).split())
    assert (
        "Now the load is 150% of capacity. The plan drops 28% of the tuples on trades->venues (at random), "
        "before tape, dark. That saves 50% of capacity and costs 0.010 of utility." in text
    )
    assert "ms/s" not in text and "shed: by a plan, at random" in text
    assert set(REASONS) == set(DROP_REASONS)
    past = {**DROPS, "plans": [{**PLAN, "drops": []}]}
    assert "Now nothing is dropped by a plan" in drawn(140, *draw_drops(past))
    lost = [{"arc": "a->b", "reason": "overflow", "tuples": 3, "intended": False}]
    assert "no plan chose this" in drawn(140, *draw_drops({**DROPS, "plans": [], "dropped": lost}))


def test_a_box_keeps_its_whole_name() -> None:
    parts = [{"kind": "wait", "box": "lit", "ns": 60}, {"kind": "service", "box": "at", "ns": 30}]
    parts += [{"kind": "admit", "box": "", "ns": 10}]
    journey = {"latency_ns": 100, "stream": "s", "row": {"n": 1}, "parts": parts, "hops": []}
    answer: dict[str, Any] = {
        "output": "o", "where": "", "sampled": 1, "window_s": 60.0, "policy": "qos", "blame": [], "journeys": [journey],
        "latency": {"p50_ns": 100.0, "p99_ns": 100.0, "max_ns": 100.0},
    }  # fmt: skip
    lines = [line.rstrip() for line in drawn(120, draw(answer)).splitlines()]
    assert "1 sampled tuple in" in lines[0]
    for said in ("waited for its turn at lit", "served by at", "from the socket to the first queue"):
        assert any(line.endswith(said) for line in lines), (said, lines)
