"""Any rows, any trains, any order within the slack: the windows of the aggregate box are those of the definition."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.strings import StringPool
from storage.train import NO_WATERMARK
from tests.property.aggregate_oracle import (
    SELECT,
    Arrival,
    Driver,
    Row,
    comparable,
    counted,
    expected,
    on_a_grid,
    sessions,
    tiny,
)

END_NS = 10_000
BOUNDS = ["window_start", "window_end"]

numbers = st.sampled_from([None, float("nan"), 0.0, -0.0, 1.5, -2.25, 1e6, 0.1])
# Few keys and many equal times: what goes wrong, goes wrong where rows meet.
rows = st.tuples(
    st.integers(-20, 60) | st.sampled_from([0, 5, 9, 10, 11, 20]),
    st.sampled_from(["a", "a", "a", "a", None, "", "b", "é"]),
    st.sampled_from([0.0, 0.0, 0.0, -0.0, None, float("nan"), 2.5]),
    numbers,
    st.integers(-(2**31), 2**31 - 1) | st.integers(-5, 5),
    st.none() | st.integers(-5, 5),
)


@st.composite
def arrivals(draw: st.DrawFn, *, honest: bool) -> list[Arrival]:
    """Rows in trains. Honest: nothing comes after a watermark above it."""
    many = draw(st.lists(rows, max_size=60))
    slack = draw(st.integers(0, 30))
    jitter = draw(st.lists(st.integers(0, slack), min_size=len(many), max_size=len(many)))
    many = [row for _, row in sorted(zip(jitter, many, strict=True), key=lambda pair: pair[1][0] + pair[0])]
    cuts = sorted(draw(st.lists(st.integers(0, len(many)), max_size=8)))
    out: list[Arrival] = []
    high: int | None = None
    for start, end in zip([0, *cuts], [*cuts, len(many)], strict=True):
        part: list[Row] = many[start:end]
        high = max([r[0] for r in part] + ([] if high is None else [high]), default=None)
        speed = slack if honest else draw(st.integers(-10, slack))
        out.append(Arrival(part, NO_WATERMARK if high is None or draw(st.booleans()) else high - speed))
    return out


def run(parts: list[Arrival], window: dict[str, Any], size: int | None, restart: int, **more: Any) -> Driver:
    """Every other example with thresholds so low that everything that happens rarely happens always."""
    with tiny() if restart % 2 else nullcontext():
        return drive(parts, window, size, restart, **more)


def drive(parts: list[Arrival], window: dict[str, Any], size: int | None, restart: int, **more: Any) -> Driver:
    parameters = {"window": window, "by": ["k", "d"], "select": SELECT, "bounds": BOUNDS} | more
    driver = Driver(StringPool() if restart % 3 else None, **parameters)
    for number, part in enumerate(parts):
        if number == restart:
            driver.restart()
        driver.feed(part, size)
    driver.feed(Arrival([], END_NS))
    driver.feed(Arrival([], END_NS + 1))
    assert all(groups.live == 0 for groups in driver.state.tables()) or "count" in window
    return driver


train_size = st.sampled_from([None, 1, 3])
restarts = st.integers(0, 8)


@pytest.mark.parametrize(("size", "advance", "offset"), [(10, 10, 0), (1, 1, 0), (7, 7, 3), (12, 8, 1), (40, 3, 0)])
@settings(max_examples=15)
@given(parts=arrivals(honest=False), cut=train_size, restart=restarts)
def test_windows_on_a_grid(
    size: int, advance: int, offset: int, parts: list[Arrival], cut: int | None, restart: int
) -> None:
    window = {"offset": f"{offset}ns"}
    window |= {"tumbling": f"{size}ns"} if size == advance else {"sliding": f"{size}ns", "advance": f"{advance}ns"}
    driver = run(parts, window, cut, restart)
    contents, late = on_a_grid(parts, size, advance, offset)
    assert comparable(driver.rows()) == comparable(expected(contents))
    assert comparable(driver.late) == comparable(late)


@pytest.mark.parametrize(("size", "advance"), [(40, 3), (64, 1), (100, 10)])
@settings(max_examples=15)
@given(parts=arrivals(honest=False), cut=train_size, restart=restarts)
def test_long_windows_from_a_tree(size: int, advance: int, parts: list[Arrival], cut: int | None, restart: int) -> None:
    """Without functions that need all values, windows of many panes are put together from a tree."""
    calls = ("rows", "vs", "total", "least", "most", "spread", "ints", "bigs", "low", "high")
    select = {name: SELECT[name] for name in calls}
    driver = run(parts, {"sliding": f"{size}ns", "advance": f"{advance}ns"}, cut, restart, select=select)
    assert len(driver.state.levels) > 1
    contents, late = on_a_grid(parts, size, advance, 0)
    assert comparable(driver.rows()) == comparable(expected(contents, select))
    assert comparable(driver.late) == comparable(late)


@pytest.mark.parametrize("gap", [1, 4, 15])
@settings(max_examples=30)
@given(parts=arrivals(honest=False), cut=train_size, restart=restarts)
def test_sessions(gap: int, parts: list[Arrival], cut: int | None, restart: int) -> None:
    driver = run(parts, {"session": f"{gap}ns"}, cut, restart)
    contents, late = sessions([*parts, Arrival([], END_NS)], gap)
    assert comparable(driver.rows()) == comparable(expected(contents))
    assert comparable(driver.late) == comparable(late)


@pytest.mark.parametrize(("size", "advance"), [(1, 1), (4, 4), (6, 4), (20, 1)])
@settings(max_examples=15)
@given(parts=arrivals(honest=True), cut=train_size, restart=restarts, logged=st.booleans())
def test_windows_by_count(
    size: int, advance: int, parts: list[Arrival], cut: int | None, restart: int, logged: bool
) -> None:
    select = SELECT if logged else {"rows": "count(*)", "total": "sum(v)", "most": "max(v)", "spread": "stddev(v)"}
    driver = run(parts, {"count": size, "advance": advance}, cut, restart, select=select)
    contents = counted(parts, size, advance)
    oracle = {name: SELECT[name] for name in select} if not logged else {}
    assert comparable(driver.rows()) == comparable(expected(contents, oracle) if oracle else expected(contents))


@settings(max_examples=30)
@given(parts=arrivals(honest=True), cut=train_size, restart=restarts, sliding=st.booleans())
def test_first_last_and_lists_go_by_event_time(
    parts: list[Arrival], cut: int | None, restart: int, sliding: bool
) -> None:
    select = {
        "one": "first(v)",
        "other": "last(v)",
        "kept": "first(k, true)",
        "final": "last(k) ignore nulls",
        "all": "string_agg(n, ' ')",
    }
    window = {"sliding": "20ns", "advance": "5ns"} if sliding else {"tumbling": "20ns"}
    driver = run(parts, window, cut, restart, select=select)
    contents, _ = on_a_grid(parts, 20, 5 if sliding else 20, 0)
    wanted = []
    for start, end, content in contents:
        ordered = sorted(content, key=lambda r: r[0])
        words = [r[1] for r in ordered if r[1] is not None]
        ends = (words[0], words[-1]) if words else (None, None)
        listed = " ".join(str(r[4]) for r in ordered)
        head = (content[0][1], content[0][2], start, end)
        wanted.append((*head, ordered[0][3], ordered[-1][3], *ends, listed))
    assert comparable(driver.rows()) == comparable(wanted)


@settings(max_examples=30)
@given(parts=arrivals(honest=True), cut=train_size, sliding=st.booleans())
def test_updates_end_where_closing_would(parts: list[Arrival], cut: int | None, sliding: bool) -> None:
    """The last update of each window is its result, and no update contradicts an earlier one by less rows."""
    window = {"sliding": "20ns", "advance": "5ns"} if sliding else {"tumbling": "20ns"}
    select = {"rows": "count(*)", "total": "sum(n)"}
    updates = run(parts, window, cut, -1, select=select, emit="update").rows()
    last: dict[Any, tuple[Any, ...]] = {}
    for row in updates:
        key = comparable([row[:4]])[0]
        assert key not in last or last[key][4] < row[4]
        last[key] = row
    closed = run(parts, window, cut, -1, select=select).rows()
    assert comparable(last.values()) == comparable(closed)
