"""ndjson by its layout: a sender writes its keys in one order with one spacing, so a block of lines is a table.

Learn the text around the values from the first line, check with numpy that every line has it, turn the byte before and
the byte behind each value into a comma, and let Arrow's CSV reader (quotes off) read the values: 310 ns a row of four
fields where polars takes 450 to 560 and pyarrow.json 610, and nearly all of it without Python's lock.

Taken only where it is sure to agree with the careful way, and else None:

- every line has exactly the commas between its fields, every key in its place, and its end; a comma in a string, a
  field more or less, or a nested value changes that;
- a number begins like a JSON number (no +1, 01, .5, 0x10, NaN) and a float ends in a digit, since Arrow reads more than
  JSON allows; infinity is caught afterwards;
- the distinct strings are read, quotes and escapes and all, by orjson.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.csv as pa_csv

from catalog.schema import Field, Type
from router.codecs.arrow_columns import text_train
from router.codecs.base import Intake
from router.codecs.csv_columns import ARROW_TYPES
from router.codecs.values import MisfitError
from storage.train import Array, Train

COLUMNAR_BYTES = 32 * 1024

Bytes = npt.NDArray[np.uint8]
_KEY = re.compile(rb'[ \t]*"([^"\\]+)"[ \t]*:[ \t]*')
_FIRST = re.compile(rb"[ \t]*\{")
_END = re.compile(rb"[ \t]*\}[ \t\r]*$")
_ZONED = re.compile(rb'[T ][0-9:.]+(?:Z|[+-][0-9:]+)"$')
_COMMA, _NEWLINE, _MINUS, _ZERO, _NINE, _N, _POINT = b",\n-09n."
_RAW = pa.dictionary(pa.int32(), pa.binary())


class Column(NamedTuple):
    """One field in a line: the text before its value, behind it (up to the next comma or newline), and its type."""

    field: Field
    before: bytes
    behind: bytes
    arrow: Any


class Layout:
    """How the lines of one sender look."""

    def __init__(self, intake: Intake, columns: tuple[Column, ...]) -> None:
        self._intake = intake
        self._columns = columns
        names: list[str] = []
        for column in columns:
            names += [f"before {column.field.name}", column.field.name]
            names += [f"behind {column.field.name}"] if column.behind else []
        self._read = pa_csv.ReadOptions(use_threads=False, column_names=names)
        self._parse = pa_csv.ParseOptions(quote_char=False)
        self._convert = pa_csv.ConvertOptions(
            include_columns=[c.field.name for c in columns],
            column_types={c.field.name: c.arrow for c in columns},
            null_values=["null"],
            true_values=["true"],
            false_values=["false"],
            strings_can_be_null=True,
        )

    @classmethod
    def learn(cls, intake: Intake, line: bytes) -> Layout | None:
        """From one line (without its newline); None when it is not a flat object of our fields."""
        columns: list[Column] = []
        parts = line.split(b",")
        for i, part in enumerate(parts):
            opening = _FIRST.match(part) if i == 0 else None
            key = _KEY.match(part, opening.end() if opening else 0)
            end = _END.search(part) if i == len(parts) - 1 else None
            if key is None or (i == 0) != (opening is not None) or (i == len(parts) - 1) != (end is not None):
                return None
            name = key[1].decode("utf-8", "replace")
            if name not in intake.schema:
                return None
            value = part[key.end() : end.start() if end else len(part)]
            columns.append(_column(intake.schema[name], part[: key.end()], value, end[0] if end else b""))
        names = {c.field.name for c in columns}
        if len(names) < len(columns) or any(f.name not in names and not f.nullable for f in intake.schema):
            return None
        return cls(intake, tuple(columns))

    def decode(self, data: bytes, arrival_ns: int) -> Train | None:
        """A train of all lines, or None."""
        separated = self._separate(data)
        if separated is None:
            return None
        try:
            source: Any = pa.BufferReader(memoryview(separated.data))
            self._read.block_size = len(data) + 64  # one block, one chunk
            table = pa_csv.read_csv(source, self._read, self._parse, self._convert)
            arrays = [self._array(table, f.name) for f in self._intake.schema]
            return text_train(self._intake, arrays, arrival_ns, _unquote)
        except (pa.ArrowInvalid, MisfitError):
            return None

    @staticmethod
    def _array(table: Any, name: str) -> Any:
        at = table.schema.get_field_index(name)
        if at < 0:
            return None
        column = table.column(at)
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()

    def _separate(self, data: bytes) -> Bytes | None:
        """The same bytes with commas around every value; None when a line looks different."""
        text = np.frombuffer(data, np.uint8)
        edges = _edges(text, len(self._columns))
        if edges is None:
            return None
        out = text.copy()
        for i, column in enumerate(self._columns):
            start = edges[i] + (1 + len(column.before))
            stop = edges[i + 1] - len(column.behind)
            # The first test keeps what follows inside the block, and values from being empty.
            if not (start < stop).all() or not _has(data, edges[i] + 1, column.before):
                return None
            if column.behind and not _has(data, stop, column.behind):
                return None
            if column.arrow is not _RAW and not _begins_as_json(text, start, stop, column):
                return None
            out[start - 1] = _COMMA
            if column.behind:
                out[stop] = _COMMA
        return out


def _edges(text: Bytes, width: int) -> Array | None:
    """For each line the places before its first field, between fields, and behind the last, as ``width + 1`` rows;
    None when a line has more or fewer commas than ``width`` fields need."""
    newlines = np.flatnonzero(text == _NEWLINE)
    commas = np.flatnonzero(text == _COMMA)
    lines = newlines.shape[0]
    if commas.shape[0] != lines * (width - 1):
        return None
    edges = np.empty((width + 1, lines), np.int64)
    edges[0, 0] = -1
    edges[0, 1:] = newlines[:-1]
    edges[1:-1] = commas.reshape(lines, width - 1).T
    edges[-1] = newlines
    # Commas come in order, so if a line's first and last lie inside it, all of them do.
    inside = width == 1 or bool((edges[1] > edges[0]).all() and (edges[-2] < edges[-1]).all())
    return edges if inside else None


def _column(f: Field, before: bytes, value: bytes, behind: bytes) -> Column:
    if f.type is Type.STRING:
        return Column(f, before, behind, _RAW)
    if f.type is Type.TIMESTAMP:
        if value.startswith(b'"'):
            zone = "UTC" if _ZONED.search(value) else None
            return Column(f, before + b'"', b'"' + behind, pa.timestamp("ns", zone))
        return Column(f, before, behind, pa.int64())
    return Column(f, before, behind, ARROW_TYPES[f.type])


def _has(data: bytes, at: Array, want: bytes) -> bool:
    """Whether ``want`` stands at every one of these places, which lie inside. A view of all windows costs nothing as
    long as it is indexed: ``take`` would copy it first."""
    windows: Array = np.ndarray((len(data) - len(want) + 1,), f"S{len(want)}", data, strides=(1,))
    return bool(windows[at].tobytes() == want * at.shape[0])


def _begins_as_json(text: Bytes, start: Array, stop: Array, column: Column) -> bool:
    """What Arrow's reader would take and JSON would not, in a column that is not of strings."""
    kind = column.field.type
    if kind is Type.BOOLEAN or pa.types.is_timestamp(column.arrow):
        return True  # read by exact words, by a strict grammar
    first = text[start]
    minus = first == _MINUS
    digit_at = start + minus
    digit = text[digit_at]
    is_number = (digit >= _ZERO) & (digit <= _NINE)
    if not is_number.all() and not (column.field.nullable and (is_number | (first == _N)).all()):
        return False
    after = text[digit_at + 1]
    leading_zero = (digit == _ZERO) & (digit_at + 1 < stop)
    if kind is Type.FLOAT or kind is Type.DOUBLE:
        last = text[stop - 1]
        if not ((last >= _ZERO) & (last <= _NINE) | (first == _N)).all():
            return False
        leading_zero &= (after >= _ZERO) & (after <= _NINE)
        return not leading_zero.any() and _points_have_digits(text, start, stop)
    return not leading_zero.any()


