"""csv: the first line is the header, then one tuple a line.

Rules: columns come in any order. A column that the schema does not have is ignored. A
missing column is NULL in every tuple when its field is nullable; otherwise the connection is refused. Commas separate
fields. A quoted field may hold commas and doubled quotes, but no newline (``line_framer``). An empty field is NULL when
the field is nullable and the empty string in a string field that is not; other types refuse it. A quoted empty field is
the empty string. Numbers may have blanks around them. true, false, 1, 0 and their capitals are booleans. NaN and
infinity are refused; the encoder writes them as empty fields, or as words where the sink says ``nan: string``. Empty
lines are skipped, except where the only column is a nullable field: there an empty line is a tuple with NULL. Where the
only column is a number that is not nullable, the encoder writes NaN as ``""``, so that no reader skips the tuple.

Three decoders give the same answer (ns of CPU a row of four fields). Compiled loops, where numba is installed
(``plain_lines``). From 16 KiB on, Arrow's reader: 180 (polars: 176) and 250 us to start. For smaller blocks, and for
blocks with anything unusual, the decoder here: 1,350.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from catalog.schema import Field, Schema, Type
from router.codecs.base import Codec, Intake, Reason, Received, Reject, sample
from router.codecs.decode.csv_columns import ArrowCsv, split_fields
from router.codecs.decode.plain_lines import PlainLines
from router.codecs.decode.rejects import Rejects
from router.codecs.decode.values import MISSING, MisfitError, make_train, refuse
from router.codecs.encode.frames import LONG_TUPLES, FrameWriter
from router.codecs.encode.line_writer import LineWriter
from router.codecs.encode.not_finite import NotFinite, put_words
from router.codecs.encode.text import interleave, pieces
from router.line_framer import LineBlock, LineFramer
from storage.train import Train

BOOLEANS = {b"true": True, b"True": True, b"TRUE": True, b"1": True} | {
    b"false": False, b"False": False, b"FALSE": False, b"0": False,
}  # fmt: skip
_INT = re.compile(rb"[ \t]*-?[0-9]+[ \t]*")
_FLOAT = re.compile(rb"[ \t]*[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[ \t]*")
_INTS = re.compile(rb"-?[0-9]{1,18}(?:,-?[0-9]{1,18})*")
_FLOATS = re.compile(rb"-?[0-9]+(?:\.[0-9]+)?(?:,-?[0-9]+(?:\.[0-9]+)?)*")
LONG_NUMBER = 400  # digits beyond any type; Python itself refuses to read 4,300


class CsvDecoder:
    """Owner: the connection; one thread at a time."""

    takes_views: ClassVar[bool] = False

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self._framer = LineFramer(intake.line_bytes)
        self._header: list[str] | None = None
        self._at: list[int] = []  # for each field of the schema its place in a line, -1 when it is not there
        self._empty_is_null = False  # an empty line is a tuple: the only column is a nullable field
        self._plain: PlainLines | None = None
        self._fast: ArrowCsv | None = None
        self._refused = False
        self.received = 0

    @property
    def unfinished_bytes(self) -> int:
        return self._framer.held_bytes

    @property
    def kept_bytes(self) -> int:
        return 0

    def receive(self, data: bytes, arrival_ns: int) -> Received:
        return self._decode(self._framer.receive(data), arrival_ns)

    def end(self, arrival_ns: int) -> Received:
        return self._decode(self._framer.end(), arrival_ns)

    def _decode(self, parts: list[LineBlock | Reject], arrival_ns: int) -> Received:
        out = Received([], [])
        for part in parts:
            if self._refused:
                break
            if isinstance(part, Reject):
                out.rejects.append(part)
                self.received += part.tuples
            else:
                self._block(part, arrival_ns, out)
        return out

    def _block(self, block: LineBlock, arrival_ns: int, out: Received) -> None:
        if self._header is None:
            rest = self._read_header(block, out)
            if rest is None:
                return
            block = rest
        assert self._plain is not None and self._fast is not None
        train = self._plain.decode(block.data, arrival_ns) or self._fast.decode(block.data, arrival_ns)
        if train is None:
            train = self._without_arrow(block, arrival_ns, out)
        else:
            self.received += train.count
        if train is not None and train.count:
            out.trains.append(train)

    # -- the header ---------------------------------------------------------------------------------------------------

    def _read_header(self, block: LineBlock, out: Received) -> LineBlock | None:
        """Take the header from the block. Return the rest; None when nothing is left or the header is refused."""
        line, _, rest = block.data.partition(b"\n")
        after = LineBlock(rest, block.line + 1, block.offset + len(line) + 1)
        if not line.strip():
            return self._read_header(after, out) if rest else None
        why = self._set_header(line.strip())
        if why is not None:
            self._refused = True
            self.received += 1
            out.rejects.append(Reject(why[0], block.line, block.offset, why[1], sample(line), fatal=True))
            return None
        return after if rest else None

    def _set_header(self, line: bytes) -> tuple[Reason, str] | None:
        cells = split_fields(line)
        if cells is None:
            return Reason.MALFORMED, "the first line must be the header; its quotes do not match"
        try:
            names = [cell.decode().strip() for cell, _ in cells]
        except UnicodeDecodeError:
            return Reason.INVALID_UTF8, "the header is not UTF-8"
        if len(set(names)) < len(names):
            return Reason.MALFORMED, "the header names a column twice"
        schema = self._intake.schema
        for f in schema:
            if f.name not in names and not f.nullable:
                return Reason.WRONG_SCHEMA, f"the first line must be the header: it has no column {f.name}"
        self._header = names
        self._at = [names.index(f.name) if f.name in names else -1 for f in schema]
        self._empty_is_null = len(names) == 1 and names[0] in schema and schema[names[0]].nullable
        self._plain = PlainLines(self._intake, names)
        self._fast = ArrowCsv(self._intake, names, skips_empty_lines=not self._empty_is_null)
        return None

    # -- line by line -------------------------------------------------------------------------------------------------

    def _without_arrow(self, block: LineBlock, arrival_ns: int, out: Received) -> Train | None:
        assert self._header is not None
        lines = block.data[:-1].split(b"\n")
        if b'"' not in block.data and b"\r" not in block.data and (self._empty_is_null or b"" not in lines):
            cells = [line.split(b",") for line in lines]
            if set(map(len, cells)) == {len(self._header)}:
                try:
                    train = self._columns(list(zip(*cells)), len(lines), arrival_ns)
                except MisfitError:
                    pass
                else:
                    self.received += train.count
                    return train
        return self._line_by_line(lines, block, arrival_ns, out)

    def _columns(self, columns: list[tuple[bytes, ...]], count: int, arrival_ns: int) -> Train:
        """Decode all lines at once, column by column. Raises MisfitError when a value is not plain."""
        values = [
            [None] * count if at < 0 else whole_column(f, columns[at])
            for f, at in zip(self._intake.schema.fields, self._at)
        ]
        return make_train(self._intake, values, arrival_ns)

    def _line_by_line(self, lines: list[bytes], block: LineBlock, arrival_ns: int, out: Received) -> Train | None:
        good: list[list[Any]] = []
        rejects = Rejects()
        offset = block.offset
        for number, line in enumerate(lines, block.line):
            text = line.removesuffix(b"\r")
            if text or self._empty_is_null:
                self.received += 1
                row = self._row(text)
                if isinstance(row, list):
                    good.append(row)
                else:
                    rejects.add(row[0], number, offset, row[1], line)
            offset += len(line) + 1
        out.rejects.extend(rejects.all())
        return make_train(self._intake, [list(c) for c in zip(*good)], arrival_ns) if good else None

    def _row(self, line: bytes) -> list[Any] | tuple[Reason, str]:
        assert self._header is not None
        cells = split_fields(line)
        if cells is None:
            return Reason.MALFORMED, "a quote is not closed, or text follows a closing quote"
        if len(cells) != len(self._header):
            return Reason.MALFORMED, f"{len(cells)} fields where the header has {len(self._header)}"
        row: list[Any] = []
        for f, at in zip(self._intake.schema.fields, self._at):
            value = MISSING if at < 0 else one_value(f, *cells[at])
            if isinstance(value, tuple):
                return value
            why = refuse(f, value, self._intake.ns_per_unit)
            if why is not None:
                return why
            row.append(None if value is MISSING else value)
        return row


def whole_column(f: Field, cells: Sequence[bytes]) -> list[Any]:
    """Read a column of unquoted fields. Raises MisfitError unless all of them are plain."""
    if f.type is Type.STRING:
        try:
            return [c.decode() or None for c in cells] if f.nullable else [c.decode() for c in cells]
        except UnicodeDecodeError:
            raise MisfitError from None
    if f.type is Type.BOOLEAN:
        try:
            return [BOOLEANS[c] for c in cells]
        except KeyError:
            raise MisfitError from None
    joined = b",".join(cells)
    if f.type is Type.FLOAT or f.type is Type.DOUBLE:
        if _FLOATS.fullmatch(joined):
            return list(map(float, cells))
    elif _INTS.fullmatch(joined):
        return list(map(int, cells))
    raise MisfitError


def one_value(f: Field, cell: bytes, quoted: bool) -> Any:
    """Read one field: a Python value, or (reason, message)."""
    if f.type is Type.STRING:
        if not cell and not quoted and f.nullable:
            return None
        try:
            return cell.decode()
        except UnicodeDecodeError:
            return Reason.INVALID_UTF8, f"field {f.name} is not UTF-8"
    if not cell and not quoted:
        return None
    if f.type is Type.BOOLEAN:
        value: Any = BOOLEANS.get(cell)
    elif f.type is Type.FLOAT or f.type is Type.DOUBLE:
        value = float(cell) if _FLOAT.fullmatch(cell) else None
    elif _INT.fullmatch(cell):
        if len(cell) > LONG_NUMBER:
            return Reason.OUT_OF_RANGE, f"field {f.name}: {len(cell)} digits"
        value = int(cell)
    else:
        value = cell.decode("ascii", "replace") if f.type is Type.TIMESTAMP else None
    if value is None:
        return Reason.WRONG_TYPE, f"field {f.name}: {sample(cell)[:40]!r} is not a {f.type}"
    return value


# -- out -------------------------------------------------------------------------------------------------------------


def _csv_strings(strings: Sequence[str]) -> npt.NDArray[np.object_]:
    out = np.empty(len(strings), object)
    out[:] = list(map(_csv_string, strings))
    return out


def _csv_string(text: str) -> bytes:
    if not text or any(c in text for c in ',"\r\n'):
        text = '"' + text.replace('"', '""') + '"'
    return text.encode()


class CsvEncoder:
    """Called on one worker at a time."""

    def __init__(self, schema: Schema, timestamps: str = "iso", nan: str = "null") -> None:
        self._not_finite = NotFinite(schema, nan)
        self._is_alone = len(schema) == 1 and not schema.fields[0].nullable  # an empty line would be skipped
        self._schema = schema
        self._timestamps = timestamps
        self._frames = FrameWriter(timestamps)
        self._between = [b"," if i else b"" for i in range(len(schema))]
        self._lines = LineWriter(schema, timestamps, self._between, b"\n", b"", b"", _csv_strings)

    def begin(self) -> bytes:
        return b",".join([_csv_string(name) for name in self._schema.names]) + b"\n"

    @property
    def not_finite(self) -> int:
        return self._not_finite.count

    def encode(self, train: Train) -> bytes:
        odd = self._not_finite.find(train)
        as_words = self._not_finite.as_words
        if not (odd and (as_words or self._is_alone)) and (data := self._lines.write(train)) is not None:
            return data
        if train.count >= LONG_TUPLES and not (odd and (as_words or self._is_alone)):
            return self._frames.csv(train)
        columns = [pieces(train, i, self._timestamps, b"", b"", _csv_strings) for i in range(len(self._schema))]
        for at, places in odd.items():
            if as_words:
                put_words(columns[at], places, train.columns[at], b"")
            elif self._is_alone:
                for place in places.tolist():
                    columns[at][place] = b'""'
        return interleave(columns, self._between, b"\n")

    def gap(self, tuples: int) -> bytes:
        return b"# gap %d\n" % tuples

    def end(self) -> bytes:
        return b""


CODEC = Codec(CsvDecoder, CsvEncoder, is_lines=True)
