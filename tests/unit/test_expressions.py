"""An expression as its caller sees it: types, masks, constants, canonical keys, counted errors, names."""

from __future__ import annotations

import threading
import warnings
from contextvars import Context
from typing import Any

import numpy as np
import pytest

from catalog.errors import ExpressionError
from catalog.schema import Schema, Type
from engine.operators.expressions import FUNCTIONS, Expression, Scope, Vector, compile_expression, share
from engine.operators.expressions.tree.node import Node
from storage.train import Train

SCHEMA = Schema.of(
    ts="timestamp",
    symbol="string",
    price="double",
    size="int",
    big="bigint",
    venue="string?",
    extra="double?",
    flag="boolean",
)


def train(**columns: list[Any]) -> Train:
    rows = len(next(iter(columns.values())))
    blank = {"timestamp": 0, "string": "", "double": 0.0, "int": 0, "bigint": 0, "boolean": False}
    data = {f.name: columns.get(f.name, [blank[f.type]] * rows) for f in SCHEMA}
    return Train.from_pylists(SCHEMA, data, 0)


def run(text: str, rows: Train) -> list[Any]:
    expression = compile_expression(text, SCHEMA)
    return column(expression, expression.evaluate(Scope(rows)))


def column(expression: Expression, vector: Vector) -> list[Any]:
    values = vector.values.tolist()
    if vector.pool is not None:
        values = [vector.pool.values[code] for code in values]
    return values if vector.valid is None else [v if ok else None for v, ok in zip(values, vector.valid, strict=True)]


# -- the face -------------------------------------------------------------------------------------------------------


def test_an_expression_tells_its_type_and_fields() -> None:
    expression = compile_expression("price * size > 100000 and venue = 'N'", SCHEMA)
    assert expression.type is Type.BOOLEAN
    assert expression.nullable  # venue is
    assert expression.fields == {"price", "size", "venue"}
    assert not compile_expression("price * size", SCHEMA).nullable
    assert compile_expression("size + 1", SCHEMA).nullable  # it may overflow
    assert not compile_expression("cast(size as bigint) + 1", SCHEMA).nullable  # it cannot
    assert not compile_expression("hour(ts) * 60 + minute(ts)", SCHEMA).nullable


def test_a_mask_is_true_where_the_expression_is_true() -> None:
    rows = train(extra=[1.0, None, 3.0], price=[1.0, 1.0, -1.0])
    assert compile_expression("extra > 0", SCHEMA).mask(Scope(rows)).tolist() == [True, False, True]  # type: ignore[union-attr]
    assert compile_expression("not extra > 2", SCHEMA).mask(Scope(rows)).tolist() == [True, False, False]  # type: ignore[union-attr]
    assert compile_expression("extra > 2 or price > 0", SCHEMA).mask(Scope(rows)).tolist() == [True, True, True]  # type: ignore[union-attr]
    assert compile_expression("true", SCHEMA).mask(Scope(rows)) is None
    assert compile_expression("1 < 2 and 'a' = 'a'", SCHEMA).mask(Scope(rows)) is None
    assert compile_expression("false", SCHEMA).mask(Scope(rows)).tolist() == [False] * 3  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "text", ["1 + 1", "'a'", "null is null", "cast(null as string)", "price + 1", "symbol || 'x'", "1 / 0"]
)
@pytest.mark.parametrize("count", [0, 1, 5])
def test_vectors_have_full_length(text: str, count: int) -> None:
    rows = train(price=[1.0] * count)
    vector = compile_expression(text, SCHEMA).evaluate(Scope(rows))
    assert vector.values.shape == (count,)
    assert vector.valid is None or vector.valid.shape == (count,)


def test_a_column_without_nulls_has_no_validity_anywhere() -> None:
    rows = train(price=[1.0, 2.0], size=[1, 2])
    for text in (
        "price > 1",
        "price > 1 and size < 5",
        "price * size + 2",
        "case when price > 1 then size else 0 end",
        "upper(symbol)",
    ):
        assert compile_expression(text, SCHEMA).evaluate(Scope(rows)).valid is None, text


def test_expect_is_the_type_of_the_place() -> None:
    assert compile_expression("null", SCHEMA, expect=Type.INT).type is Type.INT
    with pytest.raises(ExpressionError, match="a boolean is expected here, this is a double"):
        compile_expression("price + 1", SCHEMA, expect=Type.BOOLEAN)


def test_a_comparison_with_a_constant_offers_itself_to_fused_chains() -> None:
    test = compile_expression("price > 100", SCHEMA).test
    assert test is not None and test.field == "price"
    values = np.array([99.0, 101.0, np.nan])
    mask = test.ufunc(values, test.value)
    assert (~mask if test.flip else mask).tolist() == [False, True, True]  # NaN is greatest
    assert compile_expression("price = double('nan')", SCHEMA).test is None
    assert compile_expression("price > 100 and size > 1", SCHEMA).test is None


# -- names ----------------------------------------------------------------------------------------------------------


