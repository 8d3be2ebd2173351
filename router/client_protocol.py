"""The client protocol: lines of JSON around blocks of the stream's own format. Bytes in, messages out; no socket.

Plain sockets carry tuples only. This protocol runs on the same ports, for senders and readers that must lose nothing. A
message is one JSON object on a line, with a key that begins with ``_``. Tuples travel in blocks, in the format of the
stream or output. The message before a block gives its length, so no tuple can look like a message.

A sender (``>``) gives its source's name. The server (``<``) answers with the last sequence that it has of this source,
and the sender sends numbered batches:

    > {"_hello": {"source": "till-7", "epoch": 1, "ack": "disk"}}
    < {"_welcome": {"sequence": 41, "ack": "disk"}}
    > {"_batch": 42, "tuples": 2, "bytes": 61}
    > ...61 bytes of ndjson, csv (with its header) or a whole Arrow stream...
    < {"_ack": 42, "on": "disk"}

``_ack`` acknowledges this batch and all before it. It acknowledges the good rows: rows that do not fit the schema are
refused one by one, and the rest of the batch goes in. When rows of this source and epoch were refused, the answer has
two more fields, and so has the welcome:

    < {"_ack": 42, "on": "disk", "rejected": 3, "reasons": [{"batch": 42, "line": 2, "offset": 31,
       "reason": "wrong_type", "message": "price: a number expected, not a string", "tuples": 1}]}

``rejected`` is the number of all such rows since the server started, so that nothing is missed when an answer is lost
with its connection. ``reasons`` has the first that are new. ``line`` counts from 1 within the batch (0 for arrow).

``{"_refused": 42, "reason": ..., "expected": 42}`` means that the
server took nothing of the batch; the sender resumes with ``expected``. After ``{"_error": ...}`` the server closes the
connection.

A hello of either kind may have ``"format": "ndjson"``; the server then refuses a client that expects another format.
The welcome of a sender has ``batch_bytes``, the size of the largest block that the server takes.

A reader connects to an output's port and gives its name. If it knows the number of the last tuple that it has, it gives
that too:

    > {"_hello": {"name": "billing", "after": 1200, "nonce": "5f1c"}}
    < {"_welcome": {"nonce": "5f1c", "after": 1200}}
    < {"_batch": 1201, "tuples": 3, "bytes": 80}
    < ...80 bytes...
    > {"_ack": 1203}

The port also serves plain readers, so a few tuples may come before the welcome. The reader invents a nonce and skips to
the welcome with this nonce. ``"repeat": true`` in a batch means that its tuples may have been delivered before.
``{"_gap": {"from": ..., "to": ...}}`` means that the server no longer has these numbers. With ``{"_forget": true}`` the
reader gives its name up: the server keeps nothing for it any more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

import orjson

HELLO = b'{"_hello"'
TUPLES_A_BYTE = 1_000
"""More no format packs into a byte. A header that could claim any number would make the counters lie, and overflow."""

LINE_BYTES = 4 * 1024
SMALL_READ_BYTES = 16 * 1024
SHORT_LINE_BYTES = 128  # most lines are shorter; searching only these bytes leaves the block behind the line alone
NAME_BYTES = 256
MAX_SEQUENCE = 2**62
EPOCH_AHEAD_SECONDS = 600  # the clocks of clients differ


class SessionError(Exception):
    """The client breaks the protocol. The message says how."""


class SourceHello(NamedTuple):
    source: str
    epoch: int
    ack: str  # disk | memory
    format: str | None = None  # of its blocks; None: the client does not say


class ReaderHello(NamedTuple):
    name: str
    after: int | None
    nonce: str
    format: str | None = None  # that it expects; None: the client does not say


class SourceBatch(NamedTuple):
    sequence: int
    tuples: int
    payload: bytes


class Ack(NamedTuple):
    number: int


class Forget(NamedTuple):
    pass


def begins_with_hello(first: bytes) -> bool | None:
    """Tell whether a connection uses this protocol, from its first bytes; None while they are too few."""
    if len(first) >= len(HELLO):
        return first.startswith(HELLO)
    return None if HELLO.startswith(first) else False


def encode_line(**content: Any) -> bytes:
    """Return one line of the protocol: ``encode_line(_ack=42, on="disk")``."""
    return orjson.dumps(content) + b"\n"


class _ReceiveBuffer:
    """The received bytes, from which the framers take lines and blocks.

    A block is always copied once, even when it came in one read: behind a line it begins at any address, and columns
    must begin at a multiple of eight.
    """

    def __init__(self) -> None:
        self._reads: deque[bytes | bytearray] = deque()
        self._at = 0  # the next byte, in the first read
        self._size = 0  # bytes from there on

    def add(self, data: bytes) -> None:
        self._size += len(data)
        if len(data) >= SMALL_READ_BYTES:
            self._reads.append(data)
        elif data:  # joined: a client may send a block one byte at a time
            if self._reads and isinstance(self._reads[-1], bytearray) and len(self._reads[-1]) < 4 * SMALL_READ_BYTES:
                self._reads[-1].extend(data)
            else:
                self._reads.append(bytearray(data))

    def next_line(self) -> dict[str, Any] | None:
        """Take the message on the next line; None while the line is incomplete."""
        text = self._peek(SHORT_LINE_BYTES)
        end = text.find(b"\n")
        if end < 0 and self._size > SHORT_LINE_BYTES:
            text = self._peek(LINE_BYTES + 1)
            end = text.find(b"\n")
        if end < 0:
            if len(text) > LINE_BYTES:
                raise SessionError(f"a line of the protocol has at most {LINE_BYTES:,} bytes")
            return None
        self._skip(end + 1)
        try:
            message = orjson.loads(text[:end])
        except orjson.JSONDecodeError as error:
            raise SessionError(f"a line of the protocol must be a JSON object: {error}") from error
        if not isinstance(message, dict):
            raise SessionError("a line of the protocol must be a JSON object")
        return message

    @property
    def size(self) -> int:
        """The bytes in it."""
        return self._size

    def next_block(self, size: int) -> bytes | None:
        """Take the next ``size`` bytes; None while there are fewer."""
        if self._size < size:
            return None
        block = self._peek(size)
        self._skip(size)
        return block

    def _peek(self, size: int) -> bytes:
        """Return a copy of the next ``size`` bytes, or of all when there are fewer."""
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
    """The messages of a sender."""

    @property
    def held_bytes(self) -> int:
        """Return the bytes of the message that is not complete."""
        return self._buffer.size

    def __init__(self, batch_bytes: int) -> None:
        self._buffer = _ReceiveBuffer()
        self._batch_bytes = batch_bytes
        self._has_hello = False
        self._header: tuple[int, int, int] | None = None  # sequence, tuples and bytes of the block that comes next

    def receive(self, data: bytes) -> Iterator[SourceHello | SourceBatch]:
        """Yield the messages that are complete. After a SessionError the rest of the connection is meaningless."""
        self._buffer.add(data)
        while True:
            if self._header is not None:
                sequence, tuples, size = self._header
                payload = self._buffer.next_block(size)
                if payload is None:
                    return
                self._header = None
                yield SourceBatch(sequence, tuples, payload)
            message = self._buffer.next_line()
            if message is None:
                return
            if not self._has_hello:
                self._has_hello = True
                yield _source_hello(message)
            else:
                self._header = self._parse_header(message)

    def _parse_header(self, message: dict[str, Any]) -> tuple[int, int, int]:
        if "_batch" not in message:
            raise SessionError('only batches may follow hello: {"_batch": 1, "tuples": 10, "bytes": 512}')
        sequence, size = _integer(message, "_batch", 1), _integer(message, "bytes", 0, self._batch_bytes)
        return sequence, _integer(message, "tuples", 0, (size + 1) * TUPLES_A_BYTE), size


class ReaderFramer:
    """The messages of a named reader."""

    def __init__(self) -> None:
        self._buffer = _ReceiveBuffer()
        self._has_hello = False

    def receive(self, data: bytes) -> Iterator[ReaderHello | Ack | Forget]:
        """Yield the messages that are complete. After a SessionError the rest of the connection is meaningless."""
        self._buffer.add(data)
        while (message := self._buffer.next_line()) is not None:
            if not self._has_hello:
                self._has_hello = True
                yield _reader_hello(message)
            elif "_ack" in message:
                yield Ack(_integer(message, "_ack", 0))
            elif message.get("_forget") is True:
                yield Forget()
            else:
                raise SessionError('after hello a reader may send only {"_ack": number} or {"_forget": true}')


def _source_hello(message: dict[str, Any]) -> SourceHello:
    hello = _hello(message)
    if "source" not in hello and "name" in hello:
        raise SessionError("this is the port of a stream; a reader connects to the port of an output")
    ack = hello.get("ack", "disk")
    if ack not in ("disk", "memory"):
        raise SessionError(f"ack must be disk or memory, not {str(ack)[:20]!r}")
    return SourceHello(_name(hello, "source"), _integer(hello, "epoch", 0), ack, _format(hello))


def _reader_hello(message: dict[str, Any]) -> ReaderHello:
    hello = _hello(message)
    if "name" not in hello and "source" in hello:
        raise SessionError("this is the port of an output; a sender connects to the port of a stream")
    after = None if hello.get("after") is None else _integer(hello, "after", 0)
    nonce = hello.get("nonce", "")
    if not isinstance(nonce, str) or len(nonce) > NAME_BYTES:
        raise SessionError(f"nonce must be a string of at most {NAME_BYTES} characters")
    return ReaderHello(_name(hello, "name"), after, nonce, _format(hello))


def _hello(message: dict[str, Any]) -> dict[str, Any]:
    hello = message.get("_hello")
    if not isinstance(hello, dict):
        raise SessionError('the first line must be {"_hello": {...}}')
    return hello


def _format(hello: dict[str, Any]) -> str | None:
    return None if hello.get("format") is None else _name(hello, "format")


def check_epoch(epoch: int, known: int, now_ns: int) -> None:
    """Refuse an epoch that lies in the future: all later clients of the source would count as old. Raises SessionError.

    An epoch is the time of a start in some unit, or a smaller number that the client chooses. A source keeps its unit:
    the time in seconds may not be followed by the time in nanoseconds.
    """
    now_s = now_ns // 10**9 + EPOCH_AHEAD_SECONDS
    units = (1, 10**3, 10**6, 10**9)
    unit = next((u for u in units if known <= now_s * u), units[-1]) if known else units[-1]
    if epoch > max(known, now_s * unit):
        raise SessionError(f"epoch {epoch} lies in the future: use the time of the start, in the unit of the last one")


def check_format(wanted: str | None, format: str, what: str) -> None:
    """Refuse a client that expects another format. Raises SessionError."""
    if wanted is not None and wanted != format:
        raise SessionError(f"this {what} has the format {format}, and the client uses {wanted[:20]}")


def _name(content: dict[str, Any], key: str) -> str:
    name = content.get(key)
    if not isinstance(name, str) or not name or len(name.encode()) > NAME_BYTES:
        raise SessionError(f"{key} must be a string of 1 to {NAME_BYTES} bytes")
    return name


def _integer(content: dict[str, Any], key: str, least: int, most: int = MAX_SEQUENCE) -> int:
    value = content.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise SessionError(f"{key.removeprefix('_')} must be a whole number from {least} to {most:,}")
    return value
