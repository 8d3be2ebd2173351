"""The compiler refuses all but checked scalar expressions, with the place of the error and, if it knows one, a hint."""

from __future__ import annotations

import sys

import pytest

from catalog.errors import ExpressionError
from catalog.schema import Schema
from engine.operators.expressions import Scope, compile_expression
from engine.operators.expressions.compiler.parse import MAX_DEPTH, MAX_NESTING, MAX_NODES, MAX_TEXT_CHARS
from engine.operators.expressions.tree.node import MAX_KEY_CHARS
from storage.train import Train

SCHEMA = Schema.of(
    ts="timestamp", symbol="string", price="double", size="int", big="bigint", venue="string?", flag="boolean"
)


def refused(text: str) -> ExpressionError:
    with pytest.raises(ExpressionError) as caught:
        compile_expression(text, SCHEMA)
    assert caught.value.text == text
    assert 0 <= caught.value.offset <= len(text)
    return caught.value


@pytest.mark.parametrize(
    ("text", "message", "place", "hint"),
    [
        ("prise > 1", "no field prise", "prise", "did you mean price?"),
        ("price > 1 and syze = 2", "no field syze", "syze", "did you mean size?"),
        ("uper(symbol)", "no function uper", "uper", "did you mean upper?"),
        ("price + symbol", "+ takes numbers, not string", "price", "write cast(... as double)"),
        ("1 + (flag * 2)", "* takes numbers, not boolean", "flag", ""),
        ("size and flag", "and takes booleans, not int", "size", "compare it with something, or cast it"),
        ("flag > 1", "> cannot compare boolean with int", "flag", "cast one of them"),
        ("ts > 5", "> cannot compare timestamp with int", "ts", "cast one of them"),
        ("ts + 5", "timestamp + int is not defined", "ts", "write ts + interval 5 seconds"),
        ("size > '1.5'", "'1.5' would be truncated to the int 1", "size", "write it without quotes"),
        ("size > 'abc'", "'abc' is not an int, so > would be NULL for every tuple", "size", ""),
        ("ts > 'yesterday'", "'yesterday' is not a timestamp, so > would be NULL for every tuple", "ts", ""),
        ("size in (1, '2')", "in mixes int and string", "size", "cast one of them"),
        (
            "greatest(size, symbol)",
            "greatest mixes int and string",
            "greatest",
            "cast one of them",
        ),
        (
            "coalesce(flag, size)",
            "coalesce mixes boolean and int",
            "coalesce",
            "cast one of them",
        ),
        (
            "substring(symbol)",
            "substring takes 2 to 3 arguments, not 1: substring(text: string, start: int[, length: int]) -> string",
            "symbol",
            "",
        ),
        ("pi(1)", "pi takes no arguments, not 1: pi() -> double", "pi", ""),
        ("sum(size) > 1", "sum is an aggregate; it belongs in the select of an aggregate box", "sum", ""),
        ("symbol like venue", "the pattern of like must be a constant", "symbol", ""),
        ("symbol rlike '(?=a)'", "the pattern '(?=a)' looks ahead with (?=, which RE2 cannot", "symbol", ""),
        (
            "symbol rlike '(a)\\\\1'",
            "the pattern '(a)\\\\1' has the backreference \\1, which RE2 does not have",
            "symbol",
            "",
        ),
        (
            "cast(size as decimal(3,2))",
            "there is no type decimal(3, 2)",
            "size",
            "the types are boolean, int, bigint, float, double, string, timestamp",
        ),
        ("timestamp '2020-13-01'", "'2020-13-01' is not a timestamp", "'2020-13-01'", ""),
        ("interval 5 seconds", "an interval cannot be a column", "", None),
        ("ts - ts", "an interval cannot be a column", "", None),
        ("interval '5 seconds 3' + ts", "'5 seconds 3' is not an interval", "'5 seconds 3'", None),
        ("ts + interval 5 nanoseconds", "an interval has no unit nanosecond", "ts", None),
        ("null", "a bare NULL has no type here", "", "write cast(null as ...)"),
        (
            "99999999999999999999",
            "99999999999999999999 does not fit a bigint",
            "9",
            "write 99999999999999999999.0 for a double",
        ),
        ("1e999", "1e999 does not fit a double", "1e999", ""),
        (
            "now() > ts",
            "no function now",
            "now",
            "expressions read neither the clock nor random numbers: a replay would give another answer",
        ),
        ("rand() < 0.5", "no function rand", "rand", None),
        ("current_timestamp > ts", "no field current_timestamp", "current_timestamp", None),
        ("price is nan", "IS takes NULL, NOT NULL, TRUE or FALSE", "price", ""),
        ("date_trunc('fortnight', ts)", "date_trunc has no unit 'fortnight'", "date_trunc", None),
        ("date_format(ts, 'qq')", "the format 'qq' has the unknown part 'qq'", "date_format", None),
        ("round(price, size)", "the digits of round must be a constant integer", "round", ""),
        ("lpad(symbol, 99999999, 'x')", "lpad makes at most 1048576 characters", "lpad", ""),
        ("price >", "something is missing after '>'", ">", ""),
        ("(price", "expecting ) after 'price'", "price", ""),
        ("price)", "unexpected ')': write one SQL scalar expression", ")", ""),
        ("price size", "unexpected 'size': write one SQL scalar expression", "size", ""),
        ("'open", "a quote is not closed", "'open", ""),
        ("price; size", "one expression is expected here, without a semicolon", ";", ""),
        ("", "the expression is empty", "", ""),
        ("  \n ", "the expression is empty", "", ""),
    ],
)
def test_refused_with_message_place_and_hint(text: str, message: str, place: str, hint: str | None) -> None:
    error = refused(text)
    assert error.message == message
    assert error.offset == text.find(place)
    assert hint is None or error.hint == hint


