"""Check the fields that a Spark source or sink names against the schema of its stream or output."""

from __future__ import annotations

from catalog.config.models import SparkSink, SparkSource
from catalog.config.read import Config
from catalog.config.words import did_you_mean
from catalog.errors import Problem
from catalog.schema import Schema


def check_spark_source(name: str, source: object, time: str | None, schema: Schema, config: Config) -> list[Problem]:
    if not isinstance(source, SparkSource):
        return []
    path = ("streams", name, "source")
    problems = _unknown((*path, "order_by"), source.order_by, schema, config)
    if source.pace != "as_fast" and time is None:
        message = f"pace {source.pace} needs event time, and the stream has none"
        problems.append(config.document.problem((*path, "pace"), message, "name the field: time: ts"))
    return problems


def check_spark_sink(name: str, sink: object, schema: Schema, config: Config) -> list[Problem]:
    if not isinstance(sink, SparkSink):
        return []
    path = ("outputs", name, "sink", "partition_by")
    problems = _unknown(path, sink.partition_by, schema, config)
    if sink.partition_by and not set(schema.names) - set(sink.partition_by):
        problems.append(config.document.problem(path, "partition_by names every field: none is left for the files"))
    return problems


def _unknown(path: tuple[str | int, ...], names: list[str], schema: Schema, config: Config) -> list[Problem]:
    return [
        config.document.problem((*path, i), f"there is no field '{name}'", did_you_mean(name, schema.names))
        for i, name in enumerate(names)
        if name not in schema
    ]
