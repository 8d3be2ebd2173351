"""One log record as bytes, and the search for records in a file that may be torn or damaged.

    magic 4 | payload bytes 4 | CRC-32 4 | kind 4 | position 8 | payload, padded to 8 bytes

The CRC covers everything but the magic and the CRC itself. A record contains its own position, so a search behind
damage can distinguish a real record from bytes that look like one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from storage.checksum import crc32
from storage.files import Bytes, File

MAGIC = b"AuL1"
RECORD_BYTES_AT_MOST = 1024**3
_READ_BYTES = 4 * 1024**2

_HEADER = struct.Struct("<4sIIIQ")
_CHECKED = struct.Struct("<IIQ")


class LogRecord(NamedTuple):
    position: int
    kind: int
    payload: memoryview
    end: int  # the position after it


def framed(position: int, kind: int, parts: Sequence[Bytes]) -> tuple[list[Bytes], int]:
    """Return the parts to write for a record with this payload, and their total size. Copies no part."""
    size = sum([len(p) for p in parts])
    assert size <= RECORD_BYTES_AT_MOST
    crc = crc32(_CHECKED.pack(size, kind, position))
    for part in parts:
        crc = crc32(part, crc)
    padding = bytes(-size % 8)
    return [_HEADER.pack(MAGIC, size, crc, kind, position), *parts, padding], _HEADER.size + size + len(padding)


class SegmentScan:
    """Reads the records of one segment. ``bad_at`` is the position of the first bad record, ``why`` the reason."""

    def __init__(self, file: File, base: int, end: int | None = None) -> None:
        self._file = file
        self._base = base
        self._end = (file.size if end is None else end - base) + base
        self._buffer = memoryview(b"")
        self._buffer_at = 0
        self.bad_at: int | None = None
        self.why = ""

    def records(self, position: int) -> Iterator[LogRecord]:
        while position < self._end:
            record = self._record(position)
            if record is None:
                self.bad_at = position
                return
            yield record
            position = record.end

    def salvage(self, position: int) -> Iterator[LogRecord]:
        """Yield the good records behind a bad one. Finds them by their magic and checks their own position."""
        data = self._file.read(position - self._base, self._end - position)
        at = data.find(MAGIC)
        while at >= 0:
            record = self._record(position + at)
            if record is not None:
                yield record
            at = data.find(MAGIC, at + 1)

    def _record(self, position: int) -> LogRecord | None:
        header = self._bytes(position, _HEADER.size)
        if len(header) < _HEADER.size:
            return self._bad(f"{len(header)} bytes are left, less than a header")
        magic, size, crc, kind, claimed = _HEADER.unpack(header)
        if magic != MAGIC or claimed != position:
            return self._bad("no record begins here")
        if size > RECORD_BYTES_AT_MOST or position + _HEADER.size + size > self._end:
            return self._bad(f"a record of {size:,} bytes does not fit into the file")
        payload = self._bytes(position + _HEADER.size, size)
        if crc32(payload, crc32(_CHECKED.pack(size, kind, position))) != crc:
            return self._bad("the CRC does not match")
        end = position + _HEADER.size + size + (-size % 8)
        if end > self._end:
            return self._bad("the padding is missing")
        return LogRecord(position, kind, payload, end)

    def _bad(self, why: str) -> LogRecord | None:
        self.why = why
        return None

    def _bytes(self, position: int, size: int) -> memoryview:
        at = position - self._buffer_at
        if at < 0 or at + size > len(self._buffer):
            want = min(max(size, _READ_BYTES), self._end - position)
            self._buffer = memoryview(self._file.read(position - self._base, want))
            self._buffer_at, at = position, 0
        return self._buffer[at : at + size]
