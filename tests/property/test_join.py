"""Joins against DuckDB: any rows, any split, any interleaving within the slack, restarted in the middle."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.schema import Schema
from engine.operators.boxes.bsort import Bsort
from engine.operators.boxes.join import Join
from storage.train import NO_WATERMARK, Train
from tests.property.box_harness import END, Driver, Rows, bound, play, schedules, sorted_rows, tiny, train_of

pytestmark = pytest.mark.usefixtures("low_thresholds")


@pytest.fixture(scope="module")
def low_thresholds() -> Iterator[None]:
    with tiny():
        yield


LEFT = Schema.of(ts="timestamp", k="string?", x="double?", n="int")
RIGHT = Schema.of(ts="timestamp", k="string?", y="double?")
SLACK = 3
BEFORE, AFTER = 4, 2

keys = st.sampled_from(["a", "b", "c", None])
numbers = st.sampled_from([0.0, -0.0, 1.5, 2.0, float("nan"), None])
times = st.integers(0, 16)
left_rows = st.lists(st.tuples(times, keys, numbers, st.integers(0, 3)), max_size=25)
right_rows = st.lists(st.tuples(times, keys, numbers), max_size=25)

types = st.sampled_from(["inner", "left", "right", "full"])

ON = {
    "equal": "l.k = r.k",
    "residual": "l.k = r.k and l.x > r.y",
    "two keys": "l.k = r.k and r.y = l.x",
    "number": "l.x = r.y",
    "mixed types": "l.n = r.y",
    "expressions": "upper(l.k) = upper(r.k) and l.x + l.n >= 1",
    "no key": "l.x < r.y",
    "nothing": None,
}


DB = duckdb.connect()
COLUMNS = {"l": "ts bigint, k varchar, x double, n int", "r": "ts bigint, k varchar, y double"}


def literal(value: Any) -> str:
    if value is None:
        return "null"
    return f"'{value}'" + ("::double" if isinstance(value, float) else "")


def in_duckdb(sql: str, left: Rows, right: Rows) -> Rows:
    for name, rows in (("l", left), ("r", right)):
        DB.execute(f"create or replace temp table {name} ({COLUMNS[name]})")
        if rows:
            values = ", ".join(f"({', '.join(map(literal, row))})" for row in rows)
            DB.execute(f"insert into {name} values {values}")
    return DB.execute(sql).fetchall()


def condition(on: str | None) -> str:
    return f"({on or 'true'}) and r.ts >= l.ts - {BEFORE} and r.ts <= l.ts + {AFTER}"


@pytest.mark.parametrize("on", ON.values(), ids=ON)
@given(data=st.data(), left=left_rows, right=right_rows, restart=st.integers(0, 4), type=types)
def test_band_join(on: str | None, data: st.DataObject, left: Rows, right: Rows, restart: int, type: str) -> None:
    sql = f"select l.ts, l.k, l.x, l.n, r.ts, r.k, r.y from l {type} join r on {condition(on)}"
    within = {"before": f"{BEFORE}ns", "after": f"{AFTER}ns"}
    schedule = data.draw(schedules([[r[0] for r in left], [r[0] for r in right]], SLACK))
    box = bound(Join, (LEFT, RIGHT), ("ts", "ts"), on=on, within=within, type=type)
    driver = play(Driver(box, (LEFT, RIGHT), ("ts", "ts"), restart), (left, right), schedule)
    assert sorted_rows(driver.rows()) == sorted_rows(in_duckdb(sql, left, right))
    assert driver.tally.late == 0
    assert all(held.index.live == 0 for held in driver.state.sides)


@given(data=st.data(), left=left_rows, right=right_rows, restart=st.integers(0, 4), type=types)
def test_a_bsort_behind_a_join_puts_all_in_order(
    data: st.DataObject, left: Rows, right: Rows, restart: int, type: str
) -> None:
    """The watermark of the join says what may still come, and a bsort behind it goes by that, not by its slack."""
    schedule = data.draw(schedules([[r[0] for r in left], [r[0] for r in right]], SLACK))
    select = {"ts": "r.ts" if type == "right" else "l.ts", "x": "l.x", "y": "r.y"}
    if type == "full":
        type = "left"  # the result of a full join has no event time
    join = bound(Join, (LEFT, RIGHT), ("ts", "ts"), on="l.k = r.k", within=f"{BEFORE}ns", type=type, select=select)
    (schema,) = join.bind((LEFT, RIGHT), ("ts", "ts"))
    ordered = bound(Bsort, (schema,), ("ts",), slack="1ns")
    assert ordered.runs_behind((join.runs_behind((False, False)),)) is False
    sorter = Driver(ordered, (schema,), ("ts",), restart)
    driver = Driver(join, (LEFT, RIGHT), ("ts", "ts"), restart)
    empties: list[tuple[int, list[int], int]] = [(port, [], END) for port in (0, 1)]
    for port, chosen, watermark_ns in [*schedule, *empties]:
        before = len(driver.out[0])
        driver.feed(port, train_of(driver.inputs[port], [(left, right)[port][i] for i in chosen], watermark_ns))
        for train in driver.out[0][before:]:
            sorter.feed(0, train.with_watermark(NO_WATERMARK))
        sorter.feed(0, Train.empty(schema, driver.promised_ns))
    sorter.end()
    times = [row[0] for row in sorter.rows()]
    assert times == sorted(times)
    fields = ", ".join(f"{text} as {name}" for name, text in select.items())
    sql = f"select {fields} from l {type} join r on l.k = r.k and abs(l.ts - r.ts) <= {BEFORE}"
    assert sorted_rows(sorter.rows()) == sorted_rows(in_duckdb(sql, left, right))


@given(st.data(), left_rows, right_rows)
def test_select_names_the_fields(data: st.DataObject, left: Rows, right: Rows) -> None:
    schedule = data.draw(schedules([[r[0] for r in left], [r[0] for r in right]], SLACK))
    select = {"when": "r.ts", "key": "upper(l.k)", "sum": "x + r.y", "missing": "y is null"}
    box = bound(Join, (LEFT, RIGHT), ("ts", "ts"), on="l.k = r.k", within="3ns", type="left", select=select)
    driver = play(Driver(box, (LEFT, RIGHT), ("ts", "ts"), 3), (left, right), schedule)
    sql = "select r.ts, upper(l.k), x + y, y is null from l left join r on l.k = r.k and abs(l.ts - r.ts) <= 3"
    assert sorted_rows(driver.rows()) == sorted_rows(in_duckdb(sql, left, right))


def asof_in_python(left: Rows, right: Rows, order: list[int], within: int | None, outer: bool) -> Rows:
    """For equal times DuckDB takes any; here the last to arrive counts."""
    out: list[tuple[Any, ...]] = []
    for row in left:
        fits = [
            (right[i][0], place, right[i])
            for place, i in enumerate(order)
            if row[1] is not None
            and right[i][1] == row[1]
            and right[i][0] <= row[0]
            and (within is None or right[i][0] >= row[0] - within)
        ]
        if fits:
            out.append(row + max(fits, key=lambda f: f[:2])[2])
        elif outer:
            out.append((*row, None, None, None))
    return out


@given(st.data(), left_rows, right_rows, st.sampled_from([None, 0, 5]), st.booleans(), st.integers(0, 4))
def test_asof_join_with_ties(
    data: st.DataObject, left: Rows, right: Rows, within: int | None, outer: bool, restart: int
) -> None:
    schedule = data.draw(schedules([[r[0] for r in left], [r[0] for r in right]], SLACK))
    settings: dict[str, Any] = {"on": "l.k = r.k", "asof": True, "type": "left" if outer else "inner"}
    if within is not None:
        settings["within"] = f"{within}ns"
    box = bound(Join, (LEFT, RIGHT), ("ts", "ts"), **settings)
    driver = play(Driver(box, (LEFT, RIGHT), ("ts", "ts"), restart), (left, right), schedule)
    order = [i for port, chosen, _ in schedule if port == 1 for i in chosen]
    assert sorted_rows(driver.rows()) == sorted_rows(asof_in_python(left, right, order, within, outer))


@given(st.data(), left_rows, st.lists(st.tuples(keys, numbers), max_size=25))
def test_asof_join_as_duckdb_has_it(data: st.DataObject, left: Rows, values: Rows) -> None:
    right = [(2 * i, *value) for i, value in enumerate(values)]  # no two at one time
    schedule = data.draw(schedules([[r[0] for r in left], [r[0] for r in right]], SLACK))
    box = bound(Join, (LEFT, RIGHT), ("ts", "ts"), on="r.k = l.k", asof=True, type="left")
    driver = play(Driver(box, (LEFT, RIGHT), ("ts", "ts")), (left, right), schedule)
    sql = "select l.ts, l.k, x, n, r.ts, r.k, y from l asof left join r on l.k = r.k and l.ts >= r.ts"
    assert sorted_rows(driver.rows()) == sorted_rows(in_duckdb(sql, left, right))


@given(st.data(), left_rows, right_rows)
def test_by_arrival(data: st.DataObject, left: Rows, right: Rows) -> None:
    """Without a time field the arrival counts; here every tuple has its own."""
    schedule = data.draw(schedules([[r[0] for r in left], [r[0] for r in right]], 0))
    box = bound(Join, (LEFT, RIGHT), (None, None), on="l.k = r.k", within="5ns", type="full")
    driver = Driver(box, (LEFT, RIGHT), (None, None), 2)
    for port, chosen, watermark_ns in schedule:
        part = [(left, right)[port][i] for i in chosen]
        driver.feed(port, train_of(driver.inputs[port], part, watermark_ns, [row[0] for row in part]))
    driver.end()
    sql = "select l.ts, l.k, x, n, r.ts, r.k, y from l full join r on l.k = r.k and abs(l.ts - r.ts) <= 5"
    assert sorted_rows(driver.rows()) == sorted_rows(in_duckdb(sql, left, right))
    for train in driver.out[0]:
        for row, arrival_ns in zip(train.to_rows(), train.arrival_ns.tolist(), strict=True):
            assert arrival_ns == max(t for t in (row[0], row[4]) if t is not None)
