"""The client protocol: lines of JSON around blocks of the stream's own format. Bytes in, events out; no socket.

Beside the plain sockets, for senders and readers that must lose nothing. Everything that the protocol itself says is
one JSON object on a line, with a key that begins with ``_``; tuples come in blocks whose length is said before them, in
the format of the stream or output, so nothing in a tuple can be mistaken for the protocol.

A sender says who it is, is told how far its source had come, and sends numbered batches:

    > {"_hello": {"source": "till-7", "epoch": 1, "ack": "disk"}}
    < {"_welcome": {"sequence": 41, "ack": "disk"}}
    > {"_batch": 42, "tuples": 2, "bytes": 61}
    > ...61 bytes of ndjson, csv (with its header) or a whole Arrow stream...
    < {"_ack": 42, "on": "disk"}

``_ack`` is for this batch and all before it. ``{"_refused": 42, "reason": ..., "expected": 42}`` means that nothing of
the batch was taken; the client sends on from ``expected``. ``{"_error": ...}`` is followed by the end of the
connection.

A reader connects to an output's port and says its name, and if it knows, the number of the last tuple that it has:

    > {"_hello": {"name": "billing", "after": 1200, "nonce": "5f1c"}}
    < {"_welcome": {"nonce": "5f1c", "after": 1200}}
    < {"_batch": 1201, "tuples": 3, "bytes": 80}
    < ...80 bytes...
    > {"_ack": 1203}

The port is also a plain one, so a few tuples may come before the welcome: the reader skips to the welcome with the
nonce that it made up. ``"repeat": true`` in a batch says that its tuples may have been delivered before, ``{"_gap":
{"from": ..., "to": ...}}`` that these numbers are no longer kept. ``{"_forget": true}`` gives the name up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

import orjson

HELLO = b'{"_hello"'
LINE_BYTES = 4 * 1024
SMALL_READ_BYTES = 16 * 1024
SHORT_LINE_BYTES = 128  # as most are: a batch follows, of which nothing more need be looked at
NAME_BYTES = 256
MAX_SEQUENCE = 2**62


class SessionError(Exception):
    """The other side does not speak the protocol; says what is wrong."""


class SourceHello(NamedTuple):
    source: str
    epoch: int
    ack: str  # disk | memory


class ReaderHello(NamedTuple):
    name: str
    after: int | None
    nonce: str


class Batch(NamedTuple):
    sequence: int
    tuples: int
    payload: bytes


class Ack(NamedTuple):
    number: int


class Forget(NamedTuple):
    pass


def says_hello(first: bytes) -> bool | None:
    """Whether a connection speaks this protocol, by its first bytes; None while they are too few to tell."""
    if len(first) >= len(HELLO):
        return first.startswith(HELLO)
    return None if HELLO.startswith(first) else False


def line(**content: Any) -> bytes:
    """One line of the protocol: ``line(_ack=42, on="disk")``."""
    return orjson.dumps(content) + b"\n"


class _Lines:
    """Bytes, as they come, to lines and blocks, as they are asked for.

    A block is copied once, also where it came in one read: behind a line it begins anywhere, and columns want to begin
    at a multiple of eight.
    """

    def __init__(self) -> None:
        self._reads: deque[bytes | bytearray] = deque()
        self._at = 0  # in the first of them
        self._size = 0  # that are left

    def add(self, data: bytes) -> None:
        self._size += len(data)
        if len(data) >= SMALL_READ_BYTES:
            self._reads.append(data)
        elif data:  # together: somebody may send a block one byte at a time
            if self._reads and isinstance(self._reads[-1], bytearray) and len(self._reads[-1]) < 4 * SMALL_READ_BYTES:
                self._reads[-1].extend(data)
            else:
                self._reads.append(bytearray(data))

    def next_line(self) -> dict[str, Any] | None:
        text = self._look(SHORT_LINE_BYTES)
        end = text.find(b"\n")
        if end < 0 and self._size > SHORT_LINE_BYTES:
            text = self._look(LINE_BYTES + 1)
            end = text.find(b"\n")
        if end < 0:
            if len(text) > LINE_BYTES:
                raise SessionError(f"a line of the protocol has at most {LINE_BYTES:,} bytes")
            return None
        self._skip(end + 1)
        try:
            found = orjson.loads(text[:end])
        except orjson.JSONDecodeError as error:
            raise SessionError(f"a line of the protocol is a JSON object: {error}") from error
        if not isinstance(found, dict):
            raise SessionError("a line of the protocol is a JSON object")
        return found

    def next_block(self, size: int) -> bytes | None:
        if self._size < size:
            return None
        block = self._look(size)
        self._skip(size)
        return block

    def _look(self, size: int) -> bytes:
        """A copy of the next bytes, at most so many."""
        parts: list[memoryview] = []
        at = self._at
        for read in self._reads:
            if size <= 0:
                break
            parts.append(memoryview(read)[at : at + size])
            size -= len(parts[-1])
            at = 0
        return b"".join(parts)

    def _skip(self, size: int) -> None:
        self._size -= size
        self._at += size
        while self._reads and self._at >= len(self._reads[0]):
            self._at -= len(self._reads.popleft())


class SourceFramer:
    """What a sender says."""

    def __init__(self, batch_bytes: int) -> None:
        self._lines = _Lines()
        self._batch_bytes = batch_bytes
        self._greeted = False
        self._coming: tuple[int, int, int] | None = None  # sequence, tuples and bytes of the block that comes next

    def receive(self, data: bytes) -> Iterator[SourceHello | Batch]:
        """SessionError ends it: nothing that follows can be understood."""
        self._lines.add(data)
        while True:
            if self._coming is not None:
                sequence, tuples, size = self._coming
                payload = self._lines.next_block(size)
                if payload is None:
                    return
                self._coming = None
                yield Batch(sequence, tuples, payload)
            found = self._lines.next_line()
            if found is None:
                return
            if not self._greeted:
                self._greeted = True
                yield _source_hello(found)
            else:
                self._coming = self._header(found)

    def _header(self, found: dict[str, Any]) -> tuple[int, int, int]:
        if "_batch" not in found:
            raise SessionError('after hello come batches: {"_batch": 1, "tuples": 10, "bytes": 512}')
        sequence = _whole(found, "_batch", 1)
        return sequence, _whole(found, "tuples", 0), _whole(found, "bytes", 0, self._batch_bytes)


class ReaderFramer:
    """What a reader of an output says."""

    def __init__(self) -> None:
        self._lines = _Lines()
        self._greeted = False

    def receive(self, data: bytes) -> Iterator[ReaderHello | Ack | Forget]:
        self._lines.add(data)
        while (found := self._lines.next_line()) is not None:
            if not self._greeted:
                self._greeted = True
                yield _reader_hello(found)
            elif "_ack" in found:
                yield Ack(_whole(found, "_ack", 0))
            elif found.get("_forget") is True:
                yield Forget()
            else:
                raise SessionError('a reader says {"_ack": number} or {"_forget": true}')


def _source_hello(found: dict[str, Any]) -> SourceHello:
    hello = _hello(found)
    ack = hello.get("ack", "disk")
    if ack not in ("disk", "memory"):
        raise SessionError(f"ack is disk or memory, not {str(ack)[:20]!r}")
    return SourceHello(_name(hello, "source"), _whole(hello, "epoch", 0), ack)


def _reader_hello(found: dict[str, Any]) -> ReaderHello:
    hello = _hello(found)
    after = None if hello.get("after") is None else _whole(hello, "after", 0)
    nonce = hello.get("nonce", "")
    if not isinstance(nonce, str) or len(nonce) > NAME_BYTES:
        raise SessionError("nonce is a short text")
    return ReaderHello(_name(hello, "name"), after, nonce)


def _hello(found: dict[str, Any]) -> dict[str, Any]:
    hello = found.get("_hello")
    if not isinstance(hello, dict):
        raise SessionError('the first line is {"_hello": {...}}')
    return hello


def _name(content: dict[str, Any], key: str) -> str:
    name = content.get(key)
    if not isinstance(name, str) or not name or len(name.encode()) > NAME_BYTES:
        raise SessionError(f"{key} is a text of 1 to {NAME_BYTES} bytes")
    return name


def _whole(content: dict[str, Any], key: str, least: int, most: int = MAX_SEQUENCE) -> int:
    value = content.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise SessionError(f"{key.removeprefix('_')} is a whole number from {least} to {most:,}")
    return value
