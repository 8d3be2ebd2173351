"""Every function on the edges of its types, compared with the recorded answers of Spark 4.3 with ``ansi`` off.

``expression_edges`` generates the calls. The answers are in ``expressions_edge_answers.json``, so that this runs
without a JVM; ``test_expressions_spark.py`` asks Spark again, and writes the file when it is run as a script. The sign
of a zero counts here.
"""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from catalog.errors import ExpressionError
from engine.operators.expressions import compile_expression
from storage.train import Train
from tests.property.expression_edge_values import CYCLES, REFUSED_FORMATS, REFUSED_PATTERNS
from tests.property.expression_edges import SCHEMA, columns, columns_in, entries, quoted, rows_of
from tests.property.test_expressions_catalogue import same, values_of

ANSWERS = Path(__file__).with_name("expressions_edge_answers.json")
PARTS = 8


@cache
def answers() -> dict[str, Any]:
    recorded: dict[str, Any] = json.loads(ANSWERS.read_text())
    return recorded


@cache
def train() -> Train:
    data = columns()
    for name in ("ts", "at"):
        data[name] = [None if v is None else v * 1_000 for v in data[name]]
    return Train.from_pylists(SCHEMA, data, 0)


def same_sign(kind: str, left: Any, right: Any) -> bool:
    """Compare as the catalogue does, and the sign of a zero as well."""
    if not same(kind, left, right):
        return False
    if kind not in ("float", "double") or left is None or float(left) != 0:
        return True
    return math.copysign(1.0, float(left)) == math.copysign(1.0, float(right))


def test_spark_was_asked_for_every_call() -> None:
    assert set(answers()) == set(entries()), "the file is out of date: run test_expressions_spark.py as a script"


@pytest.mark.parametrize("part", range(PARTS))
def test_edges_are_spark_s(part: int) -> None:
    wrong: list[str] = []
    for text in list(entries())[part::PARTS]:
        answer = answers()[text]
        kind, values = values_of(text, SCHEMA, train())
        if kind != answer["type"]:
            wrong.append(f"{text}: {kind}, Spark has {answer['type']}")
            continue
        for row, (got, want) in enumerate(zip(values[: rows_of(text)], answer["values"], strict=True)):
            if not same_sign(kind, got, want):
                inputs = {name: CYCLES[name][row % len(CYCLES[name])] for name in columns_in(text)}
                wrong.append(f"{text}: {got!r}, Spark has {want!r} for {inputs}")
                break
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("pattern", REFUSED_PATTERNS)
def test_a_pattern_that_would_mean_something_else_is_refused(pattern: str) -> None:
    with pytest.raises(ExpressionError) as refused:
        compile_expression(f"s rlike {quoted(pattern)}", SCHEMA)
    assert "pattern" in refused.value.message or "class" in refused.value.message


@pytest.mark.parametrize("format", REFUSED_FORMATS)
def test_a_format_that_would_mean_something_else_is_refused(format: str) -> None:
    with pytest.raises(ExpressionError, match="the format"):
        compile_expression(f"date_format(ts, {quoted(format)})", SCHEMA)
