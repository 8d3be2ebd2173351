"""csv by columns with Arrow's reader, used only where it must agree with the line by line decoder.

Arrow accepts more than our rules allow. So a block goes to the line by line decoder when it may hold one of these: a
quote that is not at the edge of a field (Arrow joins ``"a"b``), a lone carriage return (Arrow ends the line there),
``0x10`` (Arrow reads a number), or anything that Arrow itself refuses.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from catalog.schema import Type
from router.codecs.base import Intake
from router.codecs.decode.arrow_columns import text_train
from router.codecs.decode.values import MisfitError
from storage.train import Train

COLUMNAR_BYTES = 16 * 1024

ARROW_TYPES: dict[Type, Any] = {
    Type.BOOLEAN: pa.bool_(),
    Type.INT: pa.int32(),
    Type.BIGINT: pa.int64(),
    Type.FLOAT: pa.float64(),  # rounded to 32 bits afterwards, as the line by line decoder does
    Type.DOUBLE: pa.float64(),
    Type.STRING: pa.dictionary(pa.int32(), pa.string()),
}
_INTEGER = re.compile(rb"[ \t]*-?[0-9]+[ \t]*")
_ZONED = re.compile(rb"[T ][0-9:.]+(?:Z|[+-][0-9:]+)$")
_QUOTED = re.compile(rb'"((?:[^"]|"")*)"(?:,|\Z)', re.DOTALL)
_HEX = re.compile(rb'(?:^|[,\n"\t -])0[xX]')
_COMMA, _NEWLINE, _QUOTE = b',\n"'


def split_fields(line: bytes) -> list[tuple[bytes, bool]] | None:
    """Split a line into its fields, each with whether it was quoted; None when the quotes do not match."""
    if b'"' not in line:
        return [(cell, False) for cell in line.split(b",")]
    out: list[tuple[bytes, bool]] = []
    at = 0
    while True:
        quoted = line[at : at + 1] == b'"'
        if quoted:
            found = _QUOTED.match(line, at)
            if found is None:
                return None
            out.append((found[1].replace(b'""', b'"'), True))
            at = found.end()
            if at == len(line) and line[-1:] != b",":
                return out
        else:
            end = line.find(b",", at)
            out.append((line[at:] if end < 0 else line[at:end], False))
            if end < 0:
                return out
            at = end + 1


class ArrowCsv:
    """Decodes the blocks of one connection, whose header is known."""

    def __init__(self, intake: Intake, names: list[str], *, skips_empty_lines: bool) -> None:
        self._intake = intake
        self._names = names
        self._from_bytes = COLUMNAR_BYTES if intake.columnar_bytes is None else intake.columnar_bytes
        self._wanted = [f.name for f in intake.schema if f.name in names]
        self._times = [f.name for f in intake.schema if f.type is Type.TIMESTAMP and f.name in names]
        self._has_integers = any(f.type.is_integer or f.type is Type.TIMESTAMP for f in intake.schema)
        self._read = pa_csv.ReadOptions(use_threads=False, column_names=[f"c{i}" for i in range(len(names))])
        self._parse = pa_csv.ParseOptions(ignore_empty_lines=skips_empty_lines)
        self._convert = lru_cache(8)(self._convert_options)

    def decode(self, data: bytes, arrival_ns: int) -> Train | None:
        """Make a train of all lines, or return None: then decode line by line."""
        if len(data) < self._from_bytes or not self._wanted or not self._is_plain(data):
            return None
        try:
            kinds = self._time_kinds(data)
            source: Any = pa.BufferReader(data)
            self._read.block_size = len(data) + 64  # one block, one chunk
            table = pa_csv.read_csv(source, self._read, self._parse, self._convert(kinds))
            arrays = [self._array(table, f.name) for f in self._intake.schema]
            if not table.num_rows:
                return None
            return text_train(self._intake, arrays, arrival_ns)
        except (pa.ArrowInvalid, MisfitError):
            return None

    def _array(self, table: Any, name: str) -> Any:
        if name not in self._names:
            return None
        column = table.column(f"c{self._names.index(name)}")
        array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        field = self._intake.schema[name]
        if field.type is Type.STRING and not field.nullable and array.null_count:
            array = array.dictionary_decode().fill_null("").dictionary_encode()
        return array

    def _is_plain(self, data: bytes) -> bool:
        if b"\r" in data and data.count(b"\r") != data.count(b"\r\n"):
            return False
        if self._has_integers and (b"0x" in data or b"0X" in data) and _HEX.search(data):
            return False
        return b'"' not in data or _quotes_are_plain(data)

    def _time_kinds(self, data: bytes) -> tuple[str, ...]:
        """Find from the first line how each timestamp column is written; Arrow refuses lines that differ."""
        cells = split_fields(data[: data.index(b"\n")].removesuffix(b"\r"))
        if cells is None or len(cells) != len(self._names):
            raise MisfitError
        return tuple(_time_kind(cells[self._names.index(name)][0]) for name in self._times)

    def _convert_options(self, kinds: tuple[str, ...]) -> Any:
        types = {f.name: ARROW_TYPES[f.type] for f in self._intake.schema if f.type is not Type.TIMESTAMP}
        by_kind = {"integer": pa.int64(), "zoned": pa.timestamp("ns", "UTC"), "plain": pa.timestamp("ns")}
        types |= {name: by_kind[kind] for name, kind in zip(self._times, kinds)}
        at = {name: f"c{self._names.index(name)}" for name in self._wanted}
        return pa_csv.ConvertOptions(
            include_columns=list(at.values()),
            column_types={at[name]: types[name] for name in self._wanted},
            null_values=[""],
            true_values=["true", "True", "TRUE", "1"],
            false_values=["false", "False", "FALSE", "0"],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )


def _time_kind(cell: bytes) -> str:
    if _INTEGER.fullmatch(cell):
        return "integer"
    return "zoned" if _ZONED.search(cell) else "plain"


def _quotes_are_plain(data: bytes) -> bool:
    """Check that every quote opens or closes a field, on one line: then there is one way to read them."""
    text = np.frombuffer(data, np.uint8)
    quotes = np.flatnonzero(text == _QUOTE)
    if quotes.size % 2:
        return False
    opening, closing = quotes[0::2], quotes[1::2]
    before = text[opening - 1]  # -1 is the last byte, a newline: right for a quote that begins the block
    after = text[closing + 1]
    if not (((before == _COMMA) | (before == _NEWLINE)).all() and np.isin(after, (_COMMA, _NEWLINE, 13)).all()):
        return False
    newlines = np.flatnonzero(text == _NEWLINE)
    return bool((np.searchsorted(newlines, opening) == np.searchsorted(newlines, closing)).all())
