"""Arrow IPC messages out of bytes in pieces of any size. Sizes are checked before memory is allocated.

A message is 0xFFFFFFFF, the length of its metadata, the metadata (a flatbuffer) and a body. The metadata holds the
length of the body, but pyarrow reads it only together with the body. So this module reads the few fields that it needs:
kind, body length, and for a compressed body the size of each buffer after unpacking. A body that came in one read is
passed on without a copy. A size beyond the limit, and metadata that contradicts itself, is a ``FrameError`` with its
offset.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

SCHEMA, DICTIONARY, BATCH = 1, 2, 3
METADATA_BYTES = 1024**2
PREFIX_BYTES = 8


class FrameError(ValueError):
    """A message that is refused: beyond the limit (``too_long``) or broken."""

    def __init__(self, message: str, offset: int, too_long: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset
        self.too_long = too_long


class Message(NamedTuple):
    kind: int
    head: bytes  # prefix and metadata
    body: memoryview
    offset: int  # of its first byte in the connection
    is_delta: bool
    dictionary: int  # its number, if the message is one
    unpacked_bytes: int


class _Header(NamedTuple):
    kind: int
    body_bytes: int
    is_delta: bool
    dictionary: int
    packed: tuple[tuple[int, int], ...]  # (offset, length) of the buffers of a compressed body, else empty


class ArrowFramer:
    """Bytes in, whole messages out. After the end-of-stream marker, or an error, nothing may follow."""

    def __init__(self, batch_bytes: int) -> None:
        self._limit = batch_bytes
        self._chunks: deque[memoryview] = deque()  # bytes received and not yet consumed
        self._size = 0  # of all of them
        self._offset = 0  # of the first byte in _chunks
        self._head: tuple[bytes, _Header] | None = None  # a message whose body is not complete
        self.at_end = False

    def receive(self, data: bytes | memoryview) -> Iterator[Message]:
        """Yield messages one by one, so that whole messages before an error still go through."""
        if data:
            self._chunks.append(memoryview(data))
            self._size += len(data)
        try:
            while (message := self._next()) is not None:
                yield message
        except struct.error:
            raise FrameError("the metadata of a message is broken", self._offset) from None

    @property
    def offset(self) -> int:
        """Return the offset of the incomplete message."""
        return self._offset - (len(self._head[0]) if self._head else 0)

    @property
    def held_bytes(self) -> int:
        """Return the bytes of the incomplete message that have come."""
        return self._size + (len(self._head[0]) if self._head else 0)

    @property
    def is_empty(self) -> bool:
        """Whether no message is incomplete."""
        return not self._size and self._head is None

    def _next(self) -> Message | None:
        if self._head is None:
            self._head = self._read_head()
            if self._head is None:
                return None
        head, header = self._head
        if self._size < header.body_bytes:
            return None
        offset = self._offset - len(head)
        body = _aligned(self._take(header.body_bytes))
        self._head = None
        unpacked_bytes = self._check_unpacked(header, body, offset)
        return Message(header.kind, head, body, offset, header.is_delta, header.dictionary, unpacked_bytes)

    def _read_head(self) -> tuple[bytes, _Header] | None:
        if self.at_end and self._size:
            raise FrameError("bytes behind the end of the Arrow stream", self._offset)
        prefix = self._peek(PREFIX_BYTES)
        if prefix[:4] != b"\xff\xff\xff\xff"[: len(prefix)]:
            raise FrameError("not an Arrow IPC stream", self._offset)
        if len(prefix) < PREFIX_BYTES:
            return None
        (size,) = struct.unpack_from("<i", prefix, 4)
        if size == 0:
            self._take(PREFIX_BYTES)
            self.at_end = True
            return self._read_head()
        if not 0 < size <= METADATA_BYTES:
            raise FrameError(f"metadata of {size:,} bytes; at most {METADATA_BYTES:,}", self._offset, size > 0)
        if self._size < PREFIX_BYTES + size:
            return None
        header = _read_header(self._peek(PREFIX_BYTES + size)[PREFIX_BYTES:])
        if not 0 <= header.body_bytes <= self._limit:
            text = f"a message of {header.body_bytes:,} bytes; at most {self._limit:,}"
            raise FrameError(text, self._offset, header.body_bytes > 0)
        return bytes(self._take(PREFIX_BYTES + size)), header

    def _peek(self, size: int) -> bytes:
        """Copy the next ``size`` bytes without consuming them; fewer if fewer have come."""
        if self._chunks and len(self._chunks[0]) >= size:
            return bytes(self._chunks[0][:size])
        return b"".join([chunk[:size] for chunk in self._chunks])[:size]

    def _take(self, size: int) -> memoryview:
        """Consume the next bytes, without a copy when they came in one read."""
        self._offset += size
        self._size -= size
        parts: list[memoryview] = []
        while size:
            chunk = self._chunks.popleft()
            if len(chunk) > size:
                self._chunks.appendleft(chunk[size:])
                chunk = chunk[:size]
            parts.append(chunk)
            size -= len(chunk)
        return parts[0] if len(parts) == 1 else memoryview(b"".join(parts))

    def _check_unpacked(self, header: _Header, body: memoryview, offset: int) -> int:
        total = 0
        for start, length in header.packed:
            if length == 0:
                continue
            if start < 0 or length < 8 or start + length > len(body):
                raise FrameError("a buffer lies outside its message", offset)
            (size,) = struct.unpack_from("<q", body, start)
            total += length if size < 0 else size  # -1: this one is not compressed
        if total > self._limit:
            raise FrameError(f"a message that unpacks to {total:,} bytes; at most {self._limit:,}", offset, True)
        return max(total, len(body))


def _aligned(body: memoryview) -> memoryview:
    """Copy a body that does not begin at a multiple of eight bytes: columns are read in place, in words of eight."""
    if len(body) and np.frombuffer(body, np.uint8).ctypes.data % 8:
        return memoryview(bytes(body))
    return body


# -- the few fields of the flatbuffer; struct.error when an offset points outside --------------------------------------


def _read_header(data: bytes) -> _Header:
    message = _u32(data, 0)
    kind = data[at] if (at := _field(data, message, 1)) else 0
    body_bytes = _i64(data, at) if (at := _field(data, message, 3)) else 0
    if kind not in (SCHEMA, DICTIONARY, BATCH):
        raise struct.error
    if kind == SCHEMA:
        return _Header(kind, body_bytes, False, 0, ())
    batch = _table(data, message, 2)
    is_delta, dictionary = False, 0
    if kind == DICTIONARY:
        dictionary = _i64(data, at) if (at := _field(data, batch, 0)) else 0
        is_delta = bool(data[at]) if (at := _field(data, batch, 2)) else False
        batch = _table(data, batch, 1)
    return _Header(kind, body_bytes, is_delta, dictionary, _packed_buffers(data, batch))


def _packed_buffers(data: bytes, batch: int) -> tuple[tuple[int, int], ...]:
    at = _field(data, batch, 2)
    if not _field(data, batch, 3) or not at:
        return ()
    vector = at + _u32(data, at)
    count = _u32(data, vector)
    if vector + 4 + 16 * count > len(data):
        raise struct.error
    flat = struct.unpack_from(f"<{2 * count}q", data, vector + 4)
    return tuple(zip(flat[0::2], flat[1::2]))


def _field(data: bytes, table: int, slot: int) -> int:
    """Return the place of a field of a table; 0 when the table does not have it."""
    (back,) = struct.unpack_from("<i", data, table)
    vtable = table - back
    if vtable < 0:
        raise struct.error
    (size,) = struct.unpack_from("<H", data, vtable)
    if 4 + 2 * slot + 2 > size:
        return 0
    (at,) = struct.unpack_from("<H", data, vtable + 4 + 2 * slot)
    if at and table + at >= len(data):
        raise struct.error
    return table + at if at else 0


def _table(data: bytes, table: int, slot: int) -> int:
    at = _field(data, table, slot)
    if not at:
        raise struct.error
    return at + _u32(data, at)


def _u32(data: bytes, at: int) -> int:
    (value,) = struct.unpack_from("<I", data, at)
    return int(value)


def _i64(data: bytes, at: int) -> int:
    (value,) = struct.unpack_from("<q", data, at)
    return int(value)
