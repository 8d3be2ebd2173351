"""ndjson: one JSON object a line.

Rules: fields are found by name, in any order. Fields that the schema does not have are ignored. Of two equal keys the
last one counts. Blank lines are skipped. ``values.py`` says which values fit. A line ``{"_heartbeat": ts}`` is not a
tuple: it becomes an empty train with the watermark ``ts``. ``NaN`` and ``Infinity`` are not JSON and are refused. The
encoder writes a value that is not finite as ``null``, or as a string where the sink says ``nan: string``.

Three decoders give the same answer; the size of the block chooses (ns of CPU a row of four fields, 55 bytes):

    line by line, orjson             1,100   the reference: only this one finds which line is bad, and why
    a block joined into one array      700   any layout; from 2 lines on
    a block by its layout              200   ``ndjson_columns.py``; from 12 KiB on; releases the GIL
    for comparison: polars 410, pyarrow.json 610, orjson.loads alone 500

polars was refused as a decoder: it takes 5 or {"a": 1} for a string, the first of two equal keys, and a lone surrogate
as NUL. When a faster decoder fails, the block is decoded again in chunks of 64 lines, and a bad chunk line by line.

Four encoders: orjson for a few tuples (5 us for one, where orjson.loads takes 0.8), columns serialised one by one and
interleaved (210 ns a row), and for long trains compiled loops (``line_writer``) or, where there are none, polars, which
takes twice their CPU (and 500 us to start; both release the GIL).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import orjson

from catalog.schema import Schema
from router.codecs.base import Codec, Intake, Reason, Received, Reject
from router.codecs.decode.few_rows import FEW_ROWS, FewRowsReader
from router.codecs.decode.ndjson_columns import Layouts
from router.codecs.decode.rejects import Rejects
from router.codecs.decode.values import MISSING, MisfitError, make_train, refuse, timestamp_ns
from router.codecs.encode.few_rows import FewRowsWriter
from router.codecs.encode.frames import LONG_TUPLES, FrameWriter
from router.codecs.encode.line_writer import LineWriter
from router.codecs.encode.not_finite import NotFinite, put_words
from router.codecs.encode.text import interleave, pieces
from router.line_framer import LineBlock, LineFramer
from storage.train import Train

CHUNK_LINES = 64
_OPENING = (b"{", b"[")  # with [ the line goes to the parser, which reports nesting that is too deep
_DEEP = ("depth limit", "recursion limit", "allocate memory")  # in orjson's messages about deep nesting


class NdjsonDecoder:
    """Owner: the connection; one thread at a time."""

    takes_views: ClassVar[bool] = False

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self._framer = LineFramer(intake.line_bytes)
        self._layouts = Layouts(intake)
        self._few = FewRowsReader(intake)
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

    def _decode(self, pieces: list[LineBlock | Reject], arrival_ns: int) -> Received:
        out = Received([], [])
        for piece in pieces:
            if isinstance(piece, Reject):
                out.rejects.append(piece)
                self.received += piece.tuples
            else:
                self._block(piece, arrival_ns, out)
        return out

    def _block(self, block: LineBlock, arrival_ns: int, out: Received) -> None:
        train = self._layouts.decode(block.data, arrival_ns) or self._quickly(block.data, arrival_ns)
        if train is None:
            self._in_chunks(block, arrival_ns, out)
        else:
            self.received += train.count
            out.trains.append(train)

    def _quickly(self, data: bytes, arrival_ns: int) -> Train | None:
        """Decode the whole block, or return None when a line is bad or blank."""
        try:
            rows = self._parse(data)
            train = self._few.train(rows, arrival_ns) if len(rows) <= FEW_ROWS else None
            return train or make_train(self._intake, self._columns(rows), arrival_ns)
        except (orjson.JSONDecodeError, MisfitError, KeyError):
            return None

    def _columns(self, rows: list[dict[str, Any]]) -> list[list[Any]]:
        """Gather the values by field. Raises KeyError when a field is missing that is not nullable."""
        out: list[list[Any]] = []
        for f in self._intake.schema.fields:
            name = f.name
            try:
                out.append([row[name] for row in rows])
            except KeyError:
                if not f.nullable:
                    raise
                out.append([row.get(name) for row in rows])
        return out

    @staticmethod
    def _parse(data: bytes) -> list[dict[str, Any]]:
        """Parse every line, or raise. A blank line raises too: the line by line decoder skips it.

        Joined lines hold one object each when every newline stands between } and { and no array is open: an object
        cannot go on with "},{", so each newline is outside all objects, and the number of objects proves the rest.
        """
        lines = data.count(b"\n")
        if lines == 1:
            rows = [orjson.loads(data)]
            if type(rows[0]) is not dict:
                raise MisfitError
        elif b"[" not in data and data.count(b"}\n{") == lines - 1 and data[:1] == b"{":
            rows = orjson.loads(b"[" + data[:-1].replace(b"\n", b",") + b"]")
            if len(rows) != lines:
                raise MisfitError
        else:
            rows = list(map(orjson.loads, data[:-1].split(b"\n")))
            if set(map(type, rows)) != {dict}:
                raise MisfitError
        return rows

    # -- line by line -------------------------------------------------------------------------------------------------

    def _in_chunks(self, block: LineBlock, arrival_ns: int, out: Received) -> None:
        """Decode the good lines of the block as one train, and make a reject for every bad one."""
        parts: list[Train] = []
        beats: list[int] = []
        rejects = Rejects()
        lines = block.data[:-1].split(b"\n")
        offset = block.offset
        for start in range(0, len(lines), CHUNK_LINES):
            chunk = lines[start : start + CHUNK_LINES]
            train = self._quickly(b"\n".join(chunk) + b"\n", arrival_ns) if len(chunk) < len(lines) else None
            if train is None:
                train = self._line_by_line(chunk, block.line + start, offset, arrival_ns, rejects, beats)
            else:
                self.received += train.count
            if train is not None:
                parts.append(train)
            offset += sum(map(len, chunk)) + len(chunk)
        out.rejects.extend(rejects.all())
        if parts:
            out.trains.append(Train.concat(parts))
        if beats:
            out.trains.append(Train.empty(self._intake.schema, max(beats)))

    def _line_by_line(
        self, lines: list[bytes], number: int, offset: int, arrival_ns: int, rejects: Rejects, beats: list[int]
    ) -> Train | None:
        good: list[dict[str, Any]] = []
        for line in lines:
            if (beat := self._heartbeat(line)) is not None:
                beats.append(beat)
            elif line and not line.isspace():
                self.received += 1
                row = self._row(line)
                if isinstance(row, dict):
                    good.append(row)
                else:
                    rejects.add(row[0], number, offset, row[1], line)
            number += 1
            offset += len(line) + 1
        return make_train(self._intake, self._columns(good), arrival_ns) if good else None

    def _heartbeat(self, line: bytes) -> int | None:
        """Return the time of ``{"_heartbeat": ts}``: the sender has come this far. None for any other line."""
        if b'"_heartbeat"' not in line:
            return None
        try:
            row = orjson.loads(line)
            return timestamp_ns(row["_heartbeat"], self._intake.ns_per_unit) if [*row] == ["_heartbeat"] else None
        except (orjson.JSONDecodeError, ValueError, TypeError):
            return None

    def _row(self, line: bytes) -> dict[str, Any] | tuple[Reason, str]:
        """Parse one line to a row that fits the schema, or return the reason and a message."""
        if line[:1] not in _OPENING and line.lstrip()[:1] not in _OPENING:
            return Reason.MALFORMED, "not a JSON object"  # the exception of a parser costs 2 us
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            return _reason(line, error), f"not JSON: {error}"[:200]
        if not isinstance(row, dict):
            return Reason.MALFORMED, "not a JSON object"
        for f in self._intake.schema.fields:
            why = refuse(f, row.get(f.name, MISSING), self._intake.ns_per_unit)
            if why is not None:
                return why
        return row


def _reason(line: bytes, error: orjson.JSONDecodeError) -> Reason:
    if any(word in str(error) for word in _DEEP):
        return Reason.TOO_DEEP
    try:
        line.decode()
    except UnicodeDecodeError:
        return Reason.INVALID_UTF8
    return Reason.MALFORMED


def _json_strings(strings: Sequence[str]) -> npt.NDArray[np.object_]:
    """Write each string as JSON. In one call: what orjson returns is a buffer of a kilobyte that it cuts down, and the
    rest of each buffer stays with the process. (JSON has no bare newline within a string.)"""
    out = np.empty(len(strings), object)
    if strings:
        out[:] = orjson.dumps(list(strings), option=orjson.OPT_INDENT_2)[4:-2].split(b",\n  ")
    return out


class NdjsonEncoder:
    """Called on one worker at a time."""

    def __init__(self, schema: Schema, timestamps: str = "iso", nan: str = "null") -> None:
        self._not_finite = NotFinite(schema, nan)
        self._schema = schema
        self._timestamps = timestamps
        self._frames = FrameWriter(timestamps)
        self._few = FewRowsWriter(schema, timestamps)
        self._between = [(b"," if i else b"{") + orjson.dumps(f.name) + b":" for i, f in enumerate(schema.fields)]
        self._lines = LineWriter(schema, timestamps, self._between, b"}\n", b"null", b'"', _json_strings)

    def begin(self) -> bytes:
        return b""

    @property
    def not_finite(self) -> int:
        return self._not_finite.count

    def encode(self, train: Train) -> bytes:
        if train.count <= FEW_ROWS:
            data = self._few.ndjson(train)
        elif (lines := self._lines.write(train)) is not None:
            data = lines
        elif train.count >= LONG_TUPLES:
            data = self._frames.ndjson(train)
        else:
            data = interleave(self._columns(train), self._between, b"}\n")
        if self._not_finite.fields and b":null" in data:
            odd = self._not_finite.find(train)
            if odd and self._not_finite.as_words:
                columns = self._columns(train)
                for at, places in odd.items():
                    put_words(columns[at], places, train.columns[at], b'"')
                data = interleave(columns, self._between, b"}\n")
        return data

    def _columns(self, train: Train) -> list[list[bytes]]:
        return [pieces(train, i, self._timestamps, b"null", b'"', _json_strings) for i in range(len(self._schema))]

    def gap(self, tuples: int) -> bytes:
        return b'{"_gap":%d}\n' % tuples

    def end(self) -> bytes:
        return b""


CODEC = Codec(NdjsonDecoder, NdjsonEncoder, is_lines=True)