def _points_have_digits(text: Bytes, start: Array, stop: Array) -> bool:
    """No 1.e5 among these values. Points elsewhere, in strings, are looked at only when one has no digit behind it."""
    points = np.flatnonzero(text == _POINT)
    after = text[points + 1]
    odd = points[(after < _ZERO) | (after > _NINE)]
    if not odd.size:
        return True
    value = np.searchsorted(start, odd, "right") - 1
    return not bool(((value >= 0) & (odd < stop[value])).any())


def _unquote(raw: list[bytes]) -> list[str]:
    """Distinct strings as they stand in the text. None of them has a comma, so joined they are one array."""
    try:
        strings: list[str] = orjson.loads(b"[" + b",".join(raw) + b"]")
    except orjson.JSONDecodeError:
        raise MisfitError from None
    if len(strings) != len(raw) or not set(map(type, strings)) <= {str}:
        raise MisfitError
    return strings


class Layouts:
    """The layout of a connection's sender, learned anew when it changes."""

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self._layout: Layout | None = None
        self._from_bytes = COLUMNAR_BYTES if intake.columnar_bytes is None else intake.columnar_bytes

    def decode(self, data: bytes, arrival_ns: int) -> Train | None:
        if len(data) < self._from_bytes:
            return None
        if self._layout is not None:
            train = self._layout.decode(data, arrival_ns)
            if train is not None:
                return train
        self._layout = Layout.learn(self._intake, data[: data.index(b"\n")])
        return None if self._layout is None else self._layout.decode(data, arrival_ns)
