"""Choose the rows of a connection that are decoded, by their bytes alone. No socket, no codec.

Rows are lines. A read is cut into parts, and of each part one run of neighbouring lines is kept: the run begins at a
random place and goes round the end of its part, so every line has the same chance. Runs are as long as a codec needs to
decode by columns, which costs a third of decoding line by line. Refused: choosing each line by itself, which costs more
than to decode it.

A part keeps nothing or all where the share of it would be shorter than a run: the chance is then the share.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from router.line_framer import NEWLINE, count_lines

RUN_BYTES = 16 * 1024
PART_BYTES = 128 * 1024  # many runs a second: neighbours resemble each other


class EdgePiece(NamedTuple):
    """Whole lines to decode, and what was dropped right before them."""

    data: bytes
    skipped_rows: int = 0
    skipped_bytes: int = 0


class EdgeSample:
    """The bytes of one connection. Owner: the I/O thread."""

    def __init__(self, line_bytes: int, seed: int) -> None:
        self._line_bytes = line_bytes
        self._random = Random(seed)
        self._tail = b""  # the beginning of a line whose end has not come
        self._is_inside = False  # the decoder has the beginning of the line that the next byte belongs to

    @property
    def held_bytes(self) -> int:
        """Return the bytes of the unfinished line."""
        return len(self._tail)

    def whole(self, data: bytes) -> bytes:
        """Return the bytes of a read for the decoder, with nothing dropped, and an unfinished line as it is."""
        if self._tail:
            data, self._tail = self._tail + data, b""
        self._is_inside = not data.endswith(NEWLINE)
        return data

    def cut(self, data: bytes, share: float) -> list[EdgePiece]:
        """Return whole lines of a read, about this share of them. The last piece may have no bytes. An unfinished line
        waits for its end, unless it is too long: the decoder refuses it."""
        found: list[EdgePiece] = []
        if self._tail:
            data, self._tail = self._tail + data, b""
        start = 0
        if self._is_inside:
            start = data.find(NEWLINE) + 1
            if not start:
                return [EdgePiece(data)]
            found.append(EdgePiece(data[:start]))
            self._is_inside = False
        end = data.rfind(NEWLINE) + 1
        if len(data) - max(end, start) > self._line_bytes:
            self._is_inside = True
            return [*found, EdgePiece(data[start:])]
        self._tail = data[max(end, start) :]
        if end <= start:
            return found
        if share >= 1.0:
            return [*found, EdgePiece(data[start:end])]
        part_bytes = max(PART_BYTES, int(RUN_BYTES / max(share, 0.001)))
        while start < end:
            stop = end
            if end - start >= 2 * part_bytes:
                stop = data.index(NEWLINE, start + part_bytes) + 1
            found += self._runs(data, start, stop, share)
            start = stop
        return found

    def end(self) -> bytes:
        """Return a last line without its end."""
        rest, self._tail = self._tail, b""
        return rest

    def _runs(self, data: bytes, start: int, stop: int, share: float) -> list[EdgePiece]:
        size = stop - start
        if size * share < RUN_BYTES:
            if self._random.random() < share:
                return [EdgePiece(data[start:stop])]
            return [_dropped(data, start, stop)]
        at = int(self._random.random() * size)
        first = _line_from(data, start + at, stop)
        over = at + int(size * share) - size
        if over > 0:  # the run goes round: the part's beginning and its end are kept
            last = _line_from(data, start + over, stop)
            if last >= first:
                return [EdgePiece(data[start:stop])]
            gone = _dropped(data, last, first)
            return [EdgePiece(data[start:last]), gone._replace(data=data[first:stop])]
        last = _line_from(data, start + at + int(size * share), stop)
        return [_dropped(data, start, first)._replace(data=data[first:last]), _dropped(data, last, stop)]


def _line_from(data: bytes, at: int, stop: int) -> int:
    """Return where the next line begins."""
    return data.find(NEWLINE, at, stop) + 1 or stop


def _dropped(data: bytes, start: int, stop: int) -> EdgePiece:
    return EdgePiece(b"", count_lines(data[start:stop]), stop - start)
