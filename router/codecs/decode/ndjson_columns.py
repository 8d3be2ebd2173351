"""ndjson by its layout: a sender writes its keys in one order with one spacing, so a block of lines is a table.

The decoder learns the text around the values from the first line and checks with numpy that every line has it. Then it
reads the values column by column: plain numbers and short strings by arithmetic (``digits.py``), a column with any
other value by orjson, its cells joined into one array. It takes 200 ns of CPU a row of four fields, where polars takes
410 and pyarrow.json 610, and it releases the GIL nearly all the time.

It decodes a block only where it must agree with the line by line decoder, and returns None otherwise: every line must
have exactly the commas between its fields, every key in its place, and its end. A comma in a string, one field more or
less, or a nested value breaks that. Values are valid JSON, because ``digits.py`` reads only forms that are, and orjson
reads the rest.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np
import orjson

from catalog.schema import Field, Type
from router.codecs.base import Intake
from router.codecs.decode.digits import PaddedBytes
from router.codecs.decode.draft import Draft
from router.codecs.decode.plain_fields import PlainBlock, are_compiled
from router.codecs.decode.values import MisfitError, add_values, finite, scale
from router.compiled.fields import MATCH
from storage.train import Array, Train

COLUMNAR_BYTES = 12 * 1024

_KEY = re.compile(rb'[ \t]*"([^"\\]+)"[ \t]*:[ \t]*')
_FIRST = re.compile(rb"[ \t]*\{")
_COMMA, _NEWLINE = b",\n"
_INT32 = np.iinfo(np.int32)


class Column(NamedTuple):
    """One field in a line: the text before its value and behind it, up to the next comma or newline."""

    field: Field
    before: bytes
    behind: bytes


class Layout:
    """The layout of one sender's lines."""

    def __init__(self, intake: Intake, columns: tuple[Column, ...]) -> None:
        self._intake = intake
        self._columns = columns
        self._at = {column.field.name: i for i, column in enumerate(columns)}
        fixed = [b"," * (i > 0) + column.before for i, column in enumerate(columns)] + [columns[-1].behind + b"\n"]
        self._fixed = np.frombuffer(b"".join(fixed), np.uint8).copy()
        self._parts = np.cumsum([0, *map(len, fixed)])

    @classmethod
    def learn(cls, intake: Intake, line: bytes) -> Layout | None:
        """Learn the layout from one line (without its newline); None when it is not a flat object of our fields."""
        columns: list[Column] = []
        parts = line.split(b",")
        for i, part in enumerate(parts):
            opening = _FIRST.match(part) if i == 0 else None
            key = _KEY.match(part, opening.end() if opening else 0)
            if key is None or (i == 0) != (opening is not None):
                return None
            name = key[1].decode("utf-8", "replace")
            if name not in intake.schema:
                return None
            columns.append(Column(intake.schema[name], part[: key.end()], b""))
        names = {c.field.name for c in columns}
        if len(names) < len(columns) or any(f.name not in names and not f.nullable for f in intake.schema):
            return None
        value = parts[-1].rstrip(b" \t\r").removesuffix(b"}").rstrip(b" \t")
        columns[-1] = columns[-1]._replace(behind=parts[-1][len(value) :])
        return cls(intake, tuple(columns)) if b"}" in columns[-1].behind else None

    def decode(self, data: bytes, arrival_ns: int) -> Train | None:
        """Make a train of all lines, or return None."""
        train = self._decode_compiled(data, arrival_ns)
        return train if train is not None else self._decode_by_words(data, arrival_ns)

    def _decode_compiled(self, data: bytes, arrival_ns: int) -> Train | None:
        """Make a train with compiled loops. None where a value is not plain, and until they are compiled."""
        if not are_compiled(MATCH):
            return None
        lines = data.count(b"\n")
        block = PlainBlock(self._intake, data)
        left, right = (np.empty((len(self._columns), lines), np.int64) for _ in range(2))
        done = np.zeros(1, np.int64)
        kinds = np.array([self._is_text(column, data) for column in self._columns], np.int64)
        MATCH.run(block.text, block.words, self._fixed, self._parts, kinds, left, right, done)
        if not done[0]:
            return None
        draft = Draft(self._intake, lines)
        try:
            for f in self._intake.schema.fields:
                at = self._at.get(f.name)
                if at is None:
                    draft.add_missing(f)
                elif f.type is not Type.STRING:
                    block.add(draft, f, left[at], np.maximum(right[at], left[at] + 1))
                else:
                    there = right[at] > left[at]
                    if not f.nullable and not there.all():
                        return None
                    block.add_texts(draft, left[at], np.maximum(right[at], left[at] + 1), there)
            return draft.train(arrival_ns)
        except (MisfitError, UnicodeDecodeError):
            return None

    @staticmethod
    def _is_text(column: Column, data: bytes) -> bool:
        """Tell whether the values of a column stand in quotes. A time may, and the first line shows whether."""
        if column.field.type is not Type.TIMESTAMP:
            return column.field.type is Type.STRING
        at = data.find(column.before) + len(column.before)
        return data[at : at + 1] == b'"'

    def _decode_by_words(self, data: bytes, arrival_ns: int) -> Train | None:
        if b"\0" in data:
            return None
        block = PaddedBytes(data)
        edges = _edges(block, len(self._columns))
        if edges is None:
            return None
        values: list[tuple[Array, Array]] = []
        for i, column in enumerate(self._columns):
            start = edges[i] + (1 + len(column.before))
            stop = edges[i + 1] - len(column.behind)
            # The first test excludes empty values and keeps the places below inside the block.
            if not (start < stop).all() or not _has(data, edges[i] + 1, column.before):
                return None
            if column.behind and not _has(data, stop, column.behind):
                return None
            values.append((start, stop))
        draft = Draft(self._intake, edges.shape[1])
        try:
            for f in self._intake.schema.fields:
                if f.name in self._at:
                    self._add(draft, f, data, block, *values[self._at[f.name]])
                else:
                    draft.add_missing(f)
            return draft.train(arrival_ns)
        except MisfitError:
            return None

    def _add(self, draft: Draft, f: Field, data: bytes, block: PaddedBytes, start: Array, stop: Array) -> None:
        if f.type is Type.STRING:
            found = block.distinct(start, stop)
            if found is not None and _add_strings(draft, f, *found):
                return
        else:
            values = self._plain(f, block, start, stop)
            if values is not None:
                draft.add(values)
                return
        cells = [data[a:b] for a, b in zip(start.tolist(), stop.tolist())]
        add_values(draft, f, _read(cells), self._intake.ns_per_unit)

    def _plain(self, f: Field, block: PaddedBytes, start: Array, stop: Array) -> Array | None:
        """Read a column by arithmetic; None when it holds another form, such as NULL or an exponent."""
        if f.type is Type.BOOLEAN:
            return block.booleans(start, stop)
        if f.type is Type.FLOAT or f.type is Type.DOUBLE:
            values = block.decimals(start, stop)
            return None if values is None else finite(values, f.type)
        values = block.integers(start, stop)
        if values is None or f.type is Type.BIGINT:
            return values
        if f.type is Type.TIMESTAMP:
            return scale(values, self._intake.ns_per_unit)
        if int(values.max()) > _INT32.max or int(values.min()) < _INT32.min:
            return None
        return values.astype(np.int32)


