"""Check the fields that a Spark source or sink names against the schema of its stream or output."""

from __future__ import annotations

from catalog.config.jars import missing_jar
from catalog.config.models import SparkSink, SparkSource
from catalog.config.read import Config
from catalog.config.words import did_you_mean
from catalog.errors import Problem
from catalog.schema import Schema, Type


def check_spark_source(name: str, source: object, time: str | None, schema: Schema, config: Config) -> list[Problem]:
    if not isinstance(source, SparkSource):
        return []
    path = ("streams", name, "source")
    problems = _unknown((*path, "order_by"), source.order_by, schema, config) + _jar((*path, "spark"), source, config)
    if source.increasing is not None and source.spark != "jdbc":
        message = f"increasing has no effect: the files of a {source.spark} source are remembered by their names"
        problems.append(config.document.problem((*path, "increasing"), message, warning=True))
    if source.increasing is not None:
        problems += _unknown((*path, "increasing"), [source.increasing], schema, config)[:1]
        found = [f for f in schema if f.name == source.increasing]
        for field in (f for f in found if not (f.type.is_integer or f.type is Type.TIMESTAMP)):
            message = f"'{field.name}' is a {field.type}: increasing needs whole numbers or times"
            problems.append(config.document.problem((*path, "increasing"), message))
    elif source.spark == "jdbc":
        message = "a second run reads all rows again"
        hint = "name a field that only grows: increasing: id"
        problems.append(config.document.problem(path, message, hint, warning=True))
    if source.pace != "as_fast" and time is None:
        message = f"pace {source.pace} needs event time, and the stream has none"
        problems.append(config.document.problem((*path, "pace"), message, "name the field: time: ts"))
    return problems


def check_spark_sink(name: str, sink: object, schema: Schema, config: Config) -> list[Problem]:
    if not isinstance(sink, SparkSink):
        return []
    path = ("outputs", name, "sink", "partition_by")
    problems = _jar(("outputs", name, "sink", "spark"), sink, config)
    if sink.spark == "jdbc" and "commit_column" not in sink.options:
        at = ("outputs", name, "sink")
        message = "a commit that is repeated after a crash writes its rows twice"
        hint = "options: {commit_column: aurorad_commit} makes it exactly once"
        problems.append(config.document.problem(at, message, hint, warning=True))
    problems += _unknown(path, sink.partition_by, schema, config)
    if sink.partition_by and not set(schema.names) - set(sink.partition_by):
        problems.append(config.document.problem(path, "partition_by names every field: none is left for the files"))
    return problems


def _jar(path: tuple[str | int, ...], end: SparkSource | SparkSink, config: Config) -> list[Problem]:
    missing = missing_jar(end.spark, config.file.spark.config)
    return [] if missing is None else [config.document.problem(path, *missing, warning=True)]


def _unknown(path: tuple[str | int, ...], names: list[str], schema: Schema, config: Config) -> list[Problem]:
    return [
        config.document.problem((*path, i), f"there is no field '{name}'", did_you_mean(name, schema.names))
        for i, name in enumerate(names)
        if name not in schema
    ]