def test_qualified_names() -> None:
    schema = Schema.of(**{"l.symbol": "string", "r.symbol": "string", "l.price": "double", "own": "int"})
    assert compile_expression("l.symbol = r.symbol", schema).fields == {"l.symbol", "r.symbol"}
    assert compile_expression("price > own", schema).fields == {"l.price", "own"}
    with pytest.raises(ExpressionError, match=r"symbol is ambiguous: l\.symbol, r\.symbol"):
        compile_expression("symbol = 'a'", schema)
    assert compile_expression("`l.price` > 1", schema).fields == {"l.price"}


def test_names_match_in_any_case_as_in_spark() -> None:
    assert compile_expression("PRICE + Size", SCHEMA).fields == {"price", "size"}
    both = Schema.of(a="int", A="int")
    assert compile_expression("a + A", both).fields == {"a", "A"}


# -- canonical keys -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("price*size", "size * price"),
        ("price > 100", "100.0 < price"),
        ("price > 1 and size > 2", "(size > 2) AND (price > 1) and price > 1"),
        ("size = 1 or (size = 2 or size = 3)", "(size = 3 or size = 2) or size = 1"),
        ("size = 1 or (size = 2 or size = 3)", "size = 1 or size = 2 or size = 3"),
        ("size + 1", "(1 + Size)"),
        ("size between 1 and 5", "size >= 1 and size <= 5"),
        ("1 + 2 * 3 < size", "size > 7"),
        ("size > 100", "size > 100.0"),
        ("nvl(extra, 0)", "coalesce(extra, 0.0)"),
    ],
)
def test_equal_meaning_has_one_key(left: str, right: str) -> None:
    assert compile_expression(left, SCHEMA).key == compile_expression(right, SCHEMA).key


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("price - size", "size - price"),
        ("size / 2", "size div 2"),
        ("symbol = '1'", "symbol = 'l'"),
        ("size + 1", "size + 1L"),
        ("cast(symbol as int)", "try_cast(symbol as int)"),
        ("symbol like 'a%'", "symbol like 'a_'"),
        ("upper('`symbol`')", "upper(symbol)"),
        ("round(price, 1)", "bround(price, 1)"),
        ("trim(symbol)", "ltrim(symbol)"),
    ],
)
def test_different_meaning_has_two(left: str, right: str) -> None:
    assert compile_expression(left, SCHEMA).key != compile_expression(right, SCHEMA).key


# -- sharing --------------------------------------------------------------------------------------------------------


def _count_runs(monkeypatch: pytest.MonkeyPatch, expressions: list[Expression], key: str) -> list[int]:
    """Count from now on how often the kernels of nodes with this key run."""
    runs = [0]
    for expression in expressions:
        for node in expression.node.walk():
            if node.key == key:
                monkeypatch.setattr(node, "run", _counted(node, runs))
    return runs


def _counted(node: Node, runs: list[int]) -> Any:
    inner = node.run

    def run(scope: Scope) -> Vector:
        runs[0] += 1
        return inner(scope)

    return run


def test_a_shared_subexpression_runs_once_for_each_scope(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["price * size > 10", "price * size < 90", "size * price + 1"]
    expressions = [compile_expression(text, SCHEMA) for text in texts]
    key = compile_expression("price * size", SCHEMA).key
    runs = _count_runs(monkeypatch, expressions, key)
    share(expressions)
    rows = train(price=[1.0, 30.0], size=[2, 2])
    scope = Scope(rows)
    assert [column(e, e.evaluate(scope)) for e in expressions] == [[False, True], [True, True], [3.0, 61.0]]
    assert runs == [1]
    expressions[0].evaluate(Scope(rows))
    assert runs == [2]


def test_a_mask_of_a_shared_conjunction_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    expressions = [compile_expression(f"(price + 1 > 2 and size > 1) or flag = {b}", SCHEMA) for b in ("true", "false")]
    runs = _count_runs(monkeypatch, expressions, compile_expression("price + 1", SCHEMA).key)
    share(expressions)
    scope = Scope(train(price=[2.0, 0.0], size=[2, 2], flag=[False, True]))
    assert expressions[0].mask(scope).tolist() == [True, True]  # type: ignore[union-attr]
    assert expressions[1].mask(scope).tolist() == [True, False]  # type: ignore[union-attr]
    assert runs == [1]


# -- counted errors -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "errors"),
    [
        ("size + 1", 1),
        ("size * 2", 1),
        ("price / size", 1),
        ("size % 0", 4),
        ("cast(big as int)", 2),
        ("cast(price as int)", 2),
        ("-big", 1),
        ("extra / 0", 3),  # not where extra is NULL already
        ("size <> 0 and price / size > 1", 0),
        ("size = 0 or price / size > 1", 0),
        ("case when size = 0 then 0 else price / size end", 0),
        ("case when size <> 0 then price / size end", 0),
        ("if(size = 0, null, price / size)", 0),
        ("coalesce(extra, price / size)", 0),
        ("coalesce(price / size, 0)", 1),
        ("case when flag then size + 1 when size < 5 then 1 / size else 2 end", 2),
        ("1 / 0", 4),
    ],
)
def test_overflow_and_division_by_zero_are_counted_for_rows_that_sql_evaluates(text: str, errors: int) -> None:
    rows = train(
        size=[2**31 - 1, 0, 1, 2],
        price=[1.0, 1e10, float("nan"), 2.0],
        big=[-(2**63), 2**40, 7, 0],
        extra=[1.0, 2.0, 3.0, None],
        flag=[True, False, False, False],
    )
    scope = Scope(rows)
    compile_expression(text, SCHEMA).evaluate(scope)
    assert scope.null_errors == errors