def _edges(block: PaddedBytes, width: int) -> Array | None:
    """Return for each line the places before its first field, between fields and behind the last, as ``width + 1``
    rows; None when a line has more or fewer commas than ``width`` fields need."""
    text = block.text
    found = np.flatnonzero((text == _COMMA) | (text == _NEWLINE))
    lines, rest = divmod(found.shape[0], width)
    if rest or text[found].tobytes() != (b"," * (width - 1) + b"\n") * lines:
        return None
    edges = np.empty((width + 1, lines), np.int64)
    edges[1:] = found.reshape(lines, width).T
    edges[0, 0] = -1
    edges[0, 1:] = edges[-1, :-1]
    return edges


def _has(data: bytes, at: Array, want: bytes) -> bool:
    """Check that ``want`` stands at each of these places, which lie inside the block. A view of all windows costs
    nothing when it is indexed; ``take`` would copy it first."""
    windows: Array = np.ndarray((len(data) - len(want) + 1,), f"S{len(want)}", data, strides=(1,))
    return bool(windows[at].tobytes() == want * at.shape[0])


def _add_strings(draft: Draft, f: Field, raw: list[bytes], places: Array) -> bool:
    """Add distinct strings as they stand in the text, with quotes and escapes. False when one is not a string."""
    strings = _read(raw)
    if set(map(type, strings)) != {str}:
        return False
    draft.add_strings(strings, places)
    return True


def _read(cells: list[bytes]) -> list[Any]:
    """Read values with orjson. No cell has a comma, so joined they are one array. A cell that leaves a quote or bracket
    open swallows the cells behind it, and then the count is wrong."""
    try:
        values: list[Any] = orjson.loads(b"[" + b",".join(cells) + b"]")
    except orjson.JSONDecodeError:
        raise MisfitError from None
    if len(values) != len(cells):
        raise MisfitError
    return values


class Layouts:
    """The layout of one connection's lines, learned again when it changes."""

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
