"""What a Spark source reads, as a DataFrame with the stream's columns. Runs in the driver process.

Rules
- The schema is checked before anything is read, and everything that is wrong with it is said at once. A column fits
  where its values do without loss (int for bigint, float for double); the rest is for ``sql`` to cast.
- Text has no types of its own: csv and json are read with the stream's. A row that does not parse fails the job with
  its place (``mode: FAILFAST``) unless the options say otherwise; Spark alone would make it NULL without a word.
- The parts of a job must be the same whenever it is read, because a part that was cut off goes on where it was. Files
  are, as long as nobody touches them (``fingerprint`` holds them to that) and the number of parts is fixed. What comes
  out of a shuffle, a sort or a database is not: it is staged as files first (``staged.py``).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from router.spark.aurorad_wire import BATCH_BYTES, BATCH_ROWS
from router.spark.errors import SparkRefusedError

FILES = ("parquet", "orc", "csv", "json", "text")
COUNT_FILES = 1_000  # a file's end is read to count its rows; not of more than so many
FINGERPRINT_FILES = 10_000
UNMEASURED_ROWS = 16_384
"""In a batch of rows of which nobody knows how wide they are: an executor holds it three times while it makes it."""
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

Fields = Sequence[Sequence[Any]]  # [name, type, nullable], as it travels in JSON


class Plan(NamedTuple):
    frame: Any  # the stream's columns, in its order
    is_stable: bool  # the same parts with the same rows, whenever it is read
    kind: str


def plan(session: Any, source: dict[str, Any], fields: Fields) -> Plan:
    """Raises SparkRefusedError."""
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
    names = {field.name for field in frame.schema}
    wanted = [name for name, _, _ in fields if name in names]
    if wanted != frame.columns:  # another step to analyse, 10 ms
        frame = frame.select(*[f"`{name}`" for name in wanted])
    if order := source.get("order_by"):
        _check_order(order, [f[0] for f in fields])
        frame = frame.orderBy(*[f"`{name}`" for name in order])
    return Plan(frame, kind in FILES and not sql and not order, kind)


def _read(session: Any, source: dict[str, Any], fields: Fields) -> Any:
    kind, path = source["spark"], source.get("path")
    options = {key: str(value) for key, value in (source.get("options") or {}).items() if value is not None}
    reader = session.read.format(kind)
    if kind in ("csv", "json") and not source.get("sql"):
        options = {"mode": "FAILFAST", **options}
    if kind == "csv":
        options = {"header": "true", **options}
    reader = reader.options(**options)
    if kind == "json" and not source.get("sql") and "schema" not in options:
        reader = reader.schema(ddl(fields))
    if kind == "csv" and not source.get("sql"):
        reader = reader.schema(_csv_schema(reader, path, options, fields))
    return reader.load(path) if path is not None else reader.load()


def _csv_schema(reader: Any, path: Any, options: dict[str, str], fields: Fields) -> str:
    """The file's columns in the file's order with the stream's types: Spark matches csv by position, and ignores the
    header once it is given a schema."""
    if options["header"].lower() != "true":
        return ddl(fields)
    types = {name: kind for name, kind, _ in fields}
    found = [field.name for field in reader.load(path).schema]
    return ", ".join(f"`{name}` {types.get(name, 'string')}" for name in found)


def ddl(fields: Fields) -> str:
    return ", ".join(f"`{name}` {kind}" for name, kind, _ in fields)


def check_columns(theirs: Any, fields: Fields) -> None:
    """Every column that does not fit, named."""
    types = {field.name: field.dataType.simpleString() for field in theirs}
    wrong = []
    for name, kind, nullable in fields:
        if name not in types:
            if not nullable:
                wrong.append(f"column {name} is missing")
        elif types[name] not in _FITS[kind]:
            wrong.append(f"column {name} is {types[name]} where {kind} is wanted")
    if wrong:
        raise SparkRefusedError(f"the schema does not fit: {'; '.join(wrong)}; there is {theirs.simpleString()[:500]}")


def _check_order(order: Sequence[str], names: Sequence[str]) -> None:
    if unknown := [name for name in order if name not in names]:
        raise SparkRefusedError(f"order_by: the stream has no field {', '.join(unknown)}")


class Size(NamedTuple):
    rows: int  # 0: nobody knows
    batch_rows: int  # how many a batch may have


def measure(planned: Plan) -> Size:
    """How many rows there are and how wide, where the files say it at their end and lie on this machine."""
    files = planned.frame.inputFiles() if planned.kind in ("parquet", "orc") else []
    paths = [path for name in files if (path := _local(name))]
    if not paths or len(paths) < len(files) or len(paths) > COUNT_FILES:
        return Size(0, UNMEASURED_ROWS)
    try:
        found = list(map(_parquet_size if planned.kind == "parquet" else _orc_size, paths))
    except (OSError, ValueError):
        return Size(0, UNMEASURED_ROWS)  # what is wrong with the file is told by whoever reads it
    rows, nbytes = sum(r for r, _ in found), sum(b for _, b in found)
    return Size(rows, max(1, min(BATCH_ROWS, BATCH_BYTES * rows // max(1, nbytes))))


def _local(name: str) -> str | None:
    """Where a file lies, if on this machine."""
    place = urlsplit(name)
    return unquote(place.path) if place.scheme == "file" else None


def _parquet_size(path: str) -> tuple[int, int]:
    """Rows, and bytes once they are unpacked."""
    from pyarrow import parquet

    found = parquet.read_metadata(path)
    return int(found.num_rows), sum(found.row_group(i).total_byte_size for i in range(found.num_row_groups))


def _orc_size(path: str) -> tuple[int, int]:
    from pyarrow import orc

    found = orc.ORCFile(path)
    return int(found.nrows), 4 * int(found.content_length)  # packed, and it does not say what it was before


def fingerprint(session: Any, frame: Any, source: dict[str, Any]) -> str:
    """What is asked for, and names, sizes and times of the files behind it: another value, another input. Nothing for
    what is not files: a table may be another one each time."""
    digest = hashlib.sha256()
    files = sorted(frame.inputFiles())
    if not files:
        return ""
    digest.update(json.dumps([frame.schema.simpleString(), source], sort_keys=True).encode())
    for name in files[:FINGERPRINT_FILES]:
        size, changed_ms = _stat(session, name)
        digest.update(f"{name}\0{size}\0{changed_ms}\0".encode())
    digest.update("\0".join(files[FINGERPRINT_FILES:]).encode())
    return digest.hexdigest()[:16]


def _stat(session: Any, name: str) -> tuple[int, int]:
    """Bytes, and the time of the last change in milliseconds. Through the JVM that takes 4 ms a file."""
    if (local := _local(name)) is not None:
        found = os.stat(local)
        return found.st_size, found.st_mtime_ns // 1_000_000
    jvm = session.sparkContext._jvm
    path = jvm.org.apache.hadoop.fs.Path(jvm.java.net.URI(name))
    status = path.getFileSystem(session.sparkContext._jsc.hadoopConfiguration()).getFileStatus(path)
    return status.getLen(), status.getModificationTime()
