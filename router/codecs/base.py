"""What every codec is made of: bytes in, trains and rejects out; trains in, bytes out. No socket anywhere.

A ``Decoder`` belongs to one connection and knows where it is in it; what the connections of one stream share (schema,
limits, the string pool) is its ``Intake``. An ``Encoder`` serves every subscriber of an output and remembers nothing of
what it wrote.

A reject names its place (line from 1, or 0 where there are no lines, and byte offset, both within the connection) and
one reason from a closed set, because the reason is a label of a metric. What is good around it goes through; only a
``fatal`` one ends the connection, because nothing behind it can be understood.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from threading import Lock
from typing import ClassVar, NamedTuple, Protocol

from catalog.schema import Schema
from storage.strings import Codes, StringInterner, StringPool
from storage.train import Train

SAMPLE_BYTES = 256
POOL_BYTES = 32 * 1024**2
"""A pool is left at this size too, not only at its number of entries: 65,536 strings of 1 MiB would be 64 GiB."""

NS_PER = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}


class Reason(StrEnum):
    """Why a tuple is refused."""

    MALFORMED = "malformed"  # not JSON, not this many fields, not an Arrow message
    MISSING_FIELD = "missing_field"
    NULL = "null"  # in a field that is not nullable
    WRONG_TYPE = "wrong_type"
    OUT_OF_RANGE = "out_of_range"  # 2^64, 1e400, the year 3000 in nanoseconds
    TOO_LONG = "too_long"
    TOO_DEEP = "too_deep"
    INVALID_UTF8 = "invalid_utf8"
    WRONG_SCHEMA = "wrong_schema"
    REFUSED = "refused"  # a numbered batch that could not be taken: its sender knows, and sends it again


class Reject(NamedTuple):
    reason: Reason
    line: int
    offset: int
    message: str
    sample: bytes = b""  # the beginning of the input, at most SAMPLE_BYTES
    tuples: int = 1
    fatal: bool = False


class Received(NamedTuple):
    """What one piece of input came to."""

    trains: list[Train]
    rejects: list[Reject]

    @property
    def fatal(self) -> bool:
        return bool(self.rejects) and self.rejects[-1].fatal


class Strings:
    """The string pool that the connections of one stream share.

    Small reads are decoded on the I/O thread and large ones beside it, so two threads may intern at once; a pool has
    one writer at a time, hence the lock. Held for the distinct strings of one train.
    """

    def __init__(self) -> None:
        self._interner = StringInterner()
        self._lock = Lock()

    def intern(self, columns: Sequence[Sequence[str]]) -> tuple[StringPool, list[Codes]]:
        """The string columns of one train, all in one pool."""
        with self._lock:
            pool = self._fresh()
            return pool, [pool.encode(values) for values in columns]

    def codes(self, texts: Sequence[str]) -> tuple[StringPool, list[int]]:
        """The strings of one tuple, likewise."""
        with self._lock:
            pool = self._fresh()
            return pool, [pool.code(text) for text in texts]

    def _fresh(self) -> StringPool:
        if self._interner.pool.nbytes > POOL_BYTES:
            self._interner.pool = StringPool()
            self._interner.rotations += 1
        return self._interner.fresh()


@dataclass(frozen=True)
class Intake:
    """What the decoders of one stream share."""

    schema: Schema
    unit: str = "ns"  # of timestamps that come as integers
    line_bytes: int = 1024**2
    batch_bytes: int = 16 * 1024**2
    columnar_bytes: int | None = None  # from which size on a block is decoded by columns; None: the codec knows
    strings: Strings = field(default_factory=Strings)

    @property
    def ns_per_unit(self) -> int:
        return NS_PER[self.unit]


class Decoder(Protocol):
    """One connection's bytes to trains. Called from one thread at a time, in the order of the bytes."""

    received: int  # tuples seen, good and bad: received = tuples in trains + tuples in rejects
    takes_views: ClassVar[bool]  # a memoryview will do where it says bytes, and may be kept

    def __init__(self, intake: Intake) -> None: ...

    def receive(self, data: bytes, arrival_ns: int) -> Received:
        """Bytes as they came, cut anywhere. Never waits for more than it needs to give a tuple."""

    def end(self, arrival_ns: int) -> Received:
        """The sender is done. A last line without its newline counts."""


class Encoder(Protocol):
    """An output's trains to bytes, on one thread at a time. What one subscriber gets, every one gets."""

    def __init__(self, schema: Schema, timestamps: str = "iso") -> None: ...

    def begin(self) -> bytes:
        """What a connection starts with: a header, a schema, or nothing."""

    def encode(self, train: Train) -> bytes: ...

    def gap(self, tuples: int) -> bytes:
        """Says that this many tuples are missing here, because the reader was too slow."""

    def end(self) -> bytes:
        """What a connection ends with."""


def sample(data: bytes) -> bytes:
    return bytes(data[:SAMPLE_BYTES])
