"""A large fixed catalogue of expressions, compared with the answers of Spark 4.3 with ``ansi`` off over the same rows.

The expressions are in ``expressions_catalogue.txt``, the answers in ``expressions_spark_answers.json``, so that this
runs without a JVM. ``test_expressions_spark.py`` asks Spark again and fails when the answers are out of date; run as a
script, it writes them.

Where our meaning differs from Spark's on purpose, an entry is ``ours ==> the Spark text with our meaning``:
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
from engine.operators.expressions import FUNCTIONS, Scope, compile_expression
from storage.train import Train

CATALOGUE = Path(__file__).with_name("expressions_catalogue.txt")
ANSWERS = Path(__file__).with_name("expressions_spark_answers.json")
COUNT = 60
SCHEMA = Schema.of(
    b="boolean?",
    c="boolean",
    i="int?",
    j="int",
    k="int",
    n="bigint?",
    m="bigint",
    f="float?",
    x="double?",
    y="double",
    s="string?",
    t="string",
    u="string?",
    d="string",
    ts="timestamp?",
    at="timestamp",
)

_NAN, _INF = math.nan, math.inf
_CYCLES: dict[str, list[Any]] = {  # their lengths have no common factor, so that the rows pair values in many ways
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
    "s": [
        "",
        "abc",
        "ABC",
        None,
        "hello world",
        " pad ",
        "aXbXc",
        "ünïcödé",
        "😀a",
        "100",
        "1.5",
        "a%b_c",
        "line\nbreak",
    ],
    "t": ["abc", "", "b", "xyz", "hello", "X", "10", "true", "é", "zzz", "a"],
    "u": ["a", None, "", "abc", " "],
    "d": [
        "2020-01-02 03:04:05.123456",
        "12",
        "-7.9",
        "abc",
        "1e3",
        "true",
        " 42 ",
        "NaN",
        "2147483648",
        "2020-02-30",
        "2021",
        "",
        "+5",
        "inf",
        "0x10",
        "2020-05-03T01:02:03+02:00",
        ".",
    ],
    "ts": [
        0,
        1577836800000000,
        None,
        1582982055123456,
        -1500000,
        951782400000000,
        1609632855999999,
        -86400000000,
        1230768000000001,
        4102444799999999,
        1583020800000000,
    ],  # microseconds
    "at": [1577836799999999, 1600000000000000, 86399999999, -1, 1614556800000000, 1709208000123000, 1e15],
}


def columns() -> dict[str, list[Any]]:
    """Return the rows by column; timestamps in microseconds, which both engines can hold."""
    data = {name: [cycle[row % len(cycle)] for row in range(COUNT)] for name, cycle in _CYCLES.items()}
    data["at"] = [int(value) for value in data["at"]]
    return data


def train() -> Train:
    data = columns()
    for name in ("ts", "at"):
        data[name] = [None if v is None else v * 1_000 for v in data[name]]
    return Train.from_pylists(SCHEMA, data, 0)


def entries() -> dict[str, dict[str, str]]:
    """Return by section our text and the Spark text of each entry."""
    sections: dict[str, dict[str, str]] = {}
    for line in CATALOGUE.read_text().splitlines():
        if line.startswith("-- "):
            current = sections.setdefault(line[3:], {})
        elif line:
            mine, _, spark = line.partition(" ==> ")
            current[mine] = spark or mine
    return sections


def values_of(text: str, schema: Schema, rows: Train) -> tuple[str, list[Any]]:
    """Evaluate a text here: its type and values, timestamps in microseconds."""
    expression = compile_expression(text, schema)
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


@pytest.mark.parametrize("section", list(entries()))
def test_answers_are_spark_s(section: str) -> None:
    answers = json.loads(ANSWERS.read_text())
    rows = train()
    wrong: list[str] = []
    for text in entries()[section]:
        answer = answers[text]
        kind, values = values_of(text, SCHEMA, rows)
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
    words = CATALOGUE.read_text()
    unused = {f.name for f in FUNCTIONS.values()} - {name for name in FUNCTIONS if f"{name}(" in words}
    assert unused <= {"try_add", "try_subtract", "try_multiply", "positive"}, unused
