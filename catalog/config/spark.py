"""Check the fields that a Spark source or sink names against the schema of its stream or output."""

from __future__ import annotations

import os

from catalog.config.jars import missing_jar
from catalog.config.models import SparkSink, SparkSource
from catalog.config.read import Config
from catalog.config.words import did_you_mean
from catalog.errors import Problem
from catalog.schema import Schema, Type

FILE_FORMATS = ("parquet", "orc", "csv", "json", "text")


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
    problems += _check_files(path, source, config)
    if source.pace != "as_fast" and time is None:
        message = f"pace {source.pace} needs event time, and the stream has none"
        problems.append(config.document.problem((*path, "pace"), message, "name the field: time: ts"))
    return problems


def _check_files(path: tuple[str | int, ...], source: SparkSource, config: Config) -> list[Problem]:
    """Check ``watch`` and ``bad_rows``: both know files, and those of this machine only."""
    problems = []
    paths = [source.path] if isinstance(source.path, str) else list(source.path or ())
    for key in [key for key, given in (("watch", source.watch_ns), ("bad_rows", source.bad_rows)) if given]:
        at = (*path, key)
        if source.spark not in FILE_FORMATS or not paths:
            message, hint = f"{key} needs files: a path, and one of {', '.join(FILE_FORMATS)}", ""
        elif any("://" in given.removeprefix("file://") for given in paths):
            message = f"{key} knows files of this machine only"
            hint = "copy them to it, or use `run --on spark`, which takes new files from anywhere"
        elif source.sql:
            message, hint = f"{key} goes file by file, and sql needs them all", "put the expressions into a map box"
        elif key == "bad_rows" and "mode" in source.options:
            message, hint = "options.mode says what to do with a bad row, and so does bad_rows", "leave one of them out"
        elif key == "bad_rows" and any(_is_inside(source.bad_rows, given) for given in paths):
            message, hint = "bad_rows is inside of the path: what is written there would be read", ""
        else:
            continue
        problems.append(config.document.problem(at, message, hint))
    if source.watch_ns is not None and config.file.engine.data_dir is None:
        message, hint = "without a data_dir the next start takes all files again", "engine: {data_dir: ./data}"
        problems.append(config.document.problem((*path, "watch"), message, hint, warning=True))
    return problems


def _is_inside(folder: str | None, path: str) -> bool:
    inner, outer = (os.path.abspath(p.removeprefix("file://").removeprefix("file:")) for p in (folder or "", path))
    return os.path.commonpath([inner, outer]) == outer


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
