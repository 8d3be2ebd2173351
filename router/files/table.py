"""Rows as aligned columns, for people who look at standard output.

A column is as wide as its name, the usual values of its type, and the widest value so far. The header comes with the
first row. When a wider value comes, the columns from there on are wider, and the header is repeated.
"""

from __future__ import annotations

from typing import Any
from unicodedata import combining, east_asian_width

import orjson

from catalog.schema import Schema, Type
from router.codecs.ndjson import NdjsonEncoder
from storage.train import Train

USUAL = {Type.TIMESTAMP: 24, Type.DOUBLE: 10, Type.FLOAT: 10, Type.BIGINT: 8, Type.INT: 6, Type.STRING: 8}
WIDEST = 60  # a longer value is cut in the table


class TableEncoder:
    """Called on one thread at a time. An ``Encoder``, for readers that are people."""

    def __init__(self, schema: Schema, timestamps: str = "iso", nan: str = "null") -> None:
        self._schema = schema
        self._rows = NdjsonEncoder(schema, timestamps, nan)  # so that values look as they do in ndjson
        self._widths = [max(_cells(f.name), USUAL.get(f.type, 5)) for f in schema]
        self._is_number = [f.type.is_numeric for f in schema]
        self._is_iso_time = [f.type is Type.TIMESTAMP and timestamps == "iso" for f in schema]
        self._has_begun = False

    @property
    def not_finite(self) -> int:
        return self._rows.not_finite

    def begin(self) -> bytes:
        return b""

    def encode(self, train: Train) -> bytes:
        rows = [list(orjson.loads(line).values()) for line in self._rows.encode(train).splitlines()]
        cells = [
            [_shown(value, is_time) for value, is_time in zip(row, self._is_iso_time, strict=True)] for row in rows
        ]
        widths = [
            max(w, *map(_cells, column)) for w, column in zip(self._widths, zip(*cells, strict=True), strict=True)
        ]
        head = b""
        if widths != self._widths or not self._has_begun:
            self._widths = widths
            head = (b"\n" if self._has_begun else b"") + self._head()
            self._has_begun = True
        return head + "".join(self._line(row) for row in cells).encode()

    def gap(self, tuples: int) -> bytes:
        return f"({tuples} rows are missing here)\n".encode()

    def end(self) -> bytes:
        return b""

    def _head(self) -> bytes:
        return (self._line([f.name for f in self._schema]) + self._line(["-" * w for w in self._widths])).encode()

    def _line(self, cells: list[str]) -> str:
        placed = [
            " " * (width - _cells(cell)) + cell if right else cell + " " * (width - _cells(cell))
            for cell, width, right in zip(cells, self._widths, self._is_number, strict=True)
        ]
        return "  ".join(placed).rstrip() + "\n"


def _cells(text: str) -> int:
    """Return the cells that a terminal takes for a text: two for a wide character, none for a combining one."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def _shown(value: Any, is_time: bool) -> str:
    if isinstance(value, str) and is_time:
        seconds, _, fraction = value.removesuffix("Z").partition(".")
        return f"{seconds}.{fraction.rstrip('0')}Z" if fraction.strip("0") else f"{seconds}Z"
    if isinstance(value, str):
        text = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in value)
        return text if len(text) <= WIDEST else text[: WIDEST - 3] + "..."
    if value is None:
        return "NULL"
    return (
        f"{value:.10g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)
    )
