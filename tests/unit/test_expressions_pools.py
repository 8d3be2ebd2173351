"""String functions run once for each distinct value, stay right as pools grow, have limits, and are thread-safe."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import numpy as np
import pytest

from catalog.schema import Schema
from engine.operators.expressions import Scope, Vector, compile_expression
from engine.operators.expressions.kernels import pools
from engine.operators.expressions.kernels.combinations import MAX_CELLS, MAX_TABLES
from engine.operators.expressions.kernels.pools import text_table_run
from storage.strings import StringPool
from storage.train import Train

SCHEMA = Schema.of(s="string", t="string?")


def train(s: list[str], t: list[str | None] | None, left: StringPool, right: StringPool) -> Train:
    """Make a train over pools that outlive it, as those of a stream do."""
    t = t or [""] * len(s)
    valid = np.array([v is not None for v in t])
    codes = (left.encode(s), right.encode([v or "" for v in t]))
    return Train(
        SCHEMA, codes, np.zeros(len(s), np.int64), valid=(None, None if valid.all() else valid), pools=(left, right)
    )


def texts(vector: Vector) -> list[str | None]:
    assert vector.pool is not None
    known = vector.pool.values or [""]  # a column of NULLs may have an empty pool
    values = [known[code] for code in vector.values.tolist()]
    return values if vector.valid is None else [v if ok else None for v, ok in zip(values, vector.valid, strict=True)]


def run(text: str, rows: Train) -> list[Any]:
    vector = compile_expression(text, SCHEMA).evaluate(Scope(rows))
    if vector.pool is not None:
        return texts(vector)
    values = vector.values.tolist()
    return values if vector.valid is None else [v if ok else None for v, ok in zip(values, vector.valid, strict=True)]


def test_a_function_runs_once_for_each_distinct_string_as_the_pool_grows() -> None:
    seen: list[str] = []
    column = compile_expression("s", SCHEMA).node
    kernel = text_table_run(column, "count me", lambda text: (seen.append(text), text.upper())[1], SCHEMA["s"].type)
    left, right = StringPool(), StringPool()
    rows = train(["a", "b", "a"] * 100, None, left, right)
    assert texts(kernel(Scope(rows)))[:3] == ["A", "B", "A"]
    assert seen == ["a", "b"]
    more = train(["c", "a"], None, left, right)
    assert texts(kernel(Scope(more))) == ["C", "A"]
    assert seen == ["a", "b", "c"]
    assert texts(kernel(Scope(rows)))[:3] == ["A", "B", "A"]  # an older train over the grown pool


def test_equal_results_have_equal_codes() -> None:
    rows = train(["a", "A", "b"], None, StringPool(), StringPool())
    vector = compile_expression("upper(s)", SCHEMA).evaluate(Scope(rows))
    assert vector.values[0] == vector.values[1] != vector.values[2]
    assert run("upper(s) = 'A'", rows) == [True, True, False]
    assert run("upper(s) = 'ZZZ'", rows) == [False, False, False]


@pytest.mark.parametrize(
    "text",
    [
        "s = t",
        "s <> t",
        "s < t",
        "s >= t",
        "s <=> t",
        "concat(s, t)",
        "concat_ws('-', s, t)",
        "coalesce(t, s)",
        "greatest(s, t)",
        "if(s < t, s, t)",
        "nullif(s, t)",
        "instr(s, t)",
        "case when t is null then 'none' when s = t then s else upper(t) end",
        "s in (t, 'x')",
        "replace(s, t, '!')",
    ],
)
def test_two_pools_that_grow_apart_and_rotate(text: str) -> None:
    """Results over long-lived pools equal those over fresh pools, for every order of the strings."""
    left, right = StringPool(), StringPool()
    batches: list[tuple[list[str], list[str | None]]] = [
        (["a", "b"], ["b", None]),
        (["c", "a", "x"], ["a", "c", ""]),
        ([f"k{n}" for n in range(300)], [f"k{n % 7}" if n % 5 else None for n in range(300)]),
        (["b", "zz"], ["b", "a"]),
    ]
    for step, (s, t) in enumerate(batches):
        if step == 3:
            right = StringPool(["other", "order"])
        fresh = train(s, t, StringPool(), StringPool())
        assert run(text, train(s, t, left, right)) == run(text, fresh)


def test_one_pool_for_both_columns() -> None:
    shared = StringPool()
    rows = train(["a", "b"], ["a", None], shared, shared)
    assert run("s = t", rows) == [True, None]
    assert run("coalesce(t, s)", rows) == ["a", "b"]
    assert run("concat(s, t)", rows) == ["aa", None]


def test_a_column_of_nulls_may_have_an_empty_pool() -> None:
    codes = np.zeros(2, np.int32)
    empty = StringPool()
    rows = Train(
        SCHEMA,
        (StringPool(["a"]).encode(["a", "a"]), codes),
        np.zeros(2, np.int64),
        valid=(None, np.zeros(2, np.bool_)),
        pools=(StringPool(["a"]), empty),
    )
    for text in (
        "upper(t)",
        "s = t",
        "t < s",
        "concat(s, t)",
        "length(t)",
        "t like 'a%'",
        "nullif(t, s)",
        "cast(t as int)",
        "trim(t) = s",
    ):
        assert run(text, rows) == [None, None], text
    assert run("coalesce(t, s)", rows) == ["a", "a"]
    assert run("concat_ws('-', s, t)", rows) == ["a", "a"]
    assert run("t is null", rows) == [True, True]
    empty.code("late")  # its first entry must not be mistaken for the code 0 of before
    late = Train(SCHEMA, (codes, codes), np.zeros(2, np.int64), pools=(StringPool(["a"]), empty))
    assert run("upper(t)", late) == ["LATE", "LATE"]
    assert run("coalesce(t, s)", late) == ["late", "late"]
    assert run("concat(s, t)", late) == ["alate", "alate"]


def test_tables_are_bounded_in_number_and_freed_with_their_pool() -> None:
    left, right = StringPool(), StringPool()
    rows = train(["a"], ["b"], left, right)
    for n in range(200):
        assert run(f"concat(s, '{n}')", rows) == [f"a{n}"]
        assert run(f"concat(s, '{n}', t)", rows) == [f"a{n}b"]
        assert run(f"if(s = 'a', s, '{n}')", rows) == ["a"]
    kinds = {kind: kept for kind, kept in left._derived.items() if isinstance(kept, dict)}
    assert {kind: len(kept) <= 64 for kind, kept in kinds.items()} == dict.fromkeys(
        ("tables", "combinations", "merges"), True
    )
    assert len(kinds["combinations"]) <= MAX_TABLES
    values = run("upper(s)", rows)
    table = next(iter(kinds["tables"].values()))
    gone = weakref.finalize(table.parts[0], values.clear)
    del rows, left, right, table, kinds
    gc.collect()
    assert not gone.alive


def test_a_table_that_grows_too_large_is_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "MAX_TABLE_BYTES", 10_000)
    left, right = StringPool(), StringPool()
    s = [f"text {n}" for n in range(500)]
    for _ in range(2):
        rows = train(s, None, left, right)
        assert run("repeat(s, 20)", rows) == [text * 20 for text in s]
    table = next(iter(left.attach("tables", dict).values()))
    assert table.parts is None


def test_pools_too_large_for_a_table_of_pairs_still_work() -> None:
    count = 1_200
    assert count * count > MAX_CELLS
    s, t = [f"a{n}" for n in range(count)], [f"b{n % 1_100}" for n in range(count)]
    rows = train(s, list(t), StringPool(), StringPool())
    assert run("concat(s, t)", rows) == [a + b for a, b in zip(s, t, strict=True)]
    assert run("s < t", rows) == [True] * count


def test_results_have_a_limit() -> None:
    rows = train(["x" * 1_000, "y"], None, StringPool(), StringPool())
    assert [v and len(v) for v in run("repeat(s, 2000)", rows)] == [None, 2_000]
    assert [v and len(v) for v in run("replace(s, 'x', repeat('z', 2000))", rows)] == [None, 1]
    assert [v and len(v) for v in run("regexp_replace(s, 'x', repeat('z', 900))", rows)] == [900_000, 1]


def test_several_workers_over_pools_that_grow() -> None:
    left, right = StringPool(), StringPool()
    texts_ = ["concat(s, '-', t)", "upper(s) || t", "if(s < t, s, t)", "coalesce(nullif(s, t), 'same')"]
    expressions = [compile_expression(text, SCHEMA) for text in texts_]
    made = threading.Event()
    trains: list[Train] = []
    failures: list[str] = []

    def work() -> None:
        made.wait(10)
        for at in range(60):
            rows = trains[at]
            s, t = rows.to_pylist(0), rows.to_pylist(1)
            want = [
                [f"{a}-{b}" for a, b in zip(s, t, strict=True)],
                [a.upper() + b for a, b in zip(s, t, strict=True)],
                [min(a, b) for a, b in zip(s, t, strict=True)],
                ["same" if a == b else a for a, b in zip(s, t, strict=True)],
            ]
            for expression, expected in zip(expressions, want, strict=True):
                if texts(expression.evaluate(Scope(rows))) != expected:
                    failures.append(f"{expression} in train {at}")

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for at in range(60):
        rows = train(
            [f"s{(at + n) % (at + 3)}" for n in range(20)], [f"s{n % (at + 1)}" for n in range(20)], left, right
        )
        trains.append(rows)
    made.set()
    for worker in workers:
        worker.join()
    assert not failures
