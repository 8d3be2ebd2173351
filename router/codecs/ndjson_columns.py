"""ndjson by its layout: a sender writes its keys in one order with one spacing, so a block of lines is a table.

Learn the text around the values from the first line, check with numpy that every line has it, and read the values
column by column: plain numbers and short strings by arithmetic (``digits.py``), whatever else is in a column by orjson,
its cells joined into one array. 200 ns a row of four fields where polars takes 410 of CPU and pyarrow.json 610; nearly
all of it without Python's lock.

Taken only where it is sure to agree with the careful way, and else None: every line has exactly the commas between its
fields, every key in its place, and its end. A comma in a string, a field more or less, or a nested value changes that.
Values are JSON because ``digits.py`` knows only forms that are, and orjson reads the rest.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np
import orjson

from catalog.schema import Field, Type
from router.codecs.base import Intake
from router.codecs.digits import Block
from router.codecs.draft import Draft
from router.codecs.values import MisfitError, add_values, finite, scale
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
    """How the lines of one sender look."""

    def __init__(self, intake: Intake, columns: tuple[Column, ...]) -> None:
        self._intake = intake
        self._columns = columns
        self._at = {column.field.name: i for i, column in enumerate(columns)}

    @classmethod
    def learn(cls, intake: Intake, line: bytes) -> Layout | None:
        """From one line (without its newline); None when it is not a flat object of our fields."""
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
        """A train of all lines, or None."""
        if b"\0" in data:
            return None
        block = Block(data)
        edges = _edges(block, len(self._columns))
        if edges is None:
            return None
        values: list[tuple[Array, Array]] = []
        for i, column in enumerate(self._columns):
            start = edges[i] + (1 + len(column.before))
            stop = edges[i + 1] - len(column.behind)
            # The first test keeps what follows inside the block, and values from being empty.
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

    def _add(self, draft: Draft, f: Field, data: bytes, block: Block, start: Array, stop: Array) -> None:
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

    def _plain(self, f: Field, block: Block, start: Array, stop: Array) -> Array | None:
        """By arithmetic; None when the column holds something else, be it NULL or an exponent."""
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


def _edges(block: Block, width: int) -> Array | None:
    """For each line the places before its first field, between fields, and behind the last, as ``width + 1`` rows;
    None when a line has more or fewer commas than ``width`` fields need."""
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
    """Whether ``want`` stands at every one of these places, which lie inside. A view of all windows costs nothing as
    long as it is indexed: ``take`` would copy it first."""
    windows: Array = np.ndarray((len(data) - len(want) + 1,), f"S{len(want)}", data, strides=(1,))
    return bool(windows[at].tobytes() == want * at.shape[0])


def _add_strings(draft: Draft, f: Field, raw: list[bytes], places: Array) -> bool:
    """Distinct strings as they stand in the text, quotes and escapes and all. False: NULL among them, or no strings."""
    strings = _read(raw)
    if set(map(type, strings)) != {str}:
        return False
    draft.add_strings(strings, places)
    return True


def _read(cells: list[bytes]) -> list[Any]:
    """Values by orjson. No cell has a comma, so joined they are one array: what one of them leaves open swallows
    others, and the count shows it."""
    try:
        values: list[Any] = orjson.loads(b"[" + b",".join(cells) + b"]")
    except orjson.JSONDecodeError:
        raise MisfitError from None
    if len(values) != len(cells):
        raise MisfitError
    return values


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
