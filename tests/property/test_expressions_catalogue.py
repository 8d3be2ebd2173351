"""A large fixed catalogue of expressions, held against what Spark 4.3 with ``ansi`` off answered over the same rows.

The answers are in ``expressions_spark_answers.json``, so that this runs without a JVM. ``test_expressions_spark.py`` asks
Spark again and fails when the file is out of date; run as a script, it writes the file.

Where our meaning differs from Spark's on purpose, the entry is a pair (ours, the Spark text with our meaning):
- integer overflow is NULL here and wraps in Spark: ``a + b`` is ``try_add(a, b)``, ``cast`` is ``try_cast``;
- a literal with a point is a double here and a decimal in Spark: ``1.5`` is ``1.5D`` where the type shows.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from catalog.schema import Schema, Type
from engine.expressions import Scope, compile_expression
from storage.train import Train

ANSWERS = Path(__file__).with_name("expressions_spark_answers.json")
COUNT = 60
SCHEMA = Schema.of(
    b="boolean?", c="boolean", i="int?", j="int", k="int", n="bigint?", m="bigint", f="float?", x="double?", y="double",
    s="string?", t="string", u="string?", d="string", ts="timestamp?", at="timestamp",
)  # fmt: skip

_NAN, _INF = math.nan, math.inf
_CYCLES: dict[str, list[Any]] = {  # of lengths without a common factor, so that the rows pair values in many ways
    "b": [True, False, None],
    "c": [True, True, False, False, True],
    "i": [0, 1, -1, 7, None, -7, 100, 2147483647, -2147483648, 12, 5],
    "j": [3, -3, 0, 1, 2147483647, -1, -2147483648],
    "k": [0, 1, 2, 3, -1, -2, 5, 10, 40, 70, 100, -100, 7],
    "n": [0, None, 9223372036854775807, -9223372036854775808, 10**12, -5, 3, 2**53 + 1],
    "m": [1, -1, 0, 4294967296, 9007199254740993, -9223372036854775808, 3037000500],
    "f": [0.0, 1.5, None, -2.25, _NAN, 0.1, _INF, -_INF, 16777216.0, 3.0, -0.0],
    "x": [0.0, 1.0, -1.5, None, _NAN, _INF, -_INF, 2.675, 0.5, -0.5, 1e300, 1e-5, 123456.789],
    "y": [2.0, 0.0, -3.0, _NAN, 0.1, 1e10, -0.0, 5.0, _INF, 1.25, 2.5],
    "s": ["", "abc", "ABC", None, "hello world", " pad ", "aXbXc", "ünïcödé", "😀a", "100", "1.5", "a%b_c", "line\nbreak"],
    "t": ["abc", "", "b", "xyz", "hello", "X", "10", "true", "é", "zzz", "a"],
    "u": ["a", None, "", "abc", " "],
    "d": ["2020-01-02 03:04:05.123456", "12", "-7.9", "abc", "1e3", "true", " 42 ", "NaN", "2147483648", "2020-02-30", "2021",
          "", "+5", "inf", "0x10", "2020-05-03T01:02:03+02:00", "."],
    "ts": [0, 1577836800000000, None, 1582982055123456, -1500000, 951782400000000, 1609632855999999, -86400000000,
           1230768000000001, 4102444799999999, 1583020800000000],  # microseconds
    "at": [1577836799999999, 1600000000000000, 86399999999, -1, 1614556800000000, 1709208000123000, 1e15],
}  # fmt: skip


def columns() -> dict[str, list[Any]]:
    """The rows by column; timestamps in microseconds, which both engines hold."""
    data = {name: [cycle[row % len(cycle)] for row in range(COUNT)] for name, cycle in _CYCLES.items()}
    data["at"] = [int(value) for value in data["at"]]
    return data


def train() -> Train:
    data = columns()
    for name in ("ts", "at"):
        data[name] = [None if v is None else v * 1_000 for v in data[name]]
    return Train.from_pylists(SCHEMA, data, 0)


Entry = str | tuple[str, str]


def _pairs(template: str, lefts: str, rights: str, ops: str) -> list[Entry]:
    return [template.format(a=a, b=b, op=op) for a in lefts.split() for b in rights.split() for op in ops.split()]


_TRY = {"+": "try_add", "-": "try_subtract", "*": "try_multiply"}
ARITHMETIC: list[Entry] = [
    *((f"{a} {op} {b}", f"{_TRY[op]}({a}, {b})")
      for a, b in ("ij", "ik", "kj", "im", "nm", "nk", "mi") for op in "+-*"),
    *((f"{a} {op} {c}", f"{_TRY[op]}({a}, {c})")
      for a in "in" for op in "+-*" for c in ("1", "-1", "2147483647", "100000", "3L", "-2147483648")),
    *((f"{c} {op} {a}", f"{_TRY[op]}({c}, {a})") for a in "in" for op in "+-*" for c in ("1", "7", "-2")),
    *_pairs("{a} {op} {b}", "x f", "y f i n", "+ - *"),
    *_pairs("{a} {op} {b}", "i n x f", "k m y f", "/ %"),
    *_pairs("{a} {op} 3", "i n x f", "_", "/ %"),
    *_pairs("{a} {op} 0", "i x", "_", "/ %"),
    "i div k", "i div 2", "i div 0", "k div -1", "i div -3", "n div 7",
    "n div 5",
    "mod(i, 5)", "pmod(k, 3)", "pmod(k, -3)", "pmod(x, 2D)", "-x", "-f", "-k", "+x",
    ("-i", "try_subtract(0, i)"), ("-n", "try_subtract(0L, n)"), ("abs(i)", "if(i = -2147483648, null, abs(i))"),
    "abs(x)", "abs(k)", ("negative(i)", "try_subtract(0, i)"), ("x * 1.5", "x * 1.5D"), ("i * 1.5", "i * 1.5D"),
    ("(i + 1) * 2 - j", "try_subtract(try_multiply(try_add(i, 1), 2), j)"), "x / y + 1D", "k * 2 + 1", "k % 7 * 3",
    "try_divide(i, k)", "i & j", "i | k", "k ^ 3", "~k", "n & m", "1 << 3", "shiftleft(k, 2)", "shiftright(i, 1)", "k << 33",
]  # fmt: skip
COMPARISON: list[Entry] = [
    *_pairs("{a} {op} {b}", "i x", "j y", "= <> < > <= >= <=>"),
    *_pairs("{a} {op} {b}", "x f", "f n", "= < >= <=>"),
    *_pairs("{a} {op} {b}", "i n x f", "0 1 -1.5D 2147483647", "= <> < > <= >="),
    *_pairs("{b} {op} {a}", "i x", "3 0.5D", "= <> < > <= >= <=>"),
    *_pairs("{a} {op} {b}", "s t", "t u s 'abc'", "= <> < > <= >= <=>"),
    *_pairs("{a} {op} {b}", "b", "c true null", "= <> < > <= >= <=>"),
    *_pairs("{a} {op} {b}", "ts", "at", "= <> < > <= >= <=>"),
    "ts > timestamp '2020-01-01'", "ts > '2020-01-01'", "'2020-02-29 13:14:15.123456' = ts", "ts <=> null",
    "d > 10", "d = 12", "10 < d", "d > 1.5D", "d = true", "d <=> 42", "i > '5'", "x < '1.5'", "b = 'true'", "d = ts", "d < n",
    "i between 0 and 10", "x between -1 and y", "i not between j and 100", "s between 'a' and 'b'", "i between null and 3",
    "ts between '2020-01-01' and '2020-12-31'", "x = double('nan')", "x < double('nan')", "x >= double('nan')",
    "y > double('inf')", "i is distinct from j", "s is not distinct from u", "f = 0.1D", "f = 0.1F", "f > 1", "n > f",
    "n = 9007199254740993", "n = x", "m = 9007199254740992D",
]  # fmt: skip
LOGIC: list[Entry] = [
    *_pairs("{a} {op} {b}", "b c", "c b null true false", "and or"),
    "not b", "not c", "not (b and c)", "not null", "b is null", "b is not null", "b is true", "b is false", "b is not true",
    "b is not false", "i > 0 and x > 0", "i > 0 or x > 0", "i > 0 and (x > 0 or s = 'abc') and not b", "b and b", "b or not b",
    "i is null or i > 5", "k <> 0 and i / k > 1", "k = 0 or i / k > 1", "x is null", "s is not null and length(s) > 2",
    "b = c or c", "(i > 0) = (x > 0)", "(i > 0) <=> (x > 0)",
    "i in (1, 7, 100)", "i in (1, 2, 3, 4, 5, 6, 7, 8)", "i not in (1, 7)", "i in (1, null)", "i not in (1, null)",
    "i in (0, 1, 2, 3, 7, 100, null)", "x in (1, 2.5D, -1.5D, 3, 4, 5)", "s in ('abc', 'ABC')", "i in (j, k)", "n in (3, 0)",
    "s in ('a', 'b', 'abc', '', 'hello world', 'q')", "s in (t, u)", "b in (true)", "b in (true, false)", "null in (1, 2)",
    "ts in (timestamp '1970-01-01 00:00:00', timestamp '2020-01-01 00:00:00')", "i in (1)", "x in (1, 0.5D)",
]  # fmt: skip
CONDITIONAL: list[Entry] = [
    "case when i > 0 then 'pos' when i < 0 then 'neg' else 'zero' end", "case when i > 0 then i end", "case when b then x else y end",
    "case i when 1 then 'one' when 7 then 'seven' end", "case s when 'abc' then 1 when t then 2 else 3 end",
    "case when b then 1 when c then 2L else 3.5D end", "case when b then s when c then t else 'none' end",
    "case when b then null else i end", ("case when null then 1 else 2 end", "case when boolean(null) then 1 else 2 end"), "case when true then k end",
    "case when k <> 0 then i / k end", "case when i is null then -1 else i end", "case when b then i else 'text' end",
    "if(b, i, j)", "if(b, s, t)", "if(i > 0, x, null)", "if(null, 1, 2)", "if(b, 1, 2.5D)", "if(c, ts, at)", "if(b, i, s)",
    "coalesce(i, j)", "coalesce(s, u, t)", "coalesce(null, i, 0)", "coalesce(s, 'N/A')", "coalesce(x, i)", "coalesce(b, c)",
    "coalesce(i, s)", "coalesce(ts, at)", "coalesce(n, i, f)", "nvl(i, 0)", "ifnull(s, t)", "nvl2(i, 'yes', 'no')",
    "nullif(i, 7)", "nullif(s, 'abc')", "nullif(s, t)", "nullif(x, y)", "nullif(i, x)", "isnull(i)", "isnotnull(s)",
    "nullifzero(k)", "zeroifnull(i)", "zeroifnull(x)",
    "greatest(i, j)", "least(i, j, k)", "greatest(x, y)", "least(x, y)", "greatest(x, null, i)", "least(f, x)", "greatest(s, t)",
    "least(s, u, t)", "greatest(b, c)", "least(b, c)", "greatest(ts, at)", "least(ts, at)", "greatest(null, i)",
    "nanvl(x, 0)", "nanvl(x, y)", "nanvl(f, 1)", "isnan(x)", "isnan(f)", "isnan(i)",
]  # fmt: skip
MATHS: list[Entry] = [
    *(f"{name}({arg})" for name in ["sqrt", "cbrt", "exp", "expm1", "ln", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "degrees", "radians", "sign", "rint"] for arg in ("x", "y", "i")),
    "pow(x, 2)", "pow(y, x)", "pow(k, 0.5D)", "power(2, k)", "atan2(x, y)", "hypot(x, y)", "log(2, x)", "log(x, y)", "log(10, k)",
    "pi()", "e()", "pi() * x", "signum(k)",
    *(f"round({a}, {d})" for a in "xyf" for d in (0, 1, 2, 5, -1, -3)), "round(x)", "round(y)", "round(k)", "round(k, 2)",
    *(f"bround({a}, {d})" for a in "xy" for d in (0, 1, 2, -1)), "round(k, -1)", "bround(k, -1)", "round(m % 100000, -2)",
    "round(x * 100D) / 100D", "round(2.675D, 2)", "round(1.005D, 2)", "round(k / 8, 2)", "round(k / 4, 1)", "round(-k / 8, 2)",
    ("floor(x)", "if(isnan(x) or abs(x) >= 1e18D, null, floor(x))"), ("ceil(x)", "if(isnan(x) or abs(x) >= 1e18D, null, ceil(x))"),
    "floor(i)", "ceil(k)", "floor(k / 3)", "ceiling(k / 3)", "floor(-2.5D)", ("floor(f)", "if(isnan(f) or abs(f) >= 1e18D, null, floor(f))"),
]  # fmt: skip
TEXT: list[Entry] = [
    *(f"{name}({a})" for name in ["upper", "lower", "initcap", "length", "trim", "ltrim", "rtrim", "reverse", "ascii", "char_length", "octet_length"]
      for a in "stu"),
    "length(i)", "upper(concat(s, t))", "length(trim(s))", "upper(lower(s))",
    *(f"substring({a}, {p}, {n})" for a in "s" for p in (0, 1, 2, 3, -1, -3, -10, 100) for n in (0, 1, 2, 7, -1, 2147483647)),
    "substring(s, 2)", "substr(s, -2)", "substring(s, k)", "substring(s, k, 2)", "substring(s from 2 for 3)", "substring(t, 1, k)",
    *(f"{name}(s, {n})" for name in ("left", "right") for n in (0, 1, 2, 3, 100, -1, "k")),
    "concat(s, t)", "concat(s, '-', t)", "concat(s, t, u)", "s || t", "s || '!' || i", "concat('a', 'b')", "concat(s)", "concat(s, i, b)",
    "concat(s, null)", "concat_ws('-', s, t)", "concat_ws(',', s, u, t)", "concat_ws(u, s, t)", "concat_ws('-', 'a', null)",
    "concat_ws('|', s, i)", "concat_ws('-')",
    "replace(s, 'X', 'yy')", "replace(s, 'a', '')", "replace(s, '', 'z')", "replace(s, t, 'Q')", "replace(s, 'b')", "replace(t, 'l', 'LL')",
    "translate(s, 'abc', 'xy')", "translate(s, 'aa', 'xy')", "translate(t, 'lo', '01')", "overlay(s, 'ZZ', 2)", "overlay(s, 'ZZ', 2, 4)",
    "overlay(s, '', 1, 1)", "overlay(t, 'Q', 1, 0)",
    "instr(s, 'b')", "instr(s, t)", "instr(s, '')", "locate('b', s)", "locate('o', s, 6)", "locate(t, s)", "locate('', s, 3)",
    "locate('a', s, k)", "position('b' in s)", "position('b', s)", "locate('l', t, 0)", "locate('l', t, 4)",
    "startswith(s, 'a')", "startswith(s, t)", "endswith(s, 'c')", "endswith(s, u)", "contains(s, 'b')", "contains(s, t)",
    "startswith(s, '')", "contains(s, null)",
    *(f"{name}({a}, {n}, {p})" for name in ("lpad", "rpad") for a in "st" for n in (0, 2, 5, 8, -1) for p in ("'*'", "'ab'", "''")),
    "lpad(s, 6)", "rpad(t, 4)", "lpad(s, k, t)", "rpad('', 3, 'x')",
    "repeat(s, 2)", "repeat(t, 0)", "repeat(t, -1)", "repeat(t, k % 4)", "space(3)", "space(k % 5)",
    *(f"split_part(s, '{d}', {p})" for d in ("X", " ", "b", "") for p in (1, 2, 3, -1, -2, 9)), "split_part('a.b.c', '.', 2)",
    "split_part(s, t, 1)", *(f"substring_index(s, 'X', {n})" for n in (0, 1, 2, 5, -1, -2)), "substring_index(t, 'l', 1)",
    "trim('a', s)", "trim(both 'ab' from s)", "trim(leading 'a' from s)", "trim(trailing 'c' from s)", "ltrim('x', t)", "rtrim('zx', t)",
    "btrim(s)", "trim(t, s)", "trim('', s)", "chr(k + 60)", "char(65)", "chr(k)", "chr(300)", "ascii('😀')",
]  # fmt: skip
PATTERNS: list[Entry] = [
    *(f"s like '{p}'" for p in ("a%", "%c", "%b%", "abc", "a_c", "_b_", "%", "", "a%c", "%a%c%", "%%", "a\\\\%b\\\\_c", "%\\n%", "___")),
    "s not like 'a%'", "s like 'a!%b%' escape '!'", "s not like 'a%' escape '!'", "s ilike 'ABC'", "s ilike 'a_c'", "s not ilike 'A%'",
    "s like null", "t like 'h%o'", "u like '_'", "i like '1%'", "lower(s) like 'abc'",
    *(f"s rlike '{p}'" for p in ("^a", "c$", "b", "[0-9]+", "^$", "(?i)abc", "a.c", "a|h", "\\\\d", "^[a-z ]+$", "X.X", "\\\\bworld", "ü")),
    "s not rlike '^a'", "regexp_like(s, 'b')", "s regexp 'b'", "regexp_count(s, '[a-c]')", "regexp_count(t, 'l')",
    "regexp_extract(s, '([a-z]+) ([a-z]+)', 2)", "regexp_extract(s, '(\\\\d+)')", "regexp_extract(s, '[a-z]+', 0)",
    "regexp_extract(s, '(x)?b', 1)", "regexp_replace(s, '[aX]', '<$0>')", "regexp_replace(s, '(.)b', '$1-')",
    "regexp_replace(s, 'b', '\\\\$')", "regexp_replace(t, '', '-')", "regexp_replace(t, 'l+', 'L')", "regexp_replace(s, '\\\\s', '')",
]  # fmt: skip
_FIELDS = ["year", "quarter", "month", "day", "dayofmonth", "dayofweek", "weekday", "dayofyear", "weekofyear", "hour", "minute", "second"]
TIMES: list[Entry] = [
    *(f"{name}({a})" for name in _FIELDS for a in ("ts", "at")), "year('2020-03-04')", "hour(d)",
    *(f"date_trunc('{unit}', {a})" for a in ("ts", "at") for unit in
      ["year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond", "microsecond", "mon", "yyyy"]),
    *(f"extract({unit} from ts)" for unit in ["year", "quarter", "month", "week", "day", "dow", "doy", "hour", "minute"]), "date_part('hour', ts)",
    ("extract(second from ts)", "cast(extract(second from ts) as double)"),
    *(f"{name}({a})" for name in ["unix_seconds", "unix_millis", "unix_micros", "unix_timestamp"] for a in ("ts", "at")),
    "timestamp_seconds(k)", "timestamp_seconds(i)", "timestamp_millis(k)", "timestamp_micros(m % 1000000000)", "timestamp_seconds(k * 0.25D)",
    *(f"{a} {op} interval {v}" for a in ("ts", "at") for op in "+-" for v in
      ("5 seconds", "1 day", "2 hours", "500 milliseconds", "7 microseconds", "1 week", "1 month", "13 months", "1 year", "'1 day 2 hours'",
       "'01:30' hour to minute", "1 hour 30 minutes", "'1.5' second", "-3 minutes")),
    "interval 5 seconds + ts", "ts - at > interval 1 day", "at - ts <= interval '1' hour", "ts + k * interval 1 minute",
    "ts + 2 * interval 1 day", "ts - at = at - ts", "ts + (at - timestamp '2020-01-01')", "ts + interval '1-2' year to month",
    "ts > at - interval 30 days", "ts + interval 1 day - interval 1 hour",
    *(f"date_format(ts, '{p}')" for p in ("yyyy-MM-dd", "HH:mm:ss", "yyyy-MM-dd HH:mm:ss.SSSSSS", "yy/M/d", "EEE EEEE", "MMM MMMM", "h:mm a",
      "D", "Q", "K k", "SSS", "y", "XXX", "X xx xxx", "yyyyMMdd", "DDD")), "date_format(at, \"yyyy-MM-dd'T'HH:mm:ss'Z'\")",
    "from_unixtime(k)", "from_unixtime(k, 'yyyy-MM-dd')", "dayname(ts)", "monthname(at)", "datediff(ts, at)", "date_diff(at, ts)",
    "to_timestamp(d)", "to_timestamp('2020-01-02 03:04:05')", "to_timestamp('03/02/2020', 'dd/MM/yyyy')",
    "to_timestamp('2020-02-03 14:05', 'yyyy-MM-dd HH:mm')", "to_timestamp('xx', 'yyyy')", "timestamp '2020-05-03 01:02:03'",
    "timestamp '2020-05-03 01:02:03+02:00'", "timestamp('2020-05-03')",
]  # fmt: skip
CASTS: list[Entry] = [
    *(f"cast({a} as {to})" for a in ["b", "c", "d", "i", "s"] for to in ["boolean", "string", "double", "float"]),
    *(f"cast({a} as {to})" for a in ["b", "c", "d", "k"] for to in ["int", "bigint"]), "cast(d as timestamp)", "cast(k as timestamp)",
    *(f"try_cast({a} as {to})" for a in ["d", "i", "n"] for to in ["boolean", "int", "bigint", "double", "float", "string"]),
    *((f"cast({a} as {to})", f"try_cast({a} as {to})") for a in ["n", "m", "x", "y", "f"] for to in ["int", "bigint"]),
    *(f"cast({a} as {to})" for a in ["n", "m", "x", "y", "f"] for to in ["float", "double", "boolean"]),
    *(f"cast({a} as string)" for a in ["i", "n", "m", "f", "ts", "at", "b"]), "cast(y as string)", "cast(x as string)",
    *(f"cast(ts as {to})" for to in ["int", "bigint", "double", "float", "boolean"]), "cast(k / 4 as timestamp)", "cast(b as timestamp)",
    "k::double", "int(d)", "string(i)", "double(s)", "bigint(k)", "boolean(t)", "float(k)", "cast(cast(i as string) as int)",
    "cast('1.9' as int)", "cast(' 7 ' as bigint)", "cast('1e5' as double)", "cast('+inf' as double)", "cast('1.5d' as double)",
    "cast('12345678901' as int)", "cast('t' as boolean)", "cast('2020-1-2' as timestamp)", "cast(null as int)", "10L", "1.5F", "1e3", "2.5D",
    "'it''s'", "\"q\"", "'a\\nb'", "r'a\\nb'", "'a' 'b'", "-2147483648", "2147483648", "-9223372036854775808",
]  # fmt: skip
SECTIONS: dict[str, list[Entry]] = {
    "arithmetic": ARITHMETIC, "comparison": COMPARISON, "logic": LOGIC, "conditional": CONDITIONAL, "maths": MATHS, "text": TEXT,
    "patterns": PATTERNS, "times": TIMES, "casts": CASTS,
}  # fmt: skip


def entries(section: str) -> dict[str, str]:
    """Our text and the Spark text of each entry."""
    return {e if isinstance(e, str) else e[0]: e if isinstance(e, str) else e[1] for e in SECTIONS[section]}


def ours(text: str, rows: Train) -> tuple[str, list[Any]]:
    """The type and the values that our engine gives; timestamps in microseconds."""
    expression = compile_expression(text, SCHEMA)
    vector = expression.evaluate(Scope(rows))
    values: list[Any] = vector.values.tolist()
    assert len(values) == rows.count and vector.values.dtype == expression.type.dtype
    if vector.pool is not None:
        values = [vector.pool.values[code] for code in values] if len(vector.pool) else [""] * len(values)
    if expression.type is Type.TIMESTAMP:
        values = [value // 1_000 for value in values]
    if vector.valid is not None:
        assert expression.nullable or vector.valid.all(), f"NULL in {text}, which says that it has none"
        values = [value if ok else None for value, ok in zip(values, vector.valid.tolist(), strict=True)]
    return str(expression.type), values


def same(kind: str, left: Any, right: Any) -> bool:
    if left is None or right is None:
        return left is right
    if kind in ("double", "float"):
        left, right = float(left), float(right)  # "NaN" and "Infinity" in the file
        return left == right or (left != left and right != right) or math.isclose(left, right, rel_tol=1e-13)
    return bool(left == right)


@pytest.mark.parametrize("section", list(SECTIONS))
def test_answers_are_spark_s(section: str) -> None:
    answers = json.loads(ANSWERS.read_text())
    rows = train()
    wrong: list[str] = []
    for text in entries(section):
        answer = answers[text]
        kind, values = ours(text, rows)
        if kind != answer["type"]:
            wrong.append(f"{text}: {kind}, Spark has {answer['type']}")
            continue
        for row, (got, want) in enumerate(zip(values, answer["values"], strict=True)):
            if not same(kind, got, want):
                inputs = {name: cycle[row % len(cycle)] for name, cycle in _CYCLES.items() if name in text}
                wrong.append(f"{text}: {got!r}, Spark has {want!r} in row {row} of {inputs}")
                break
    assert not wrong, "\n".join(wrong)


def test_the_catalogue_uses_every_function() -> None:
    from engine.expressions import FUNCTIONS

    words = " ".join(text for section in SECTIONS for text in entries(section))
    unused = {f.name for f in FUNCTIONS.values()} - {name for name in FUNCTIONS if f"{name}(" in words}
    assert unused <= {"try_add", "try_subtract", "try_multiply", "positive"}, unused
