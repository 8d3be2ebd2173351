"""The example of every operator, function and aggregate, compared with the answer of Spark 4.3 with ``ansi`` off.

The answers are in ``expressions_spark_examples.json``, so that this runs without a JVM; ``test_expressions_spark.py``
asks Spark again, and writes the file when it is run as a script.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from catalog.schema import Type
from engine.operators.expressions.function_docs import FunctionDoc, catalogue
from tests.property.test_expressions_catalogue import same
from tests.unit.test_expressions_examples import value_of

ANSWERS = Path(__file__).with_name("expressions_spark_examples.json")
DOCS = catalogue()
DIFFERENT = {  # in Spark these are decimals
    "date_part('second', timestamp '2026-03-05 14:30:15.25')": "double({})",
}
_DECIMAL = re.compile(r"('[^']*')|(?<![\w.])(\d+\.\d+)(?![\w.])")


def key(doc: FunctionDoc) -> str:
    """Return the name of an example in the file of answers."""
    return f"{doc.example} over {', '.join(doc.values)}" if doc.values else doc.example


def spark_text(doc: FunctionDoc) -> str:
    """Return the example for Spark, where a literal with a point is a decimal unless it ends in D."""
    text = _doubles(doc.example)
    return DIFFERENT.get(doc.example, "{}").format(text)


def spark_query(doc: FunctionDoc) -> str:
    if not doc.values:
        return f"select {spark_text(doc)} as c"
    return f"select {spark_text(doc)} as c from values {', '.join(f'({_doubles(v)})' for v in doc.values)} as t(x)"


def _doubles(text: str) -> str:
    return _DECIMAL.sub(lambda found: found[1] or f"{found[2]}D", text)


def test_spark_was_asked_for_every_example() -> None:
    assert set(json.loads(ANSWERS.read_text())) == set(map(key, DOCS)), "run test_expressions_spark.py as a script"


@pytest.mark.parametrize("doc", DOCS, ids=lambda doc: doc.name)
def test_the_documented_value_is_spark_s(doc: FunctionDoc) -> None:
    answer = json.loads(ANSWERS.read_text())[key(doc)]
    _, value = value_of(doc.result)
    if answer["type"] == Type.TIMESTAMP and value is not None:
        value //= 1_000
    assert same(answer["type"], value, answer["value"]), f"{key(doc)} is {answer['value']!r} in Spark, not {doc.result}"
    if not re.search("type|interval", doc.returns):
        assert answer["type"] in doc.returns.split(" or ")
