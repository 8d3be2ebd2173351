"""Many filters on one stream: looked up together, they give the rows and the counts that they give one by one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import duckdb
import numpy as np
import pytest

from catalog.readings import ArcReading, BoxReading
from catalog.schema import Schema
from engine.operators.expressions import compile_expression
from engine.run import constant_index
from engine.run.constant_index import best_test
from qos_monitor.conservation import arc_residual, box_residual
from storage.strings import StringPool
from storage.train import Train
from tests.unit.shed_harness import Shedder, shedder

SCHEMA = "ts: timestamp, small: int?, big: bigint, price: double?, name: string?, size: int"
BIG = 2**62


@pytest.fixture(autouse=True)
def few_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constant_index, "FEWEST", 4)


def draw_rule(random: Random) -> str:
    """A predicate with a comparison that can be looked up, or without one."""
    column = random.choice(["small", "big", "price", "name"])
    value: Any = {
        "small": random.randint(-20, 20),
        "big": random.choice([random.randint(-20, 20), BIG, -BIG, 2**63 - 1]),
        "price": random.choice([0.0, 1.5, -2.25, 1e300, float(random.randint(-5, 5))]),
        "name": f"'{random.choice('abcdefgh')}'",
    }[column]
    op = random.choice(["=", "=", "=", "=", "<", ">", ">=", "<="] if column != "name" else ["="])
    rule = f"{column} {op} {value}"
    more = random.choice(
        ["", "", " and size > 50", " and size > 50 and name = 'a'", " or size = 3", " and 10 / size > 1"]
    )
    return f"({rule}){more}"


def draw_rows(random: Random, count: int) -> dict[str, list[Any]]:
    nan, inf = math.nan, math.inf
    return {
        "ts": [i * 10**6 for i in range(count)],
        "small": [random.choice([None, *range(-25, 25), 2**31 - 1, -(2**31)]) for _ in range(count)],
        "big": [random.choice([*range(-25, 25), BIG, -BIG, 2**63 - 1, -(2**63)]) for _ in range(count)],
        "price": [random.choice([None, nan, inf, -inf, 0.0, -0.0, 1.5, -2.25, 1e300, 3.0, -4.0]) for _ in range(count)],
        "name": [random.choice([None, *"abcdefghij"]) for _ in range(count)],
        "size": [random.randint(0, 100) for _ in range(count)],
    }


def network(rules: list[str], stream: str = "", boxes: str = "") -> str:
    filters = "".join(f'  q{i}: {{filter: s, where: "{rule}"}}\n' for i, rule in enumerate(rules))
    outputs = "".join(f"  o{i}: {{from: q{i}}}\n" for i in range(len(rules)))
    return (
        "engine: {share: false}\n"
        f"streams: {{s: {{schema: {{{SCHEMA}}}{stream}}}}}\nboxes:\n{filters}{boxes}outputs:\n{outputs}"
        + ("  all: {from: more}\n" if boxes else "")
    )


@contextmanager
def without_index(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setattr(constant_index, "FEWEST", 10**9)
        yield


def is_indexed(s: Shedder) -> bool:
    return s.engine.ingress._ways[0].constants is not None


Counts = list[tuple[str, int, int, int, int]]


def counts(s: Shedder) -> Counts:
    boxes: list[BoxReading] = s.engine.readings.boxes()
    arcs: list[ArcReading] = s.engine.readings.arcs()
    assert not any(map(box_residual, boxes)) and not any(map(arc_residual, arcs))
    taken = [(b.name, b.tuples_in, b.tuples_out, b.filtered, b.null_errors) for b in boxes]
    return taken + [(a.name, a.enqueued, a.dequeued, 0, 0) for a in arcs]


def run(text: str, data: dict[str, list[Any]], trains: list[int]) -> tuple[dict[str, Any], Counts, bool]:
    with shedder(text) as s:
        stream = s.network.stream("s")
        whole = Train.from_pylists(stream.schema, data, 0)
        at = 0
        for size in trains:
            s.engine.ingress.admit(0, whole.slice(at, at + size))
            at += size
        s.engine.drain(60)
        return {name: list(rows) for name, rows in s.rows.items()}, counts(s), is_indexed(s)


@pytest.mark.parametrize("seed", range(8))
def test_rows_and_counts_are_those_of_filters_that_run_alone(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    rules = [draw_rule(random) for _ in range(random.choice([60, 200]))]
    data = draw_rows(random, 600)
    trains = []
    while sum(trains) < 600:
        trains.append(min(random.choice([1, 2, 7, 60, 300]), 600 - sum(trains)))
    got = run(network(rules), data, trains)
    with without_index(monkeypatch):
        alone = run(network(rules), data, trains)
    assert (got[2], alone[2]) == (True, False)
    assert repr(got[:2]) == repr(alone[:2])  # NaN is not equal to itself


def test_rows_are_duckdbs() -> None:
    random = Random(99)
    rules = [r for r in (draw_rule(random) for _ in range(300)) if "/" not in r][:150]
    data = draw_rows(random, 400)
    rows, _, indexed = run(network(rules), data, [150, 1, 249])
    assert indexed
    database = duckdb.connect()
    database.execute("create table s (ts bigint, small int, big bigint, price double, name text, size int)")
    database.executemany("insert into s values (?, ?, ?, ?, ?, ?)", list(zip(*data.values(), strict=True)))
    for i, rule in enumerate(rules):
        expected = database.execute(f"select * from s where {rule} order by ts").fetchall()
        assert repr(rows[f"o{i}"]) == repr(expected), rule


def test_a_filter_without_a_match_is_not_called() -> None:
    rules = [f"big = {i}" for i in range(100)]
    data = draw_rows(Random(1), 50)
    data["big"] = [3] * 50
    with shedder(network(rules)) as s:
        assert is_indexed(s)
        s.engine.ingress.admit(0, Train.from_pylists(s.network.stream("s").schema, data, 0))
        s.engine.drain(60)
        boxes = {b.name: b for b in s.engine.readings.boxes()}
        assert len(s.rows["o3"]) == 50
        assert [b.calls for b in boxes.values()] == [int(n == 3) for n in range(100)]
        assert all(b.tuples_in == 50 for b in boxes.values())
        assert boxes["q7"].filtered == 50


def test_windows_behind_a_filter_without_matches_still_close() -> None:
    """A train that brings nothing to a filter brings its watermark."""
    rules = [f"big = {i}" for i in range(40)]
    windows = "".join(
        f"  w{i}: {{aggregate: q{i}, window: {{tumbling: 1s}}, by: [], select: {{n: count(*)}}}}\n" for i in range(40)
    )
    filters = "".join(f'  q{i}: {{filter: s, where: "{rule}"}}\n' for i, rule in enumerate(rules))
    outputs = "".join(f"  o{i}: {{from: w{i}}}\n" for i in range(40))
    text = (
        f"engine: {{share: false}}\nstreams: {{s: {{schema: {{{SCHEMA}}}, time: ts, slack: 0s}}}}\n"
        f"boxes:\n{filters}{windows}outputs:\n{outputs}"
    )
    with shedder(text) as s:
        assert is_indexed(s)
        data = draw_rows(Random(1), 4)
        data["ts"] = [0, 1, 2, 5 * 10**9]
        data["big"] = [1, 1, 2, 3]
        train = Train.from_pylists(s.network.stream("s").schema, data, 0)
        s.engine.ingress.admit(0, train.with_watermark(5 * 10**9))
        s.engine.drain(60)
        assert [row[-1] for row in s.rows["o1"]] == [2]
        assert [row[-1] for row in s.rows["o2"]] == [1]


def test_an_arc_that_drops_leaves_the_index_and_comes_back() -> None:
    rules = [f"big = {i}" for i in range(50)]
    with shedder(network(rules)) as s:
        columns = draw_rows(Random(1), 100)
        columns["big"] = list(range(50)) * 2
        train = Train.from_pylists(s.network.stream("s").schema, columns, 0)
        s.engine.ingress.admit(0, train)
        s.shed({"s->q7": ("random", 0.5)})
        index = s.engine.ingress._ways[0].constants
        assert index is not None and len(index.arcs) == 49
        s.engine.ingress.admit(0, train)
        s.shed({})
        s.engine.ingress.admit(0, train)
        s.engine.drain(60)
        boxes = {b.name: b for b in s.engine.readings.boxes()}
        assert boxes["q3"].tuples_in == 300 and boxes["q3"].tuples_out == 6
        assert boxes["q7"].tuples_in < 300
        counts(s)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("big = 3", "big"),
        ("3 = big", "big"),
        ("size > 4 and big = 3", "big"),
        ("size > 4 and price < 3.0", "size"),
        ("name = 'a' and upper(name) = 'A'", "name"),
        ("big = 3 or size = 4", None),
        ("not (big = 3)", None),
        ("big = 3 and 10 / size > 1", None),
        ("big + 1 = 3", None),
        ("big = size", None),
    ],
)
def test_the_comparison_that_is_looked_up(text: str, expected: str | None) -> None:
    test = best_test(compile_expression(text, Schema.of(big="bigint", size="int", price="double", name="string")))
    assert (None if test is None else test.field) == expected


def test_a_pool_that_grows_and_another_pool() -> None:
    schema = Schema.of(name="string")
    rules = [compile_expression(f"name = 'n{i}'", schema) for i in range(20)]
    index = constant_index.ConstantIndex(
        schema, [constant_index.IndexedFilter(i, r, False) for i, r in enumerate(rules)]
    )

    def arcs(pool: StringPool, texts: list[str]) -> dict[int, int]:
        train = Train(schema, (pool.encode(texts),), np.zeros(len(texts), np.int64), pools=(pool,))
        return {arc: part.count for part_arcs, part in index.split(train) for arc in part_arcs}

    first = StringPool()
    assert arcs(first, ["x", "n3", "n3"]) == {3: 2}
    assert arcs(first, ["n4", "x", "n3", "y"]) == {4: 1, 3: 1}
    assert arcs(StringPool(), ["n19", "n1"]) == {19: 1, 1: 1}
    assert [index.skipped(slot) for slot in (0, 3, 4)] == [9, 6, 8]
