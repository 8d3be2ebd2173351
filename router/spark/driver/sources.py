"""Open a Spark source as a DataFrame with the stream's columns.

Rules
- The schema is checked before anything is read, and one error lists everything that is wrong with it. A column fits if
  its values convert without loss (int to bigint, float to double); for other casts there is ``sql``.
- Text has no types of its own: csv and json are read with the types of the stream. A row that does not parse fails the
  job with its place (``mode: FAILFAST``), unless the options say otherwise; Spark's default is NULL without a message.
- A source is *stable* if its partitions have the same rows in the same order whenever it is read. A bulk job needs
  that, because the next attempt at a partition continues in the middle. Files are stable as long as they do not change
  (``fingerprint`` detects it) and the number of partitions is fixed. The result of a shuffle, a sort or a database
  query is not stable: ``work.stage`` writes it as files first.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from router.spark.wire.aurorad_wire import BATCH_BYTES, BATCH_ROWS
from router.spark.wire.errors import SparkRefusedError
from router.spark.wire.pipe import Fields

FILES = ("parquet", "orc", "csv", "json", "text")
COUNT_FILES = 1_000  # above this, rows are not counted: counting reads the footer of every file
FINGERPRINT_FILES = 10_000
UNMEASURED_ROWS = 16_384
"""Rows in a batch whose width is unknown: an executor holds a batch three times while it makes it."""
VIEW = "source"

_INTEGERS = ("tinyint", "smallint", "int")
_FITS: dict[str, tuple[str, ...]] = {
    "boolean": ("boolean",),
    "int": _INTEGERS,
    "bigint": (*_INTEGERS, "bigint"),
    "float": ("float",),
    "double": ("float", "double"),
    "string": ("string",),
    "timestamp": ("timestamp", "timestamp_ntz", "bigint"),
}


class BulkRead(NamedTuple):
    frame: Any  # the stream's columns, in its order
    is_stable: bool  # every read gives the same partitions with the same rows
    kind: str


def open_source(session: Any, source: dict[str, Any], fields: Fields) -> BulkRead:
    """Build the DataFrame of a source without reading it. Raises SparkRefusedError."""
    kind, sql = source["spark"], source.get("sql")
    if sql and not re.match(r"(?is)\s*(select|with|values|from|\()", sql):
        raise SparkRefusedError("sql must be a query: select ..., with ..., from ... or values ...")
    frame: Any = None
    if not sql or source.get("path") or source.get("options"):
        frame = _read(session, source, fields)
    if sql:
        if frame is not None:
            frame.createOrReplaceTempView(VIEW)
        frame = session.sql(sql)
    check_columns(frame.schema, fields)
    if source.get("increasing") and source.get("after"):
        frame = frame.where(_above(source, fields))
    names = {field.name for field in frame.schema}
    wanted = [name for name, _, _ in fields if name in names]
    if wanted != frame.columns:  # only then: Spark needs 10 ms to analyse the step
        frame = frame.select(*[f"`{name}`" for name in wanted])
    if order := source.get("order_by"):
        _check_order(order, [f[0] for f in fields])
        frame = frame.orderBy(*[f"`{name}`" for name in order])
    return BulkRead(frame, kind in FILES and not sql and not order and not source.get("bad_rows"), kind)


def _above(source: dict[str, Any], fields: Fields) -> Any:
    """Return the condition for rows above the mark of an increasing field. The database evaluates it."""
    from pyspark.sql.functions import col, lit

    [kind] = [kind for name, kind, _ in fields if name == source["increasing"]]
    return col(f"`{source['increasing']}`") > lit(source["after"]).cast(kind)


def highest(frame: Any, source: dict[str, Any]) -> str:
    """Return the new mark of an increasing field: its highest value, or the mark before when no row came."""
    found = frame.selectExpr(f"cast(max(`{source['increasing']}`) as string)").first()[0]
    return str(found or source.get("after") or "")


def _read(session: Any, source: dict[str, Any], fields: Fields) -> Any:
    kind, path = source["spark"], source.get("path")
    options = {key: str(value) for key, value in (source.get("options") or {}).items() if value is not None}
    reader = session.read.format(kind)
    if kind in ("csv", "json") and not source.get("sql"):
        options = {"mode": "FAILFAST", **options}
    if kind == "csv":  # enforceSchema: Spark would read a file with its columns in another order into wrong fields
        options = {"header": "true", "enforceSchema": "false", **options}
    reader = reader.options(**options)
    if kind == "json" and not source.get("sql") and "schema" not in options:
        reader = reader.schema(ddl(fields))
    if kind == "csv" and not source.get("sql"):
        reader = reader.schema(csv_schema(reader, path, options, fields))
    return reader.load(path) if path is not None else reader.load()


def csv_schema(reader: Any, path: Any, options: dict[str, str], fields: Fields) -> str:
    """Return the file's columns in the file's order, with the types of the stream.

    With a schema, Spark matches the columns of csv by position and ignores the header.
    """
    if options["header"].lower() != "true":
        return ddl(fields)
    types = {name: kind for name, kind, _ in fields}
    found = [field.name for field in reader.load(path).schema]
    return ", ".join(f"`{name}` {types.get(name, 'string')}" for name in found)


def ddl(fields: Fields) -> str:
    return ", ".join(f"`{name}` {kind}" for name, kind, _ in fields)


def check_columns(theirs: Any, fields: Fields) -> None:
    """Check that every field has a column that fits. Raises SparkRefusedError, which names each one that does not."""
    types = {field.name: field.dataType.simpleString() for field in theirs}
    wrong = []
    for name, kind, nullable in fields:
        if name not in types:
            if not nullable:
                wrong.append(f"column {name} is missing")
        elif types[name] not in _FITS[kind]:
            wrong.append(f"column {name} is {types[name]} where {kind} is wanted")
    if wrong:
        raise SparkRefusedError(
            f"the schema does not fit: {'; '.join(wrong)}; the source has {theirs.simpleString()[:500]}"
        )


def _check_order(order: Sequence[str], names: Sequence[str]) -> None:
    if unknown := [name for name in order if name not in names]:
        raise SparkRefusedError(f"order_by: the stream has no field {', '.join(unknown)}")


class SourceSize(NamedTuple):
    rows: int  # 0: unknown
    batch_rows: int  # the most that a batch may have


def measure(read: BulkRead) -> SourceSize:
    """Count the rows and their width, if the footers of the files say it and the files are on this machine."""
    files = read.frame.inputFiles() if read.kind in ("parquet", "orc") else []
    paths = [path for name in files if (path := _local(name))]
    if not paths or len(paths) < len(files) or len(paths) > COUNT_FILES:
        return SourceSize(0, UNMEASURED_ROWS)
    try:
        found = list(map(_parquet_size if read.kind == "parquet" else _orc_size, paths))
    except (OSError, ValueError):
        return SourceSize(0, UNMEASURED_ROWS)  # the read that follows reports what is wrong with the file
    rows, nbytes = sum(r for r, _ in found), sum(b for _, b in found)
    return SourceSize(rows, max(1, min(BATCH_ROWS, BATCH_BYTES * rows // max(1, nbytes))))


def _local(name: str) -> str | None:
    """Return the path of a file on this machine; None for a file elsewhere."""
    place = urlsplit(name)
    return unquote(place.path) if place.scheme == "file" else None


def _parquet_size(path: str) -> tuple[int, int]:
    """Return rows and uncompressed bytes."""
    from pyarrow import parquet

    found = parquet.read_metadata(path)
    return int(found.num_rows), sum(found.row_group(i).total_byte_size for i in range(found.num_row_groups))


def _orc_size(path: str) -> tuple[int, int]:
    from pyarrow import orc

    found = orc.ORCFile(path)
    return int(found.nrows), 4 * int(found.content_length)  # compressed; the footer does not say the size before


def fingerprint(session: Any, frame: Any, source: dict[str, Any]) -> str:
    """Hash the request and the names, sizes and times of the files behind it: another input gives another value.

    Return an empty text when there are no files: a table may have changed without a sign.
    """
    digest = hashlib.sha256()
    files = sorted(frame.inputFiles())
    if source.get("increasing"):  # what is above the mark is one job until it is done; then the mark is another
        return hashlib.sha256(json.dumps(source, sort_keys=True).encode()).hexdigest()[:16]
    if not files:
        return ""
    digest.update(json.dumps([frame.schema.simpleString(), source], sort_keys=True).encode())
    for name in files[:FINGERPRINT_FILES]:
        size, changed_ms = _stat(session, name)
        digest.update(f"{name}\0{size}\0{changed_ms}\0".encode())
    digest.update("\0".join(files[FINGERPRINT_FILES:]).encode())
    return digest.hexdigest()[:16]


def _stat(session: Any, name: str) -> tuple[int, int]:
    """Return bytes, and the time of the last change in ms. The JVM needs 4 ms for a file that is not local."""
    if (local := _local(name)) is not None:
        found = os.stat(local)
        return found.st_size, found.st_mtime_ns // 1_000_000
    jvm = session.sparkContext._jvm
    path = jvm.org.apache.hadoop.fs.Path(jvm.java.net.URI(name))
    status = path.getFileSystem(session.sparkContext._jsc.hadoopConfiguration()).getFileStatus(path)
    return status.getLen(), status.getModificationTime()
