"""The python box: what a function sees, what it may give, and whom its exceptions cost."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.schema import Schema
from engine.operators.boxes.base import Tally
from engine.operators.boxes.python import DEAD_KEPT, Python
from storage.train import Train

SCHEMA = Schema.of(n="int", x="double?", s="string?", t="string", ts="timestamp")
ROWS = {"n": [1, 2, 3], "x": [0.5, None, 2.5], "s": ["a", None, "b"], "t": ["p", "q", "p"], "ts": [10, 20, 30]}
MODULE = "functions_of_a_test"

Function = Callable[[dict[str, Any]], dict[str, Any]]


@pytest.fixture(autouse=True, scope="module")
def module() -> Iterator[None]:
    sys.modules[MODULE] = ModuleType(MODULE)
    yield
    del sys.modules[MODULE]


def run(function: Function, out: dict[str, str], train: Train | None = None) -> tuple[list[Train], Tally, Any]:
    sys.modules[MODULE].f = function  # type: ignore[attr-defined]
    box = Python(Python.parameters_model(call=f"{MODULE}:f", schema=out))
    box.bind((SCHEMA,), (None,))
    state, tally, trains = box.new_state(), Tally(), []
    train = Train.from_pylists(SCHEMA, ROWS, [7, 8, 9]).with_watermark(5) if train is None else train
    box.run(state, 0, train, lambda port, t: trains.append(t), tally)
    for t in trains:
        t.verify()
    return trains, tally, state


def test_what_a_function_sees() -> None:
    seen: dict[str, Any] = {}

    def look(columns: dict[str, Any]) -> dict[str, Any]:
        seen.update(columns)
        return {"n": columns["n"]}

    run(look, {"n": "int"})
    assert seen["n"].tolist() == [1, 2, 3] and seen["n"].dtype == np.int32
    assert seen["x"].tolist() == [0.5, None, 2.5] and isinstance(seen["x"], np.ma.MaskedArray)
    assert seen["s"].tolist() == ["a", None, "b"] and seen["t"].tolist() == ["p", "q", "p"]
    assert seen["ts"].tolist() == [10, 20, 30]
    with pytest.raises(ValueError, match="read-only"):
        seen["n"][0] = 9


def test_what_a_function_may_give() -> None:
    def give(columns: dict[str, Any]) -> dict[str, Any]:
        return {
            "a": columns["n"] * 2,
            "b": np.ma.MaskedArray(columns["n"], [False, True, False]),
            "c": ["x", None, "x"],
            "d": np.array([True, False, True]),
            "e": [1, None, 2**40],
        }

    [train], tally, _ = run(give, {"a": "bigint", "b": "int?", "c": "string?", "d": "boolean", "e": "bigint?"})
    assert train.to_rows() == [(2, 1, "x", True, 1), (4, None, None, False, None), (6, 3, "x", True, 2**40)]
    assert train.arrival_ns.tolist() == [7, 8, 9] and train.watermark_ns == 5
    assert (tally.dead, tally.filtered) == (0, 0)


@pytest.mark.parametrize(
    ("given_value", "kind"),
    [
        ([1, 2, 3, 4, 5], "int"),
        ([[1], [2], [3]], "int"),
        ([1, None, 3], "int"),
        ([1, 2, 2**40], "int"),
        ([1.5, 2.5, 3.5], "int"),
        (["1", "2", "3"], "int"),
        ([1, 2, 3], "string"),
        (["a", None, "b"], "string"),
    ],
)
def test_a_result_that_does_not_fit_is_dead(given_value: Any, kind: str) -> None:
    def give(columns: dict[str, Any]) -> dict[str, Any]:
        return {"a": given_value}

    trains, tally, state = run(give, {"a": kind})
    assert not trains and tally.dead == 3 and len(state.dead) == 3


@pytest.mark.parametrize("result", [{}, {"a": [1], "b": [1]}, None, {"a": [1, 2, 3], "_index": ["x"]}])
def test_a_result_of_the_wrong_form_is_dead(result: Any) -> None:
    trains, tally, _ = run(lambda columns: result, {"a": "int"})
    assert not trains and tally.dead == 3


def test_fewer_and_more_rows() -> None:
    def some(columns: dict[str, Any]) -> dict[str, Any]:
        index = np.flatnonzero(columns["n"] != 2)
        return {"n": columns["n"][index], "_index": index}

    [train], tally, _ = run(some, {"n": "int"})
    assert train.to_rows() == [(1,), (3,)] and train.arrival_ns.tolist() == [7, 9] and tally.filtered == 1
    [train], tally, _ = run(lambda c: {"n": np.repeat(c["n"], 2), "_index": [0, 0, 1, 1, 2, 2]}, {"n": "int"})
    assert train.count == 6 and tally.filtered == -3


@given(st.lists(st.integers(0, 9), min_size=1, max_size=60), st.sets(st.integers(0, 9), max_size=4))
def test_only_the_rows_at_fault_are_dead(values: list[int], faulty: set[int]) -> None:
    def pick(columns: dict[str, Any]) -> dict[str, Any]:
        if faulty & set(columns["n"].tolist()):
            raise KeyError("faulty")
        return {"n": columns["n"]}

    rows = {"n": values, "x": [None] * len(values), "s": [""] * len(values), "t": [""] * len(values)}
    train = Train.from_pylists(SCHEMA, rows | {"ts": list(range(len(values)))}, 0)
    trains, tally, state = run(pick, {"n": "int"}, train)
    good = [v for v in values if v not in faulty]
    assert [row[0] for t in trains for row in t.to_rows()] == good
    assert tally.dead == len(values) - len(good) and tally.filtered == 0
    assert [d.row["n"] for d in state.dead] == [v for v in values if v in faulty][-DEAD_KEPT:]
    assert all(d.why.endswith(" raised KeyError: 'faulty'") for d in state.dead)


def test_a_negative_index_is_refused() -> None:
    """numpy takes it for a row from the end; the box must not give a result the arrival of another row."""
    trains, tally, state = run(lambda c: {"n": c["n"], "_index": [0, 1, -1]}, {"n": "int"})
    assert not trains and tally.dead == 3
    assert "positions from 0" in state.dead[-1].why


def test_a_function_that_exits_costs_the_rows_at_fault() -> None:
    def exits(columns: dict[str, Any]) -> dict[str, Any]:
        if (columns["n"] == 2).any():
            sys.exit(1)
        return {"n": columns["n"]}

    trains, tally, _ = run(exits, {"n": "int"})
    assert [n for t in trains for n in t.to_pylist(0)] == [1, 3]
    assert tally.dead == 1
