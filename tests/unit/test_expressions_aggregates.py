"""Split aggregates: the calls, their types (Spark's), and the expression over their results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from catalog.errors import ExpressionError
from catalog.schema import Schema, Type
from engine.operators.expressions import AGGREGATES, Scope, Vector, split_aggregates
from storage.strings import StringPool

SCHEMA = Schema.of(
    ts="timestamp",
    symbol="string",
    price="double?",
    size="int",
    big="bigint",
    ratio="float",
    venue="string?",
    flag="boolean?",
)
GROUP = Schema.of(symbol="string", window_start="timestamp")


def calls(text: str) -> list[tuple[str, str, bool, tuple[Any, ...]]]:
    split = split_aggregates(text, SCHEMA, group=GROUP)
    return [(c.function, c.argument.text if c.argument else "*", c.distinct, c.parameters) for c in split.calls]


def test_vwap() -> None:
    split = split_aggregates("sum(price * size) / sum(size)", SCHEMA, group=GROUP)
    assert [(c.function, c.argument.text if c.argument else "", c.type) for c in split.calls] == [
        ("sum", "price * size", Type.DOUBLE),
        ("sum", "size", Type.BIGINT),
    ]
    assert split.names == ("#0", "#1") and split.type is Type.DOUBLE and split.nullable
    columns = {"#0": Vector(np.array([10.0, 3.0])), "#1": Vector(np.array([4, 0]))}
    scope = Scope(None, count=2, columns=columns)
    out = split.outer.evaluate(scope)
    assert out.values[0] == 2.5 and out.valid is not None and out.valid.tolist() == [True, False]
    assert scope.null_errors == 1


def test_group_fields_may_stand_outside_the_calls() -> None:
    split = split_aggregates("concat(symbol, ':', count(*))", SCHEMA, group=GROUP)
    assert split.fields == {"symbol"} and not split.nullable
    pool = StringPool(["ABC"])
    columns = {"symbol": Vector(np.array([0], np.int32), None, pool), "#0": Vector(np.array([7]))}
    out = split.outer.evaluate(Scope(None, count=1, columns=columns))
    assert out.pool is not None and out.pool.values[out.values[0]] == "ABC:7"
    assert split_aggregates("venue || count(*)", SCHEMA).fields == {"venue"}  # without a group the caller decides


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("count(*)", [("count", "*", False, ())]),
        ("count(size)", [("count", "*", False, ())]),  # it is never NULL
        ("count(1)", [("count", "*", False, ())]),
        ("count(price)", [("count", "price", False, ())]),
        ("count(distinct venue)", [("count", "venue", True, ())]),
        ("sum(distinct size)", [("sum", "size", True, ())]),
        ("min(distinct size)", [("min", "size", False, ())]),
        ("max(price) - min(price)", [("max", "price", False, ()), ("min", "price", False, ())]),
        ("sum(price * size) + sum(size * price)", [("sum", "price * size", False, ())]),
        ("stddev(price) + stddev_samp(price)", [("stddev_samp", "price", False, ())]),
        ("variance(size)", [("var_samp", "size", False, ())]),
        ("first(price)", [("first", "price", False, (False,))]),
        ("first(price, true)", [("first", "price", False, (True,))]),
        ("last(price ignore nulls)", [("last", "price", False, (True,))]),
        ("last(price) ignore nulls", [("last", "price", False, (True,))]),
        ("percentile(price, 0.9)", [("percentile", "price", False, (0.9,))]),
        ("percentile_approx(size, 0.5, 100)", [("percentile_approx", "size", False, (0.5, 100))]),
        ("approx_count_distinct(symbol)", [("approx_count_distinct", "symbol", False, ())]),
        ("string_agg(venue, ', ')", [("collect_list", "venue", False, (", ",))]),
        ("concat_ws('|', collect_list(venue))", [("collect_list", "venue", False, ("|",))]),
        ("any(flag) and every(flag)", [("bool_or", "flag", False, ()), ("bool_and", "flag", False, ())]),
        ("window_start", []),
    ],
)
def test_calls(text: str, expected: list[tuple[str, str, bool, tuple[Any, ...]]]) -> None:
    assert calls(text) == expected


@pytest.mark.parametrize(
    ("text", "kind", "nullable"),
    [
        ("count(*)", Type.BIGINT, False),
        ("sum(size)", Type.BIGINT, True),
        ("sum(big)", Type.BIGINT, True),
        ("sum(ratio)", Type.DOUBLE, True),
        ("avg(size)", Type.DOUBLE, True),
        ("min(symbol)", Type.STRING, True),
        ("max(ts)", Type.TIMESTAMP, True),
        ("min(ratio)", Type.FLOAT, True),
        ("median(size)", Type.DOUBLE, True),
        ("percentile(big, 0.5)", Type.DOUBLE, True),
        ("percentile_approx(size, 0.5)", Type.INT, True),
        ("first(flag)", Type.BOOLEAN, True),
        ("approx_count_distinct(ts)", Type.BIGINT, False),
        ("var_pop(ratio)", Type.DOUBLE, True),
        ("string_agg(symbol, ',')", Type.STRING, True),
        ("concat_ws(',', collect_list(symbol))", Type.STRING, False),
    ],
)
def test_types_are_spark_s(text: str, kind: Type, nullable: bool) -> None:
    split = split_aggregates(text, SCHEMA, group=GROUP)
    assert (split.type, split.nullable) == (kind, nullable)


def test_a_filter_is_an_argument_that_is_null() -> None:
    (call,) = split_aggregates("sum(size) filter (where symbol = 'A')", SCHEMA, group=GROUP).calls
    assert call.argument is not None
    pool = StringPool(["A", "B"])
    columns = {"size": Vector(np.array([3, 4], np.int32)), "symbol": Vector(np.array([0, 1], np.int32), None, pool)}
    out = call.argument.evaluate(Scope(None, count=2, columns=columns))
    assert out.values[0] == 3 and out.valid is not None and out.valid.tolist() == [True, False]
    (counted,) = split_aggregates("count(*) filter (where size > 1)", SCHEMA, group=GROUP).calls
    assert counted.function == "count" and counted.argument is not None and counted.argument.nullable


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        ("price", "price is neither inside an aggregate nor grouped by", "price"),
        ("sum(size) + venue", "venue is neither inside an aggregate nor grouped by", "venue"),
        ("sum(sum(size))", "an aggregate cannot contain another aggregate", "sum(size)"),
        ("sum(symbol)", "sum does not take a string", "sum"),
        ("sum()", "sum takes one argument: sum([distinct] x: number) -> bigint or double", "sum"),
        ("count(size, big)", "count takes one argument: count(* | [distinct] x: any) -> bigint", "count"),
        ("sum(size, 1)", "too many arguments: sum([distinct] x: number) -> bigint or double", "sum"),
        ("collect_list(size)", "arrays are not supported", "collect_list"),
        (
            "percentile(price, 2)",
            "the share is a number from 0 to 1: percentile(x: number, share: constant double) -> double",
            "percentile",
        ),
        (
            "percentile(price)",
            "the share is a number from 0 to 1: percentile(x: number, share: constant double) -> double",
            "percentile",
        ),
        (
            "percentile(price, size)",
            "this must be a constant: percentile(x: number, share: constant double) -> double",
            "size",
        ),
        ("stddev(distinct price)", "stddev_samp does not take distinct", "stddev"),
        ("sum(size) over (partition by symbol)", "window cannot be used in an expression", "sum"),
        ("first(price) filter (where flag)", "first with a filter must ignore nulls", "first"),
        ("suum(size)", "no function suum", "suum"),
        ("sum(syze)", "no field syze", "syze"),
        ("sum(null)", "a bare NULL has no type here", "sum"),
        ("bool_and(size)", "bool_and does not take an int", "bool_and"),
        ("count(distinct *)", "* cannot be used in an expression", "*"),
    ],
)
def test_refusals(text: str, message: str, place: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        split_aggregates(text, SCHEMA, group=GROUP)
    assert caught.value.message == message
    assert caught.value.offset == text.find(place)


def test_the_table_of_aggregates_is_complete() -> None:
    names = [name for a in AGGREGATES for name in (a.name, *a.aliases)]
    assert len(names) == len(set(names)) and all(a.description and a.signature for a in AGGREGATES)
