"""Open files so that each row says whether it fits the stream: the rows that do not go to ``bad_rows``.

Files are opened in groups of one *shape* (the schema in a footer, the header of a csv file, the folder of a partitioned
table). Spark applies the schema of one file to all files of a read: a csv file whose columns stand in another order
would be read into the wrong fields, without an error.

A row does not fit if its text does not parse, if a field that needs a value is NULL, or if a time is outside of what 64
bits of nanoseconds hold. Its reason names each field. Spark marks such a row, and does not say why: so the text is
parsed a second time with every field as a string, and a field that is there as a string and NULL as a value is the
reason. That costs nothing for rows that fit.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from router.spark.driver.compact import NO_GLOB
from router.spark.driver.sources import check_columns, csv_schema, ddl
from router.spark.wire.pipe import Fields

TEXT = "aurorad_bad_row"
FILE = "aurorad_file"
FITS = "aurorad_fits"
WHY = "aurorad_why"
AGAIN = "aurorad_again"
SHOWN = 100  # characters of a value in a reason
GLOB_SIGNS = "{}[]*?\\"
HEADER_BYTES = 64 * 1024
READERS = 8
FIRST_TIME, LAST_TIME = "1677-09-22 00:00:00Z", "2262-04-11 00:00:00Z"
_PARSED = ("csv", "json")
_NOT_FOR_FUNCTIONS = ("header", "mode", "basepath", "multiline", "enforceschema", "columnnameofcorruptrecord")


class InputFile(NamedTuple):
    path: str
    root: str  # the folder of the source that it was found in; empty if the source names files


class Shape(NamedTuple):
    """What files must have in common to be read together."""

    columns: str
    root: str
    folders: tuple[str, ...]  # fields whose values are in the names of folders: ``day=1``
    has_signs: bool  # of a glob. Without globs Spark reads files twice if only some of their names have such signs


def by_shape(
    kind: str, options: Mapping[str, str], files: Iterable[InputFile], failed: dict[str, str]
) -> dict[Shape, list[str]]:
    """Group the files. One that cannot be read at all goes to ``failed``, with the reason."""

    def shape(file: InputFile) -> Shape | Exception:
        try:
            has_signs = any(sign in file.path for sign in GLOB_SIGNS)
            return Shape(_columns(kind, options, file.path), file.root, _folders(file), has_signs)
        except Exception as error:  # noqa: BLE001  pyarrow has its own class for each kind of damage
            return error

    files = list(files)
    groups: dict[Shape, list[str]] = {}
    with ThreadPoolExecutor(READERS) as pool:
        for file, found in zip(files, pool.map(shape, files), strict=True):
            if isinstance(found, Exception):
                failed[file.path] = f"{file.path}: not a file of {kind}: {found}"[:500]
            else:
                groups.setdefault(found, []).append(file.path)
    return groups


def _columns(kind: str, options: Mapping[str, str], path: str) -> str:
    if kind == "parquet":
        from pyarrow import parquet

        return str(parquet.read_schema(path).remove_metadata())
    if kind == "orc":
        from pyarrow import orc

        return str(orc.ORCFile(path).schema)
    if kind == "csv" and options.get("header", "true").lower() == "true":
        return _first_line(path)
    with Path(path).open("rb"):
        return ""


def _first_line(path: str) -> str:
    with gzip.open(path) if path.endswith(".gz") else Path(path).open("rb") as file:
        return str(file.readline(HEADER_BYTES).strip(b"\r\n\xef\xbb\xbf").hex())


def _folders(file: InputFile) -> tuple[str, ...]:
    if not file.root:
        return ()
    parts = Path(file.path).parent.relative_to(file.root).parts
    return tuple(part.split("=", 1)[0] for part in parts if "=" in part)


def open_group(session: Any, source: Mapping[str, Any], fields: Fields, shape: Shape, files: list[str]) -> Any:
    """Return the fields of these files, with FITS, FILE, and TEXT and WHY for what does not fit.

    Raises SparkRefusedError when the columns are not those of the stream."""
    kind = source["spark"]
    options = {key: str(value) for key, value in (source.get("options") or {}).items() if value is not None}
    if kind == "csv":
        options = {"header": "true", "enforceSchema": "false", **options}
    marks = bool(source.get("bad_rows")) and kind in _PARSED
    if kind in _PARSED:
        options["mode"] = "PERMISSIVE" if marks else options.get("mode", "FAILFAST")
    if shape.folders:
        options["basePath"] = shape.root
    reader = session.read.format(kind).options(**options)
    if shape.has_signs:
        reader = reader.option(NO_GLOB, "false")
    inside = [field for field in fields if field[0] not in shape.folders]
    in_text: list[str] = []
    if kind in _PARSED:
        found = csv_schema(reader, _address(files[0]), options, inside) if kind == "csv" else ddl(inside)
        in_text = re.findall(r"`([^`]+)` ", found)
        reader = reader.schema(f"{found}, `{TEXT}` string" if marks else found)
        reader = reader.option("columnNameOfCorruptRecord", TEXT)
    frame = reader.load([_address(path) for path in files])
    check_columns(_without(frame.schema, shape.folders), inside)
    types = {field.name: field.dataType.simpleString() for field in frame.schema}
    columns = [_column(name, kind_, types, shape) for name, kind_, _ in fields]
    text = f"`{TEXT}`" if marks else f"cast(null as string) as `{TEXT}`"
    frame = frame.selectExpr(*columns, text, f"_metadata.file_path as `{FILE}`")
    return judge(frame, _parse_again(kind, options, in_text) if marks else "", in_text, fields)


def _without(schema: Any, names: Iterable[str]) -> Any:
    from pyspark.sql.types import StructType

    return StructType([field for field in schema if field.name not in set(names)])


def _column(name: str, kind: str, types: Mapping[str, str], shape: Shape) -> str:
    if name not in types:
        return f"cast(null as {kind}) as `{name}`"
    is_wide = kind != "timestamp" and types[name] != kind  # a time may be a number: then it counts nanoseconds
    return f"cast(`{name}` as {kind}) as `{name}`" if is_wide or name in shape.folders else f"`{name}`"


def _address(path: str) -> str:
    return f"file:{path}"


def judge(frame: Any, again: str, in_text: Sequence[str], fields: Fields) -> Any:
    """Add FITS and WHY to every row. ``again`` is the text parsed once more as strings, with the fields ``in_text``."""
    types = {field.name: field.dataType.simpleString() for field in frame.schema}
    wrong, reasons = [f"`{TEXT}` is not null"], []
    for name, kind, nullable in fields:
        cases = []
        if again and name in in_text:
            value = f"`{AGAIN}`.`{name}`"
            is_lost = f"`{TEXT}` is not null and {value} is not null and `{name}` is null"
            cases.append(f"when {is_lost} then concat({_text(name)}, ' is no {kind}: ', left({value}, {SHOWN}))")
        if not nullable:
            wrong.append(f"`{name}` is null")
            cases.append(f"when `{name}` is null then {_text(f'{name} is NULL')}")
        if types[name].startswith("timestamp"):
            outside = f"`{name}` not between timestamp'{FIRST_TIME}' and timestamp'{LAST_TIME}'"
            wrong.append(f"coalesce({outside}, false)")
            cases.append(f"when {outside} then concat({_text(name)}, ' is out of range: ', cast(`{name}` as string))")
        if cases:
            reasons.append(f"case {' '.join(cases)} end")
    names = [f"`{name}`" for name, _, _ in fields]
    why = f"nullif(concat_ws('; ', {', '.join(reasons)}), '')" if reasons else "null"
    parsed = f"{again} as `{AGAIN}`" if again else f"null as `{AGAIN}`"
    return frame.selectExpr("*", f"not ({' or '.join(wrong)}) as `{FITS}`", parsed).selectExpr(
        *names, f"`{FILE}`", f"`{FITS}`",
        f"coalesce(`{TEXT}`, to_json(struct({', '.join(names)}))) as `{TEXT}`",
        f"coalesce({why}, 'it is not whole: its columns, quotes or brackets') as `{WHY}`",
    )  # fmt: skip


def _parse_again(kind: str, options: Mapping[str, str], in_text: Sequence[str]) -> str:
    """Return the expression that parses the text of a marked row, with every field as a string."""
    strings = ", ".join(f"`{name}` string" for name in in_text)
    pairs = [_text(part) for key, value in options.items() if key.lower() not in _NOT_FOR_FUNCTIONS
             for part in (key, value)]  # fmt: skip
    given = f", map({', '.join(pairs)})" if pairs else ""
    return f"case when `{TEXT}` is not null then from_{kind}(`{TEXT}`, {_text(strings)}{given}) end"


def _text(value: str) -> str:
    """Write a string of SQL."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
