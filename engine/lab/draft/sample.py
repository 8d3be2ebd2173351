"""Look at some rows of JSON or CSV: which fields there are, their types, and which one is the time.

The rules are those of the codecs that will read the rest: what a codec would refuse for a type is not that type. Whole
numbers become bigint, because ten rows do not tell how large the next one is. A number is a time when its name says so
and its size fits an epoch of seconds, milliseconds, microseconds or nanoseconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import orjson

from catalog.config.words import check_field_name
from catalog.errors import AuroraError
from catalog.schema import Type
from router.codecs.csv import BOOLEANS
from router.codecs.decode.csv_columns import split_fields
from router.codecs.decode.values import parse_iso_ns

ROWS_AT_MOST = 1_000
TIME_NAME = re.compile(r"(^|_)(ts|time|timestamp|date|datetime|at|when)($|_)", re.IGNORECASE)
BEST_TIME_NAMES = ("ts", "time", "timestamp", "event_time", "datetime", "date")
UNITS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
FIRST_NS, LAST_NS = 631_152_000 * 10**9, 4_102_444_800 * 10**9  # 1990 to 2100
INT64 = 2**63
_INT, _FLOAT = (
    re.compile(r"[ \t]*-?[0-9]+[ \t]*"),
    re.compile(r"[ \t]*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[ \t]*"),
)


class SampleError(AuroraError):
    """The sample is not rows of JSON or CSV. The message names the line and the reason."""


@dataclass
class SampleField:
    name: str
    type: Type
    nullable: bool
    values: list[Any]  # those that are not NULL


@dataclass
class RowSample:
    """``unit`` is that of timestamps that are numbers. ``left_out`` has the names of other fields, with the reason."""

    format: str
    fields: list[SampleField]
    rows: int
    unit: str = "ns"
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def time(self) -> SampleField | None:
        """The field that is most likely the event time."""
        times = [f for f in self.fields if f.type is Type.TIMESTAMP and not f.nullable]
        named = [f for name in BEST_TIME_NAMES for f in times if f.name.lower() == name]
        return next(iter([*named, *times]), None)


def take_sample(data: bytes, format: str | None) -> RowSample:
    """Look at the rows at the beginning of some bytes. Raises SampleError."""
    text = data.decode("utf-8-sig", "replace")
    if "\0" in text or text.count("\N{REPLACEMENT CHARACTER}") > len(text) // 100 + 1:
        raise SampleError("the input is not text: aurorad new reads JSON objects, one a line, or CSV with a header")
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        raise SampleError("the input is empty: give it some rows, such as the first ten")
    if format is None:
        format = "ndjson" if lines[0].lstrip()[:1] in "{[" else "csv"
    rows = _json_rows(lines) if format == "ndjson" else _csv_rows(lines)
    sample = RowSample(format, [], len(rows))
    names = dict.fromkeys(name for row in rows for name in row)
    for name in names:
        _add_field(sample, name, [row.get(name) for row in rows])
    if not sample.fields:
        raise SampleError("no field can be used: " + "; ".join(f"{n}: {why}" for n, why in sample.left_out.items()))
    return sample


def _json_rows(lines: list[str]) -> list[dict[str, Any]]:
    if lines[0].lstrip().startswith("["):
        raise SampleError("line 1: the input is a JSON array; write one object a line: jq -c '.[]' FILE")
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(lines[:ROWS_AT_MOST], 1):
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            if number == len(lines) > 1:
                break  # the sample was cut in the middle of a line
            hint = "; write one object a line: jq -c . FILE" if number == 1 < len(lines) else ""
            raise SampleError(f"line {number}: not JSON: {error}{hint}") from None
        if not isinstance(row, dict):
            raise SampleError(f"line {number}: not a JSON object")
        rows.append(row)
    return rows


def _csv_rows(lines: list[str]) -> list[dict[str, Any]]:
    cells = [split_fields(line.rstrip("\r").encode()) for line in lines[: ROWS_AT_MOST + 1]]
    head = cells[0]
    if head is None:
        raise SampleError("line 1: the quotes of the header do not match")
    names = [cell.decode().strip() for cell, _ in head]
    if len(names) == 1 and (other := next((c for c in ";\t|" if c in names[0]), None)):
        raise SampleError(f"line 1: the fields are divided by {other!r}; CSV has commas here, so write it with commas")
    if len(set(names)) < len(names):
        raise SampleError("line 1: the header names a column twice")
    if len(cells) < 2:
        raise SampleError("there is only one line: CSV needs a header and at least one row")
    rows: list[dict[str, Any]] = []
    for number, row in enumerate(cells[1:], 2):
        if row is None or len(row) != len(names):
            if number == len(cells) > 2:
                break
            raise SampleError(f"line {number}: {len(row or ())} fields where the header has {len(names)}")
        rows.append(
            {n: cell.decode() if cell or quoted else None for n, (cell, quoted) in zip(names, row, strict=True)}
        )
    return [{name: _csv_value(value) for name, value in row.items()} for row in rows]


class _Text(str):
    """A cell of CSV, which may be any type."""


def _csv_value(text: str | None) -> Any:
    return None if text is None else _Text(text)


def _add_field(sample: RowSample, name: str, values: list[Any]) -> None:
    try:
        check_field_name(name)
    except ValueError as error:
        sample.left_out[name] = str(error)
        return
    twin = next((f.name for f in sample.fields if f.name.lower() == name.lower()), None)
    if twin is not None:
        sample.left_out[name] = f"it differs from {twin} only in case"
        return
    present = [value for value in values if value is not None]
    kind, parsed = _type_of(name, present)
    if kind is None:
        sample.left_out[name] = _why_no_type(present)
        return
    if kind is Type.TIMESTAMP and present and not isinstance(parsed[0], str):
        unit = _unit_of(parsed)
        has_unit = any(f.type is Type.TIMESTAMP and not isinstance(f.values[0], str) for f in sample.fields)
        if unit is None or (has_unit and unit != sample.unit):
            kind = Type.BIGINT
        else:
            sample.unit = unit
    sample.fields.append(SampleField(name, kind, len(present) < len(values), parsed))


def _type_of(name: str, values: list[Any]) -> tuple[Type | None, list[Any]]:
    """Return the type that all values have, and the values as this type; None when there is none."""
    if not values:
        return Type.STRING, []
    if any(isinstance(value, dict | list) for value in values):
        return None, values
    if all(isinstance(value, _Text) for value in values):
        values = _csv_values(values)
    if all(isinstance(value, bool) for value in values):
        return Type.BOOLEAN, values
    if any(isinstance(value, bool) for value in values):
        return None, values
    if all(isinstance(value, int) for value in values):
        if TIME_NAME.search(name) and _unit_of(values) is not None:
            return Type.TIMESTAMP, values
        return (Type.BIGINT if all(-INT64 <= v < INT64 for v in values) else Type.DOUBLE), values
    if all(isinstance(value, int | float) for value in values):
        return Type.DOUBLE, [float(value) for value in values]
    if all(isinstance(value, str) for value in values):
        return (Type.TIMESTAMP if all(map(_is_time, values)) else Type.STRING), values
    return None, values


def _why_no_type(values: list[Any]) -> str:
    if any(isinstance(value, dict | list) for value in values):
        return "a list or an object inside a row has no type here"
    words = {bool: "true or false", int: "number", float: "number", str: "text"}
    return f"its values have different types: {', '.join(dict.fromkeys(words[type(value)] for value in values))}"


def _csv_values(values: list[_Text]) -> list[Any]:
    """Return the cells of a column as the type that all of them can have."""
    if all(value.encode() in BOOLEANS and value not in ("0", "1") for value in values):
        return [BOOLEANS[value.encode()] for value in values]
    if all(_INT.fullmatch(value) for value in values):
        return [int(value) for value in values]
    if all(_FLOAT.fullmatch(value) for value in values):
        return [float(value) for value in values]
    return [str(value) for value in values]


def _is_time(text: str) -> bool:
    try:
        parse_iso_ns(text)
    except ValueError:
        return False
    return "-" in text


def _unit_of(values: Iterable[int]) -> str | None:
    """Return the unit in which all of these numbers are times from 1990 to 2100."""
    values = list(values)
    return next((u for u, ns in UNITS.items() if all(FIRST_NS <= v * ns < LAST_NS for v in values)), None)


def times_ns(sample: RowSample, of: SampleField) -> list[int]:
    """Return the values of a timestamp in nanoseconds."""
    return [parse_iso_ns(v) if isinstance(v, str) else v * UNITS[sample.unit] for v in of.values]
