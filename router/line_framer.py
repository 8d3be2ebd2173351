"""Find whole lines in bytes that arrive in pieces of any size.

The framer returns blocks and not lines, because the codecs decode many lines at once. A block is whole lines, at most
about ``BLOCK_BYTES`` of them, which limits the work of one call. Only the newline ends a line: a stray quote or bracket
spoils its own line and no other. (For that reason a CSV field cannot hold a newline here.)

A line above the limit is refused as soon as it is too long. The framer skips the rest of it without keeping it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from router.codecs.base import Reason, Reject, sample

NEWLINE = b"\n"
BLOCK_BYTES = 4 * 1024**2
BOM = b"\xef\xbb\xbf"


class LineBlock(NamedTuple):
    """Whole lines, each with its newline. ``line`` counts from 1, ``offset`` from 0, within the connection."""

    data: bytes
    line: int
    offset: int


class LineFramer:
    """Bytes in, blocks and rejects out, in order. ``end`` returns a last line that has no newline."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._tail = bytearray()  # the beginning of an unfinished line; never above the limit
        self._skipping = False  # inside a line that was refused as too long
        self._line = 1  # of the first byte in _tail, or of the next byte
        self._offset = 0

    @property
    def held_bytes(self) -> int:
        """Return the bytes of the unfinished line."""
        return len(self._tail)

    def receive(self, data: bytes) -> list[LineBlock | Reject]:
        out: list[LineBlock | Reject] = []
        if self._skipping:
            data = self._skip(data)
        last = data.rfind(NEWLINE)
        if last + 1 == len(data) <= self._limit and not self._tail and self._offset:
            self._emit(data, out)  # the usual read of a slow sender: whole lines
            return out
        if last < 0:
            self._tail += data
            self._refuse_long_tail(out)
            return out
        whole = data[: last + 1]
        if self._tail:
            whole = bytes(self._tail) + whole
            self._tail.clear()
        self._split(whole, out)
        if last + 1 < len(data):
            self._tail += data[last + 1 :]
            self._refuse_long_tail(out)
        return out

    def end(self) -> list[LineBlock | Reject]:
        out: list[LineBlock | Reject] = []
        if self._tail:
            self._split(bytes(self._tail) + NEWLINE, out)
            self._tail.clear()
        return out

    def _skip(self, data: bytes) -> bytes:
        """Skip to the end of a refused line, and return the bytes after it."""
        at = data.find(NEWLINE)
        if at < 0:
            self._offset += len(data)
            return b""
        self._skipping = False
        self._line += 1
        self._offset += at + 1
        return data[at + 1 :]

    def _refuse_long_tail(self, out: list[LineBlock | Reject]) -> None:
        if len(self._tail) > self._limit:
            out.append(self._too_long(self._tail))
            self._offset += len(self._tail)
            self._tail.clear()
            self._skipping = True

    def _too_long(self, data: bytes | bytearray) -> Reject:
        message = f"a line of more than {self._limit:,} bytes"
        return Reject(Reason.TOO_LONG, self._line, self._offset, message, sample(bytes(data[:512])))

    def _split(self, data: bytes, out: list[LineBlock | Reject]) -> None:
        """Split ``data``, which ends in a newline, into blocks of whole lines and rejects for lines above the limit."""
        if self._offset == 0 and data.startswith(BOM):
            data = b"   " + data[3:]  # spaces, so that offsets stay true
        start = at = 0
        while len(data) - at > self._limit + 1:
            newline = data.rfind(NEWLINE, at, at + self._limit + 1)
            if newline >= 0:
                at = newline + 1
                if at - start >= BLOCK_BYTES:
                    self._emit(data[start:at], out)
                    start = at
                continue
            self._emit(data[start:at], out)
            start = data.find(NEWLINE, at + self._limit + 1) + 1
            out.append(self._too_long(data[at : at + 512]))
            self._line += 1
            self._offset += start - at
            at = start
        self._emit(data if start == 0 else data[start:], out)

    def _emit(self, block: bytes, out: list[LineBlock | Reject]) -> None:
        if block:
            out.append(LineBlock(block, self._line, self._offset))
            self._line += count_lines(block)
            self._offset += len(block)


def count_lines(data: bytes) -> int:
    """Count the newlines. When there are many, numpy counts them in a tenth of the time."""
    if len(data) < 4096:
        return data.count(NEWLINE)
    return int(np.count_nonzero(np.frombuffer(data, np.uint8) == 10))
