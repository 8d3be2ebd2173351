"""Find the row of csv or json that does not parse, after Spark has stopped at it.

Spark's error has the values of the row and not its place. So the source is read again with the mode that keeps such
rows as text, until the first one; that costs one more read of a job that has failed.
"""

from __future__ import annotations

from itertools import islice
from typing import Any
from urllib.parse import unquote, urlsplit

from router.spark.driver.sources import csv_schema, ddl
from router.spark.wire.errors import SparkFailedError
from router.spark.wire.pipe import Fields

BAD = "aurorad_bad_row"
SHOWN = 200
SIGNS = ("MALFORMED_RECORD", "BadRecordException", "FAILED_READ_FILE", "Malformed")


def with_place(session: Any, request: dict[str, Any], error: Exception) -> Exception:
    """Return the error with the file and the line of the bad row; the same error if it is about something else."""
    source = request.get("source") or {}
    text = str(error)
    if source.get("spark") not in ("csv", "json") or source.get("sql") or not any(sign in text for sign in SIGNS):
        return error
    try:
        place = find_bad_row(session, source, request["fields"])
    except Exception:  # noqa: BLE001  the error itself says more than why its place was not found
        return error
    return error if place is None else SparkFailedError(place)


def find_bad_row(session: Any, source: dict[str, Any], fields: Fields) -> str | None:
    """Return the first bad row as ``file:line: text``; None when there is none."""
    kind = source["spark"]
    options = {key: str(value) for key, value in (source.get("options") or {}).items() if value is not None}
    if kind == "csv":
        options = {"header": "true", **options}
    reader = session.read.format(kind).options(**options)
    schema = csv_schema(reader, source["path"], options, fields) if kind == "csv" else ddl(fields)
    reader = reader.options(mode="PERMISSIVE", columnNameOfCorruptRecord=BAD).schema(f"{schema}, `{BAD}` string")
    rows = reader.load(source["path"]).selectExpr("*", "_metadata.file_path as aurorad_file")
    found = rows.where(f"`{BAD}` is not null").limit(1).collect()
    if not found:
        return None
    record, file = str(found[0][BAD]), urlsplit(str(found[0]["aurorad_file"]))
    path = unquote(file.path)
    line = _line_of(path, record) if file.scheme == "file" else None
    where = path if line is None else f"{path}:{line}"
    return f"{where}: not a row of the stream: {record[:SHOWN]}"


def _line_of(path: str, record: str) -> int | None:
    """Return the number of the first line with this text, from 1."""
    first = record.splitlines()[0] if record else ""
    with open(path, encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(islice(lines, 100_000_000), 1):
            if line.rstrip("\r\n") == first:
                return number
    return None