def test_a_failure_of_a_shared_subexpression_is_counted_once_for_rows_that_use_it() -> None:
    texts = ["case when flag then size + 1 else 0 end", "size + 1 > 0 and flag", "(size + 1) * 2.0"]
    expressions = [compile_expression(text, SCHEMA) for text in texts]
    share(expressions)
    top = 2**31 - 1
    scope = Scope(train(size=[top, top, 1], flag=[True, False, True]))
    counts = []
    for expression in expressions * 2:
        expression.evaluate(scope)
        counts.append(scope.null_errors)
    assert counts == [1, 2, 2, 2, 2, 2]


def test_the_caller_may_limit_the_rows_that_count_errors() -> None:
    scope = Scope(train(size=[0, 0, 1]))
    scope.active = np.array([True, False, True])
    compile_expression("1 / size", SCHEMA).evaluate(scope)
    assert scope.null_errors == 1


def test_a_value_under_null_cannot_fail() -> None:
    schema = Schema.of(a="int?", b="int?")
    valid = np.array([False, True])
    garbage = np.array([2**31 - 1, 1], np.int32)
    rows = Train(schema, (garbage, garbage), np.zeros(2, np.int64), valid=(valid, valid))
    scope = Scope(rows)
    vector = compile_expression("(a + b) * a + a % (b - 2147483647)", schema).evaluate(scope)
    assert scope.null_errors == 0
    assert vector.valid is not None and vector.valid.tolist() == [False, True]


def test_floating_point_flags_cause_no_warning_in_any_thread() -> None:
    rows = train(price=[0.0, -1.0, 1e308], size=[0, 1, 2])
    caught: list[warnings.WarningMessage] = []

    def work() -> None:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            for text in (
                "price / size",
                "sqrt(price)",
                "ln(price)",
                "price * 1e308",
                "cast(price as int)",
                "price % size",
                "exp(price)",
            ):
                compile_expression(text, SCHEMA).evaluate(Scope(rows))
            caught.extend(seen)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not caught, [str(w.message) for w in caught]


def test_floating_point_flags_cause_no_warning_after_an_errstate_of_a_caller() -> None:
    def work() -> None:
        expression = compile_expression("price / size", SCHEMA)
        rows = train(price=[1.0], size=[0])
        with np.errstate(all="ignore"):
            expression.evaluate(Scope(rows))
        expression.evaluate(Scope(rows))
        assert np.geterr()["divide"] == "ignore"

    Context().run(work)


# -- a scope of one's own -------------------------------------------------------------------------------------------


def test_a_scope_takes_columns_from_its_caller() -> None:
    expression = compile_expression("a + b", Schema.of(a="double", b="double"))
    scope = Scope(None, count=2, columns={"a": Vector(np.array([1.0, 2.0])), "b": Vector(np.array([0.5, 0.5]))})
    assert expression.evaluate(scope).values.tolist() == [1.5, 2.5]


def test_timestamps_keep_their_nanoseconds() -> None:
    rows = train(ts=[1_582_982_055_123_456_789])
    assert run("ts + interval 1 second", rows) == [1_582_982_056_123_456_789]
    assert run("cast(ts as string)", rows) == ["2020-02-29 13:14:15.123456789"]
    assert run("cast(cast(ts as string) as timestamp) = ts", rows) == [True]
    assert run("date_format(ts, 'SSSSSSSSS')", rows) == ["123456789"]
    assert run("date_trunc('second', ts)", rows) == [1_582_982_055_000_000_000]


def test_a_time_beyond_64_bits_is_null() -> None:
    scope = Scope(rows := train(ts=[2**63 - 1, 0], big=[10**18, 1]))
    assert run("ts + interval 1 day", rows) == [None, 86_400_000_000_000]
    assert run("timestamp_seconds(big)", rows) == [None, 10**9]
    assert run("ts + interval 1 month", rows)[0] is None
    compile_expression("ts + interval 1 year", SCHEMA).evaluate(scope)
    assert scope.null_errors == 1


def test_the_table_of_functions_is_complete() -> None:
    functions = {id(f): f for f in FUNCTIONS.values()}.values()
    assert len(functions) >= 100
    for function in functions:
        assert function.signature.text.startswith(function.name + "(")
        assert function.description
        assert function.signature.least <= function.signature.most
