"""dedup and latest against plain Python and DuckDB: any rows, any split, restarted in the middle."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.schema import Schema
from engine.operators.boxes.dedup import Dedup
from engine.operators.boxes.latest import Latest
from tests.property.box_harness import Driver, Rows, Schedule, bound, play, schedules, sorted_rows, tiny

pytestmark = pytest.mark.usefixtures("low_thresholds")


@pytest.fixture(scope="module")
def low_thresholds() -> Iterator[None]:
    with tiny():
        yield


SCHEMA = Schema.of(ts="timestamp", k="string?", g="double?", v="string?", n="int")
SLACK = 3

rows = st.lists(
    st.tuples(
        st.integers(0, 20),
        st.sampled_from(["a", "b", None]),
        st.sampled_from([0.0, -0.0, float("nan"), None]),
        st.sampled_from(["x", "y", None]),
        st.integers(0, 2),
    ),
    max_size=40,
)


def arrived(given_rows: Rows, schedule: Schedule) -> Rows:
    return [given_rows[i] for _, chosen, _ in schedule for i in chosen]


def same(value: Any) -> str:
    return repr(0.0 if value == 0 else value)


@given(st.data(), rows, st.integers(1, 30), st.integers(0, 4), st.sampled_from([["k"], ["g"], ["k", "g"], ["n"]]))
def test_dedup(data: st.DataObject, given_rows: Rows, within: int, restart: int, by: list[str]) -> None:
    schedule = data.draw(schedules([[r[0] for r in given_rows]], SLACK))
    box = bound(Dedup, (SCHEMA,), ("ts",), by=by, within=f"{within}ns")
    driver = play(Driver(box, (SCHEMA,), ("ts",), restart), (given_rows,), schedule)
    last: dict[Any, int] = {}
    expected = []
    for row in arrived(given_rows, schedule):
        key = tuple(same(row[SCHEMA.index(name)]) for name in by)
        if key not in last or row[0] >= last[key] + within:
            last[key] = row[0]
            expected.append(row)
    assert list(map(repr, driver.rows())) == list(map(repr, expected))
    assert not driver.state.live().shape[0]  # after the end of time nothing is remembered


@given(st.data(), rows)
def test_dedup_as_duckdb_has_it(data: st.DataObject, given_rows: Rows) -> None:
    """With a band that covers everything, what passes is the first to arrive of each key."""
    schedule = data.draw(schedules([[r[0] for r in given_rows]], SLACK))
    box = bound(Dedup, (SCHEMA,), ("ts",), by=["k", "v"], within="1h")
    driver = play(Driver(box, (SCHEMA,), ("ts",), 2), (given_rows,), schedule)
    marked = [(i, *row) for i, row in enumerate(arrived(given_rows, schedule))]
    if not marked:
        assert driver.rows() == []
        return
    values = ", ".join("(" + ", ".join("null" if v is None else f"'{v}'" for v in row) + ")" for row in marked)
    sql = f"""select ts::bigint, k, g::double, v, n::int from (values {values}) as t(i, ts, k, g, v, n)
              qualify row_number() over (partition by k, v order by i::int) = 1"""
    assert sorted_rows(driver.rows()) == sorted_rows(duckdb.sql(sql).fetchall())


@given(
    st.data(),
    rows,
    st.integers(0, 4),
    st.sampled_from([["k"], ["k", "g"], []]),
    st.sampled_from([None, ["v"], ["g", "n"]]),
)
def test_latest(data: st.DataObject, given_rows: Rows, restart: int, by: list[str], changes: list[str] | None) -> None:
    schedule = data.draw(schedules([[r[0] for r in given_rows]], SLACK))
    box = bound(Latest, (SCHEMA,), ("ts",), by=by, changes=changes)
    driver = play(Driver(box, (SCHEMA,), ("ts",), restart), (given_rows,), schedule)
    compared = [n for n in SCHEMA.names if n not in by and n != "ts"] if changes is None else changes
    last: dict[Any, tuple[int, Any]] = {}
    expected = []
    for row in arrived(given_rows, schedule):
        key = tuple(same(row[SCHEMA.index(name)]) for name in by)
        value = [same(row[SCHEMA.index(name)]) for name in compared]
        if key in last and row[0] < last[key][0]:
            continue
        if key not in last or last[key][1] != value:
            expected.append(row)
        last[key] = (row[0], value)
    assert list(map(repr, driver.rows())) == list(map(repr, expected))


@given(st.data(), rows, st.integers(0, 4), st.integers(1, 6))
def test_latest_forgets_silent_keys(data: st.DataObject, given_rows: Rows, restart: int, forget: int) -> None:
    """A key that was silent for ``forget`` below the watermark of its train counts as new."""
    schedule = data.draw(schedules([[r[0] for r in given_rows]], SLACK))
    box = bound(Latest, (SCHEMA,), ("ts",), by=["k"], changes=["v"], forget=f"{forget}ns")
    driver = play(Driver(box, (SCHEMA,), ("ts",), restart), (given_rows,), schedule)
    last: dict[Any, tuple[int, Any]] = {}
    expected = []
    watermark = -(2**63)
    for _, chosen, after in schedule:
        for i in chosen:
            row = given_rows[i]
            known = last.get(row[1])
            if known is not None and known[0] <= watermark - forget:
                known = None
            if known is not None and row[0] < known[0]:
                continue
            if known is None or known[1] != row[3]:
                expected.append(row)
            last[row[1]] = (row[0], row[3])
        watermark = max(watermark, after)
    assert list(map(repr, driver.rows())) == list(map(repr, expected))
    assert not driver.state.seen.live().shape[0]
