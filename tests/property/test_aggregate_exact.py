"""Variance and the sign of a zero, in every kind of window and however the stream is divided.

The variance of equal values is exactly 0; of other values it is DuckDB's. Of 0.0 and -0.0, which are equal, min gives
-0.0 and max 0.0: the answer does not depend on trains and panes.
"""

from __future__ import annotations

import math
import random
from typing import Any

import duckdb
import pytest

from tests.property.aggregate_oracle import Arrival, Driver, Row

WINDOWS: dict[str, dict[str, Any]] = {
    "tumbling": {"tumbling": "50ns"},
    "sliding": {"sliding": "50ns", "advance": "10ns"},
    "tree": {"sliding": "64ns", "advance": "1ns"},
    "session": {"session": "15ns"},
    "count": {"count": 16, "advance": 4},
}
SPREADS = {f"{name}_{of}": f"{name}({of})" for name in ("var_pop", "variance", "stddev_pop", "stddev") for of in "vn"}
EXTREMES = {
    "least": "min(v)",
    "most": "max(v)",
    "plus": "sum(if(string(v) = '0.0', 1, 0))",
    "minus": "sum(if(string(v) = '-0.0', 1, 0))",
}
END_NS = 10_000


def feed(values: list[float | None], window: dict[str, Any], select: dict[str, str], train: int, **more: Any) -> Driver:
    """Run one key with a value at each 3 ns, divided into trains, restarted in the middle."""
    driver = Driver(None, window=window, by=["k"], select=select, bounds=["window_start", "window_end"], **more)
    rows: list[Row] = [(3 * at, "a", None, value, 7, None) for at, value in enumerate(values)]
    for start in range(0, len(rows), train):
        part = rows[start : start + train]
        if start >= len(rows) // 2 > start - train:
            driver.restart()
        driver.feed(Arrival(part, part[-1][0] - 5), None)
    driver.feed(Arrival([], END_NS), None)
    return driver


def results(driver: Driver, names: dict[str, str]) -> list[dict[str, Any]]:
    fields = driver.schema.names
    return [{n: v for n, v in zip(fields, row, strict=True) if n in names} for row in driver.rows()]


@pytest.mark.parametrize("train", [1, 7, 1_000])
@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
@pytest.mark.parametrize("value", [0.1, 1e200, -7.3e-5, 1e15 + 0.3])
def test_equal_values_have_no_variance(value: float, window: dict[str, Any], train: int) -> None:
    values = [None if at % 5 == 4 else value for at in range(60)]
    found = results(feed(values, window, SPREADS, train), SPREADS)
    assert found
    assert {value for row in found for value in row.values()} <= {0.0, None}
    assert any(row["var_pop_v"] == 0.0 for row in found)


@pytest.mark.parametrize("train", [1, 7, 1_000])
@pytest.mark.parametrize("window", ["sliding", "tree"])
def test_variance_is_duckdb_s(window: str, train: int) -> None:
    source = random.Random(7)
    values = [source.choice([None, source.gauss(1e9, 1), source.uniform(-1, 1), 1e9]) for _ in range(80)]
    size, advance = (50, 10) if window == "sliding" else (64, 1)
    driver = feed(values, WINDOWS[window], {name: call for name, call in SPREADS.items() if name.endswith("v")}, train)
    table = ", ".join(f"({3 * at}, {'null' if v is None else repr(v)}::double)" for at, v in enumerate(values))
    found = [dict(zip(driver.schema.names, row, strict=True)) for row in driver.rows()]
    assert len(found) > 20
    assert {(row["window_end"] - row["window_start"], row["window_start"] % advance) for row in found} == {(size, 0)}
    starts = ", ".join(f"({row['window_start']})" for row in found)
    names = ("var_pop", "variance", "stddev_pop", "stddev")
    wanted = duckdb.sql(
        f"select w.start, {', '.join(f'{name}(v)' for name in names)} from (values {starts}) w(start) "
        f"join (values {table}) t(ts, v) on ts >= w.start and ts < w.start + {size} group by w.start"
    ).fetchall()
    by_start = {start: answers for start, *answers in wanted}
    for row in found:
        answers = by_start[row["window_start"]]
        assert [row[f"{name}_v"] for name in names] == [
            None if w is None else pytest.approx(w, rel=1e-9) for w in answers
        ]


@pytest.mark.parametrize("train", [1, 3, 1_000])
@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
def test_the_sign_of_a_zero_does_not_depend_on_the_order(window: dict[str, Any], train: int) -> None:
    source = random.Random(3)
    signs: set[tuple[str, float]] = set()
    for others in ([-1.0], [1.0], []):
        values = [source.choice([0.0, -0.0, None, *others]) for _ in range(80)]
        for row in results(feed(values, window, EXTREMES, train), EXTREMES):
            if row["least"] == 0:
                assert math.copysign(1.0, row["least"]) == (-1.0 if row["minus"] else 1.0)
                signs.add(("least", math.copysign(1.0, row["least"])))
            if row["most"] == 0:
                assert math.copysign(1.0, row["most"]) == (1.0 if row["plus"] else -1.0)
                signs.add(("most", math.copysign(1.0, row["most"])))
    assert {("least", -1.0), ("most", 1.0)} <= signs


def test_open_windows_have_no_variance_either() -> None:
    found = results(feed([0.1] * 40, WINDOWS["tumbling"], SPREADS, 1, emit="update"), SPREADS)
    assert len(found) > 30 and {value for row in found for value in row.values()} <= {0.0, None}
