"""bsort, top and resample against plain Python and DuckDB: any rows, any split, restarted in the middle."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.schema import Schema
from engine.operators.boxes.bsort import Bsort
from engine.operators.boxes.resample import Resample
from engine.operators.boxes.top import Top
from tests.property.box_harness import Driver, Rows, bound, play, schedules, sorted_rows, tiny, train_of

pytestmark = pytest.mark.usefixtures("low_thresholds")


@pytest.fixture(scope="module")
def low_thresholds() -> Iterator[None]:
    with tiny():
        yield


SCHEMA = Schema.of(ts="timestamp", k="string?", x="double?", n="bigint")
SLACK = 3

values = st.sampled_from([0.0, -0.0, 1.5, -2.0, 7.0, float("inf"), float("nan"), None])
rows = st.lists(
    st.tuples(st.integers(0, 20), st.sampled_from(["a", "b", None]), values, st.integers(0, 9)), max_size=40
)
cuts = st.lists(st.integers(0, 40), max_size=5)


def fed(driver: Driver, given_rows: Rows, at: list[int]) -> Rows:
    """In the order given, cut anywhere; without watermarks until the end."""
    bounds = [0, *sorted(min(c, len(given_rows)) for c in at), len(given_rows)]
    for a, b in pairwise(bounds):
        driver.feed(0, train_of(SCHEMA, given_rows[a:b]))
    driver.end()
    return driver.rows()


# -- bsort ----------------------------------------------------------------------------------------------------------


@given(st.data(), rows, st.integers(0, 4))
def test_bsort_within_its_slack_sorts(data: st.DataObject, given_rows: Rows, restart: int) -> None:
    schedule = data.draw(schedules([[r[0] for r in given_rows]], SLACK))
    box = bound(Bsort, (SCHEMA,), ("ts",), slack=f"{SLACK}ns")
    driver = play(Driver(box, (SCHEMA,), ("ts",), restart), (given_rows,), schedule)
    arrived = [given_rows[i] for _, chosen, _ in schedule for i in chosen]
    assert list(map(repr, driver.rows())) == list(map(repr, sorted(arrived, key=lambda r: r[0])))
    assert driver.state.index.live == 0


@given(rows, cuts, st.integers(0, 3), st.integers(1, 20))
def test_bsort_by_time_beyond_its_slack(given_rows: Rows, at: list[int], restart: int, slack: int) -> None:
    box = bound(Bsort, (SCHEMA,), (None,), by="ts", slack=f"{slack}ns")
    expected: Rows = []
    waiting: list[tuple[int, int]] = []
    highest = -1
    for i, row in enumerate(given_rows):
        heapq.heappush(waiting, (row[0], i))
        highest = max(highest, row[0])
        while waiting and waiting[0][0] <= highest - slack:
            expected.append(given_rows[heapq.heappop(waiting)[1]])
    expected += [given_rows[i] for _, i in sorted(waiting)]
    assert list(map(repr, fed(Driver(box, (SCHEMA,), (None,), restart), given_rows, at))) == list(map(repr, expected))


@given(rows, cuts, st.integers(0, 3), st.integers(1, 12), st.sampled_from(["n", "x", "ts"]))
def test_bsort_by_count(given_rows: Rows, at: list[int], restart: int, slack: int, by: str) -> None:
    box = bound(Bsort, (SCHEMA,), (None,), by=by, slack=slack)
    column = SCHEMA.index(by)
    expected: Rows = []
    waiting: list[tuple[float, int]] = []
    for i, row in enumerate(given_rows):
        value = row[column]
        lost = value is None or (isinstance(value, float) and math.isnan(value))
        heapq.heappush(waiting, (-math.inf if lost else value, i))
        if len(waiting) > slack:
            expected.append(given_rows[heapq.heappop(waiting)[1]])
    expected += [given_rows[i] for _, i in sorted(waiting)]
    assert list(map(repr, fed(Driver(box, (SCHEMA,), (None,), restart), given_rows, at))) == list(map(repr, expected))


# -- top ------------------------------------------------------------------------------------------------------------


def in_duckdb(sql: str, given_rows: Rows) -> Rows:
    if not given_rows:
        return []

    def literal(value: Any) -> str:
        return "null" if value is None else f"'{value}'"

    text = ", ".join(f"({i}, {', '.join(map(literal, row))})" for i, row in enumerate(given_rows))
    table = f"(select i, ts::bigint ts, k, x::double x, n::bigint n from (values {text}) as v(i, ts, k, x, n))"
    return duckdb.sql(sql.replace("TABLE", table)).fetchall()


@pytest.mark.parametrize("of", ["x", "n", "x + n"])
@given(data=st.data(), given_rows=rows, n=st.integers(1, 4), restart=st.integers(0, 4), desc=st.booleans())
def test_top_of_tumbling_windows(
    of: str, data: st.DataObject, given_rows: Rows, n: int, restart: int, desc: bool
) -> None:
    schedule = data.draw(schedules([[r[0] for r in given_rows]], SLACK))
    order = "desc" if desc else "asc"
    box = bound(Top, (SCHEMA,), ("ts",), n=n, of=of, by=["k"], window={"tumbling": "10ns"}, order=order)
    driver = play(Driver(box, (SCHEMA,), ("ts",), restart), (given_rows,), schedule)
    arrived = [given_rows[i] for _, chosen, _ in schedule for i in chosen]
    sql = f"""select ts, k, x, n, rank, ts // 10 * 10, ts // 10 * 10 + 10 from
                (select *, row_number() over (partition by k, ts // 10 order by ({of}) {order}, i) as rank
                 from TABLE where ({of}) is not null) where rank <= {n}"""
    assert sorted_rows(driver.rows()) == sorted_rows(in_duckdb(sql, arrived))
    assert driver.tally.late == 0 and driver.state.candidates.shape[1] == 0


@given(rows, cuts, st.integers(1, 3), st.integers(1, 7), st.integers(0, 3), st.booleans())
def test_top_of_windows_by_count(
    given_rows: Rows, at: list[int], n: int, count: int, restart: int, keyed: bool
) -> None:
    box = bound(Top, (SCHEMA,), (None,), n=n, of="x", by=["k"] if keyed else [], window={"count": count})
    got = fed(Driver(box, (SCHEMA,), (None,), restart), given_rows, at)
    key = "k" if keyed else "1"
    sql = f"""select ts, k, x, n, rank from
                (select *, row_number() over (partition by {key}, w order by x desc, i) as rank from
                  (select *, count(*) over (partition by {key}, w) as size from
                    (select *, (row_number() over (partition by {key} order by i) - 1) // {count} as w from TABLE))
                 where size = {count} and x is not null) where rank <= {n}"""
    assert sorted_rows(got) == sorted_rows(in_duckdb(sql, given_rows))


# -- resample -------------------------------------------------------------------------------------------------------

RIGHT = Schema.of(ts="timestamp", k="string?", y="double?", m="int")
BEFORE, AFTER = 7, 4

finite = st.sampled_from([0.0, 1.5, -2.0, 7.0, None])
left_rows = st.lists(st.tuples(st.integers(0, 16), st.sampled_from(["a", "b", None]), finite, st.just(1)), max_size=20)
right_rows = st.lists(
    st.tuples(st.integers(0, 16), st.sampled_from(["a", "b", None]), finite, st.integers(0, 9)), max_size=20
)


def around(row: tuple[Any, ...], right: Rows, method: str) -> Rows:
    """The right rows of the band in order of time, then of arrival."""
    after = 0 if method == "previous" else AFTER
    near = [r for r in right if r[1] is not None and r[1] == row[1] and row[0] - BEFORE <= r[0] <= row[0] + after]
    return sorted(near, key=lambda r: r[0])


def resampled(row: tuple[Any, ...], near: Rows, column: int, method: str) -> Any:
    if method == "mean":
        present = [r[column] for r in near if r[column] is not None]
        return sum(present) / len(present) if present else None
    before = [r for r in near if r[0] <= row[0]]
    if method == "previous":
        return before[-1][column] if before else None
    after = [r for r in near if r[0] > row[0]]
    if before and before[-1][0] == row[0]:
        value = before[-1][column]
        return None if value is None else float(value)
    if not before or not after or before[-1][column] is None or after[0][column] is None:
        return None
    (t0, v0), (t1, v1) = (before[-1][0], before[-1][column]), (after[0][0], after[0][column])
    return v0 + (v1 - v0) * ((row[0] - t0) / (t1 - t0))


@pytest.mark.parametrize("method", ["previous", "linear", "mean"])
@given(data=st.data(), left=left_rows, right=right_rows, restart=st.integers(0, 4))
def test_resample(method: str, data: st.DataObject, left: Rows, right: Rows, restart: int) -> None:
    schedule = data.draw(schedules([[r[0] for r in left], [r[0] for r in right]], SLACK))
    within = {"before": f"{BEFORE}ns", "after": f"{AFTER}ns"}
    fields = ["y", "m"]
    inputs = (SCHEMA, RIGHT)
    box = bound(Resample, inputs, ("ts", "ts"), on="l.k = r.k", fields=fields, method=method, within=within)
    driver = play(Driver(box, inputs, ("ts", "ts"), restart), (left, right), schedule)
    arrived = [right[i] for port, chosen, _ in schedule if port == 1 for i in chosen]
    expected = []
    for row in left:
        near = around(row, arrived, method)
        expected.append((*row, *(resampled(row, near, c, method) for c in (2, 3))))
    got = driver.rows()
    assert [r[0] for r in got] == sorted(r[0] for r in got)
    assert sorted_rows(map(rounded, got)) == sorted_rows(map(rounded, expected))
    assert all(held.index.live == 0 for held in driver.state.sides)


def rounded(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(round(v, 9) + 0.0 if isinstance(v, float) else v for v in row)
