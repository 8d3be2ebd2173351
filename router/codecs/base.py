"""The contract of a codec: a decoder turns bytes into trains and rejects, an encoder turns trains into bytes.

A codec has no socket: its tests feed bytes. A ``Decoder`` belongs to one connection and keeps its position there. The
connections of one stream share an ``Intake``: schema, limits and string pool. An ``Encoder`` serves all subscribers of
an output and may keep caches, but no history of what it wrote.

A reject names its place within the connection (the line from 1, or 0 in a format without lines, and the byte offset).
Its reason comes from a closed set, because the reason is a label of a metric. The good tuples around a reject go
through. Only a ``fatal`` reject ends the connection: the decoder cannot understand the bytes behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from threading import Lock
from typing import ClassVar, NamedTuple, Protocol

import numpy as np

from catalog.schema import Schema
from router.compiled.fields import Integers, Words
from router.compiled.texts import PoolTexts
from storage.strings import Codes, StringInterner, StringPool
from storage.train import Train

SAMPLE_BYTES = 256
POOL_BYTES = 32 * 1024**2
"""A pool is replaced at this size, not only at its number of entries: 65,536 strings of 1 MiB would be 64 GiB. A small
memory budget has smaller ones: a train that waits keeps the whole pool of its strings."""
LEAST_POOL_BYTES = 1024**2
POOL_SHARE = 1 / 16  # of the budget


def pool_bytes(budget_bytes: int) -> int:
    """Return the size at which a stream begins a new pool."""
    return max(LEAST_POOL_BYTES, min(POOL_BYTES, int(POOL_SHARE * budget_bytes)))


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
    SKEW = "skew"  # its event time is too far ahead of the clock: see ``max_skew``
    QUARANTINED = "quarantined"  # it does not fit the stream, and is in a file of ``bad_rows``
    REFUSED = "refused"  # a numbered batch that could not be admitted: its sender gets an error and sends it again


class Reject(NamedTuple):
    """One refused tuple, or ``tuples`` of them for the same reason."""

    reason: Reason
    line: int
    offset: int
    message: str
    sample: bytes = b""  # the beginning of the input, at most SAMPLE_BYTES
    tuples: int = 1
    fatal: bool = False


class Received(NamedTuple):
    """The result of one piece of input. A fatal reject is the last one."""

    trains: list[Train]
    rejects: list[Reject]

    @property
    def fatal(self) -> bool:
        return bool(self.rejects) and self.rejects[-1].fatal


class TextColumn:
    """A column of strings as it stands in a block of text."""

    __slots__ = ("_left", "_right", "_texts_at", "_words")

    def __init__(
        self, words: Words, left: Integers, right: Integers, texts_at: Callable[[Integers], list[str]]
    ) -> None:
        """The edges of each string, and how to make the strings of some rows."""
        self._words = words
        self._left = left
        self._right = right
        self._texts_at = texts_at

    def codes(self, pool: StringPool, table: PoolTexts) -> Codes:
        codes = table.codes(pool, self._words, self._left, self._right)
        unknown = np.flatnonzero(codes < 0)
        if unknown.shape[0]:
            codes[unknown] = pool.encode(self._texts_at(unknown))
        return codes


class Strings:
    """The string pool that the connections of one stream share.

    The I/O thread decodes small reads, another thread decodes large ones, so two threads may intern at once. A pool
    allows one writer at a time, hence the lock. It is held for the distinct strings of one train.
    """

    def __init__(self, pool_bytes: int = POOL_BYTES) -> None:
        self._pool_bytes = pool_bytes
        self._interner = StringInterner()
        self._lock = Lock()

    def intern(self, columns: Sequence[Sequence[str]]) -> tuple[StringPool, list[Codes]]:
        """Encode the string columns of one train, all in one pool."""
        with self._lock:
            pool = self._fresh()
            return pool, [pool.encode(values) for values in columns]

    def find(self, columns: Sequence[TextColumn]) -> tuple[StringPool, list[Codes]]:
        """Encode the string columns of one train by their bytes. Raises what a column raises for a new string."""
        with self._lock:
            pool = self._fresh()
            table: PoolTexts = pool.attach(PoolTexts, PoolTexts)
            return pool, [column.codes(pool, table) for column in columns]

    def codes(self, texts: Sequence[str]) -> tuple[StringPool, list[int]]:
        """Encode the strings of one tuple."""
        with self._lock:
            pool = self._fresh()
            return pool, [pool.code(text) for text in texts]

    def _fresh(self) -> StringPool:
        if self._interner.pool.nbytes > self._pool_bytes:
            self._interner.pool = StringPool()
            self._interner.rotations += 1
        return self._interner.fresh()


@dataclass(frozen=True)
class Intake:
    """What the decoders of one stream share: the schema, the limits and the string pool."""

    schema: Schema
    unit: str = "ns"  # of timestamps that come as integers
    line_bytes: int = 1024**2
    batch_bytes: int = 16 * 1024**2
    columnar_bytes: int | None = None  # least size of a block that is decoded by columns; None: the codec's own
    strings: Strings = field(default_factory=Strings)

    @property
    def ns_per_unit(self) -> int:
        return NS_PER[self.unit]


class Decoder(Protocol):
    """One connection's bytes to trains. Called from one thread at a time, in the order of the bytes."""

    received: int  # tuples seen, good and bad: received = tuples in trains + tuples in rejects
    takes_views: ClassVar[bool]  # ``receive`` also takes a memoryview, and may keep it

    def __init__(self, intake: Intake) -> None: ...

    @property
    def unfinished_bytes(self) -> int:
        """Return how many bytes wait for the rest of their message."""

    @property
    def kept_bytes(self) -> int:
        """Return how many bytes the decoder keeps for the messages that follow."""

    def receive(self, data: bytes, arrival_ns: int) -> Received:
        """Decode bytes as they arrive, in pieces of any size. Give out each tuple as soon as it is complete."""

    def end(self, arrival_ns: int) -> Received:
        """Decode the rest: the sender has closed. A last line without its newline counts."""


class Encoder(Protocol):
    """An output's trains to bytes, on one thread at a time. All subscribers get the same bytes."""

    def __init__(self, schema: Schema, timestamps: str = "iso", nan: str = "null") -> None: ...

    @property
    def not_finite(self) -> int:
        """Return how many values so far were NaN or infinite and had no number in the format."""

    def begin(self) -> bytes:
        """Return the first bytes of a connection: a header, a schema, or nothing."""

    def encode(self, train: Train) -> bytes: ...

    def gap(self, tuples: int) -> bytes:
        """Return the mark that ``tuples`` tuples are missing here, because the reader was too slow."""

    def end(self) -> bytes:
        """Return the last bytes of a connection."""


@dataclass(frozen=True)
class Codec:
    """A format: both of its directions. A module of ``router/codecs`` defines one, as ``CODEC``."""

    decoder: type[Decoder]
    encoder: type[Encoder]
    is_lines: bool = False  # a row is a line, so rows can be dropped undecoded (``router/edge``)


def sample(data: bytes) -> bytes:
    """Return the beginning of refused input, for a reject."""
    return bytes(data[:SAMPLE_BYTES])
