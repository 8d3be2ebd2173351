"""ndjson: one JSON object a line.

Rules: fields by name, in any order; a field that the schema does not have is ignored; a key twice: the last one counts;
blank lines are nothing; the rest is ``values.py``. A line ``{"_heartbeat": ts}`` is no tuple: it comes out as a train
of none whose watermark is the time it names. ``NaN`` and ``Infinity`` are not JSON and are refused; going out, a
value that is not finite is written as ``null``, as JSON has no word for it.

Three ways in, the same answer from each, chosen by what has arrived (ns of CPU a row of four fields, 55 bytes):

    lines one by one, orjson       1,100   the reference: it alone says which line is bad and why
    a block joined into one array    700   any layout; from 2 lines on
    a block by its layout            200   ``ndjson_columns.py``; from 12 KiB on, lets go of Python's lock
    for comparison: polars 410, pyarrow.json 610, orjson.loads alone 500

polars was refused: it takes 5 or {"a": 1} for a string, the first of two equal keys, and a lone surrogate as NUL. When
a faster way stumbles over anything, the block is taken again in chunks of 64 lines, and a bad chunk line by line.

Three ways out: a few tuples by orjson (5 us for one, where orjson.loads takes 0.8), columns serialised one by one and
interleaved (210 ns a row), and polars for long trains (150 to 190 ns without Python's lock, 500 us to start).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import orjson

from catalog.schema import Schema
from router.codecs.base import Intake, Reason, Received, Reject
from router.codecs.few import FEW, FewIn, FewOut
from router.codecs.frames import LONG_TUPLES, FrameWriter
from router.codecs.ndjson_columns import Layouts
from router.codecs.rejects import Rejects
from router.codecs.text import interleave, pieces
from router.codecs.values import MISSING, MisfitError, make_train, refuse, timestamp_ns
from router.protocol import Block, LineFramer
from storage.train import Train

CHUNK_LINES = 64
_OPENING = (b"{", b"[")  # the second for the sake of the depth limit
_DEEP = ("depth limit", "recursion limit", "allocate memory")  # orjson's words for nesting that it will not follow


class NdjsonDecoder:
    """Owner: the connection; one thread at a time."""

    takes_views: ClassVar[bool] = False

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self._framer = LineFramer(intake.line_bytes)
        self._layouts = Layouts(intake)
        self._few = FewIn(intake)
        self.received = 0

    def receive(self, data: bytes, arrival_ns: int) -> Received:
        return self._decode(self._framer.receive(data), arrival_ns)

    def end(self, arrival_ns: int) -> Received:
        return self._decode(self._framer.end(), arrival_ns)

    def _decode(self, pieces: list[Block | Reject], arrival_ns: int) -> Received:
        out = Received([], [])
        for piece in pieces:
            if isinstance(piece, Reject):
                out.rejects.append(piece)
                self.received += piece.tuples
            else:
                self._block(piece, arrival_ns, out)
        return out

    def _block(self, block: Block, arrival_ns: int, out: Received) -> None:
        train = self._layouts.decode(block.data, arrival_ns) or self._quickly(block.data, arrival_ns)
        if train is None:
            self._carefully(block, arrival_ns, out)
        else:
            self.received += train.count
            out.trains.append(train)

    def _quickly(self, data: bytes, arrival_ns: int) -> Train | None:
        """All of it, or None when any line is bad or blank."""
        try:
            rows = self._parse(data)
            train = self._few.train(rows, arrival_ns) if len(rows) <= FEW else None
            return train or make_train(self._intake, self._columns(rows), arrival_ns)
        except (orjson.JSONDecodeError, MisfitError, KeyError):
            return None

    def _columns(self, rows: list[dict[str, Any]]) -> list[list[Any]]:
        """KeyError when a field is missing that may not be."""
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
        """Every line, or an exception. Blank lines raise too: the careful way knows them.

        Joined lines are sure to be one object each when every newline stands between } and { and no array is open:
        an object cannot go on with "},{", so each newline is outside all objects, and the count says the rest.
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

    # -- the careful way ----------------------------------------------------------------------------------------------

    def _carefully(self, block: Block, arrival_ns: int, out: Received) -> None:
        """Good lines of the block as one train, and a reject for every bad one."""
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
        """``{"_heartbeat": ts}``: no tuple, but the word that the sender has come this far. None for any other line."""
        if b'"_heartbeat"' not in line:
            return None
        try:
            row = orjson.loads(line)
            return timestamp_ns(row["_heartbeat"], self._intake.ns_per_unit) if [*row] == ["_heartbeat"] else None
        except (orjson.JSONDecodeError, ValueError, TypeError):
            return None

    def _row(self, line: bytes) -> dict[str, Any] | tuple[Reason, str]:
        """One line as a row that fits the schema, or why not."""
        if line[:1] not in _OPENING and line.lstrip()[:1] not in _OPENING:
            return Reason.MALFORMED, "not a JSON object"  # a parser's exception costs 2 us, and there may be many
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
    out = np.empty(len(strings), object)
    out[:] = list(map(orjson.dumps, strings))
    return out


class NdjsonEncoder:
    """Called on one worker at a time."""

    def __init__(self, schema: Schema, timestamps: str = "iso") -> None:
        self._schema = schema
        self._timestamps = timestamps
        self._frames = FrameWriter(timestamps)
        self._few = FewOut(schema, timestamps)
        self._between = [(b"," if i else b"{") + orjson.dumps(f.name) + b":" for i, f in enumerate(schema.fields)]

    def begin(self) -> bytes:
        return b""

    def encode(self, train: Train) -> bytes:
        if train.count <= FEW:
            return self._few.ndjson(train)
        if train.count >= LONG_TUPLES:
            return self._frames.ndjson(train)
        columns = [pieces(train, i, self._timestamps, b"null", b'"', _json_strings) for i in range(len(self._schema))]
        return interleave(columns, self._between, b"}\n")

    def gap(self, tuples: int) -> bytes:
        return b'{"_gap":%d}\n' % tuples

    def end(self) -> bytes:
        return b""
