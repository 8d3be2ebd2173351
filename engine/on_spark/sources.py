"""The streams of a network as streaming frames of Spark, and all of them as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from catalog.config.models import FileSource, SparkSource
from catalog.network import Network, Stream
from engine.on_spark.front import STREAM, column_of
from engine.on_spark.refusals import FILES
from router.spark.driver.sources import check_columns, csv_schema, ddl
from router.spark.wire.errors import SparkRefusedError
from router.spark.wire.pipe import fields_of

TIME = "timestamp"
_US_PER = {"ms": 1_000, "s": 1_000_000}
KAFKA_VALUE = "aurorad_value"


def open_streams(session: Any, network: Network) -> Any:
    """Return one streaming frame with the tuples of all streams (``front`` has its form). Raises SparkRefusedError."""
    frames = [_tagged(open_stream(session, stream), stream, network) for stream in network.streams]
    whole = frames[0]
    for frame in frames[1:]:
        whole = whole.unionByName(frame)
    return whole


def open_stream(session: Any, stream: Stream) -> Any:
    """Return a streaming frame with the stream's fields, in its order and types."""
    kind, paths, options = _words(stream)
    fields = fields_of(stream.schema)
    is_ours = isinstance(stream.source, FileSource) or kind == "kafka"  # Spark would take numbers for seconds
    read = [[name, "string" if is_ours and type_ == TIME else type_, more] for name, type_, more in fields]
    if kind in FILES:
        frame = _files(session, kind, paths, options, read)
    else:
        frame = session.readStream.format(kind).options(**options).load()
    if kind == "kafka":
        text = frame.selectExpr(f"from_json(cast(value as string), '{ddl(read)}') as {KAFKA_VALUE}")
        frame = text.selectExpr(f"{KAFKA_VALUE}.*")
    check_columns(frame.schema, read)
    there = {field.name: field.dataType.simpleString() for field in frame.schema}
    unit = getattr(stream.source, "timestamps", "ns")
    values = [_value(name, type_, there.get(name), unit, is_strict=kind != "kafka") for name, type_, _ in fields]
    return frame.selectExpr(*(f"{value} as `{name}`" for value, (name, _, _) in zip(values, fields, strict=True)))


def _value(name: str, kind: str, theirs: str | None, unit: str, *, is_strict: bool) -> str:
    """Return a column in the type of its field. A time as a number or as text means what it means in the daemon."""
    if theirs is None:
        return f"cast(null as {kind})"
    if kind != TIME or theirs.startswith(TIME):
        return f"cast(`{name}` as {kind})"
    if theirs == "bigint":
        return _time_of(f"`{name}`", unit)
    number, at = _time_of(f"cast(`{name}` as bigint)", unit), f"try_cast(`{name}` as timestamp)"
    wrong = f"raise_error(concat('aurorad: field {name} is not a time: ', `{name}`))" if is_strict else "null"
    return (
        f"case when `{name}` is null then null when `{name}` rlike '^ *-?[0-9]+ *$' then {number} "
        f"when {at} is not null then {at} else {wrong} end"
    )


def _time_of(number: str, unit: str) -> str:
    """Return a time of a number. Parts of a microsecond are cut off: Spark has none."""
    per_us = {"ns": 1_000, "us": 1}.get(unit)
    us = f"({number} - pmod({number}, {per_us}L)) div {per_us}L" if per_us else f"{number} * {_US_PER[unit]}L"
    return f"timestamp_micros({us})"


def _words(stream: Stream) -> tuple[str, list[str], dict[str, str]]:
    source = stream.source
    if isinstance(source, FileSource):
        return {"ndjson": "json"}.get(source.codec, source.codec), [source.file], {}
    assert isinstance(source, SparkSource), "refused before"
    paths = [source.path] if isinstance(source.path, str) else list(source.path or ())
    return source.spark, paths, {key: _text(value) for key, value in source.options.items() if value is not None}


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _files(
    session: Any, kind: str, paths: Sequence[str], options: dict[str, str], fields: Sequence[Sequence[Any]]
) -> Any:
    """Read files as they come. The types are those of the stream; for Parquet and ORC those of the files there are."""
    if kind in ("csv", "json"):
        options = {"mode": "FAILFAST", **options}
    if kind == "csv":
        options = {"header": "true", **options}
    schema: Any = ddl(fields)
    try:
        reader = session.read.format(kind).options(**options)
        if kind == "csv":
            schema = csv_schema(reader, list(paths), options, fields)
        elif kind in ("parquet", "orc"):
            schema = reader.load(list(paths)).schema
            check_columns(schema, fields)
    except SparkRefusedError:
        raise
    except Exception as error:
        if "PATH_NOT_FOUND" not in str(error) and "UNABLE_TO_INFER_SCHEMA" not in str(error):
            raise  # a folder that is empty now may have files later
    frames = [session.readStream.format(kind).options(**options).schema(schema).load(path) for path in paths]
    whole = frames[0]
    for frame in frames[1:]:
        whole = whole.unionByName(frame)
    return whole


def _tagged(frame: Any, stream: Stream, network: Network) -> Any:
    """Give the frame of a stream the form that all of them have together."""
    texts = [f"cast({stream.number} as int) as {STREAM}"]
    for other in network.streams:
        for i, field in enumerate(other.schema):
            value = f"`{field.name}`" if other is stream else f"cast(null as {field.type})"
            texts.append(f"{value} as {column_of(other, i)}")
    return frame.selectExpr(*texts)