@pytest.mark.parametrize(
    "text",
    [
        "(select 1)",
        "price in (select 1)",
        "exists (select 1)",
        "select price",
        "select 1 from t",
        "drop table t",
        "insert into t values (1)",
        "create table t (a int)",
        "set x = 1",
        "price as p",
        "*",
        "symbol.*",
        "count(*)",
        "f(x -> x + 1)",
        "transform(price, x -> x)",
        "filter(price, x -> true)",
        "symbol.__class__",
        "price.__class__.__mro__",
        "__import__('os').system('id')",
        "eval('1')",
        "exec('1')",
        "open('/etc/passwd')",
        "lambda x: x",
        "symbol[0]",
        "symbol.upper()",
        "struct(1).a",
        "array(1, 2)",
        "(1, 2)",
        "[1]",
        "{x}",
        "@x",
        "$x",
        "?",
        ":p",
        "x -> 1",
        "price over (partition by symbol)",
        "row_number() over ()",
        "price at time zone 'UTC'",
        "price between symmetric 1 and 2",
        "symbol like any ('a', 'b')",
        "price = all (1)",
        "upper(distinct symbol)",
        "upper(a => symbol)",
        "symbol ? 'a'",
        "price::date",
        "cast(price as array<int>)",
        "x'1F'",
        "0x1F",
        "reflect('java.lang.System', 'exit', 1)",
        "java_method('a', 'b')",
        "input_file_name()",
        "symbol is json",
        "price ** 2",
        "price // 2",
        "if price then 1",
        "case end",
        "1_000 + 'a'",
        "0b11 + 1",
    ],
)
def test_what_is_not_a_scalar_expression_is_refused(text: str) -> None:
    refused(text)


@pytest.mark.parametrize(
    "text",
    [
        "x" * (MAX_TEXT_CHARS + 1),
        "(" * 100_000 + "1" + ")" * 100_000,
        "(" * (MAX_NESTING + 1) + "1" + ")" * (MAX_NESTING + 1),
        "(" * 4_000,
        "[" * 4_000,
        "not " * 2_000 + "flag",
        "- " * 4_000 + "1",
        "~" * 4_000 + "1",
        "case when flag then " * 400,
        "abs(" * 100 + "1" + ")" * 100,
        "size" + " + size" * 1_000,
        "symbol" + " || symbol" * 700,
        "size" + " - 1" * (MAX_DEPTH + 1),
        "size in (" + ", ".join(["1"] * MAX_NODES) + ")",
        "a." * 2_000 + "b",
        "9" * 8_000,
        "1e" + "9" * 8_000,
        "interval " * 500,
        "cast(" * 60 + "1" + " as int)" * 60 + " + " * 60,
    ],
)
def test_limits_hold_before_the_stack_overflows(text: str) -> None:
    depth = sys.getrecursionlimit()
    refused(text)
    assert sys.getrecursionlimit() == depth


def test_long_chains_of_and_and_or_compile() -> None:
    text = " or ".join(f"size = {k}" for k in range(500))
    assert compile_expression(text, SCHEMA).fields == {"size"}
    text = " and ".join(f"size <> {k}" for k in range(500))
    assert compile_expression(text, SCHEMA).fields == {"size"}


def test_expressions_just_inside_the_limits_compile() -> None:
    nested = "(" * (MAX_NESTING - 1) + "size" + ")" * (MAX_NESTING - 1)
    assert compile_expression(nested, SCHEMA).fields == {"size"}
    summed = "size" + " + 1D" * (MAX_DEPTH - 10)
    assert compile_expression(summed, SCHEMA).fields == {"size"}


def test_nothing_is_logged_by_the_parser(caplog: pytest.LogCaptureFixture) -> None:
    for text in ("if a then b", "alter table t", "call f(1)", "explain select 1"):
        refused(text)
    assert not caplog.records


@pytest.mark.parametrize(
    "text",
    [
        "abs(" * 31 + "size" + ")" * 31,
        "nullif(" * 31 + "size" + ", 1)" * 31,
        "pmod(" * 31 + "size" + ", 7)" * 31,
        "case " * 31 + "size" + " when 1 then 2 when 3 then 4 end" * 31,
        "(" * 31 + "size" + " in (1, 2, 3, size))::int" * 31,
        "concat(symbol, " * 31 + "symbol" + ")" * 31,
        "case when flag then " + "abs(" * 30 + "size" + ")" * 30 + " end",
    ],
)
def test_time_is_linear_in_size_although_a_part_is_used_twice(text: str) -> None:
    """In exponential time this test would not end."""
    rows = Train.from_pylists(SCHEMA, {f.name: ["a"] if f.type == "string" else [1] for f in SCHEMA}, 0)
    expression = compile_expression(text, SCHEMA)
    assert expression.evaluate(Scope(rows)).values.shape == (1,)
    assert all(len(node.key) <= MAX_KEY_CHARS for node in expression.node.walk())
