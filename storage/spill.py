"""Trains on disk because memory is short: blocks in append-only segment files, each with its CRC.

A block is a run of trains that wait, in order, on the same arcs: about 1 MiB, so that reading one back is one
sequential read. Blocks of all arcs go into one row of segments, written once however many arcs wait for them; each arc
keeps its blocks in order, and a segment goes away when nobody waits for any block in it.

Nothing here is synced by itself: a spilled train is in the log, or is computed again, or was never promised. A
checkpoint that refers to blocks syncs them first (``sync``) and keeps their segments (``keep_dead``) until no
checkpoint needs them. But the disk is told to begin every few blocks: it works while the next ones are encoded, and
neither that checkpoint nor the log finds a heap of old pages to wait for.

Owner: the spill thread writes and reads; ``release`` may be called by whoever holds the storage lock.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Collection, Sequence
from typing import NamedTuple

from catalog.schema import Schema
from storage.checksum import crc32
from storage.encode import EncodingError, TrainReader, encode_train
from storage.files import Bytes, File, Files, StorageError, numbers
from storage.queue import coalesce
from storage.train import Train

BLOCK_BYTES = 1024**2
SEGMENT_BYTES = 64 * 1024**2
BEGIN_SYNC_BYTES = 4 * 1024**2

_HEADER = struct.Struct("<4sIII")  # magic, bytes, CRC, trains
_SIZE = struct.Struct("<Q")
_MAGIC = b"AuS1"


class SpillDamageError(StorageError):
    """A block that cannot be read back."""


class Ref(NamedTuple):
    """Where a block lies."""

    segment: int
    offset: int
    size: int  # its header included


class _Segment:
    __slots__ = ("begun", "dirty", "file", "is_lost", "live")

    def __init__(self, file: File) -> None:
        self.file = file
        self.live = 0  # blocks that somebody waits for
        self.dirty = False
        self.is_lost = False  # a sync of it has failed
        self.begun = file.size  # the disk was told of everything below


class SpillFiles:
    def __init__(
        self, files: Files, folder: str = "spill", segment_bytes: int = SEGMENT_BYTES, *, keep_dead: bool = False
    ) -> None:
        self._files = files
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._keep_dead = keep_dead
        self._segments: dict[int, _Segment] = {}
        self._reader = TrainReader()
        self._next = 0
        self._unnamed = False  # the folder has to be synced
        self.disk_bytes = 0
        self.written_bytes = 0
        self.read_bytes = 0

    def open(self, live: Sequence[Ref] = ()) -> None:
        """Take over the segments of these blocks, which a checkpoint refers to; remove what nobody knows."""
        wanted = {ref.segment for ref in live}
        for number in numbers(self._files.list(self._folder), ".spill"):
            self._next = number + 1
            if number in wanted:
                self._segments[number] = _Segment(self._files.attach(self._name(number)))
                self.disk_bytes += self._segments[number].file.size
            else:
                self._files.remove(self._name(number))
        for ref in live:
            if ref.segment not in self._segments:
                raise SpillDamageError(self._files.where(self._name(ref.segment)), ref.offset, "the file is missing")
            self._segments[ref.segment].live += 1

    def write(self, trains: Sequence[Train]) -> Ref:
        """OSError when there is no room; then nothing was written."""
        parts = _encode(trains)
        number, segment = self._current()
        offset = segment.file.size
        try:
            segment.file.append(parts)
        except OSError:
            segment.file.truncate(offset)
            raise
        size = segment.file.size - offset
        segment.live += 1
        segment.dirty = True
        if offset + size - segment.begun >= BEGIN_SYNC_BYTES:
            segment.file.begin_sync(segment.begun)
            segment.begun = offset + size
        self.disk_bytes += size
        self.written_bytes += size
        return Ref(number, offset, size)

    def read(self, ref: Ref, schema: Schema) -> list[Train]:
        file = self._segments[ref.segment].file
        data = memoryview(file.read(ref.offset, ref.size))
        self.read_bytes += len(data)
        where = self._files.where(file.name)
        if len(data) < ref.size:
            raise SpillDamageError(where, ref.offset, f"{len(data):,} bytes of {ref.size:,}")
        magic, size, crc, count = _HEADER.unpack_from(data)
        payload = data[_HEADER.size :]
        if magic != _MAGIC or size != len(payload) or crc32(payload) != crc:
            raise SpillDamageError(where, ref.offset, "the CRC does not match")
        try:
            return self._decode(payload, count, schema)
        except EncodingError as error:
            raise SpillDamageError(where, ref.offset, str(error)) from error

    def _decode(self, payload: memoryview, count: int, schema: Schema) -> list[Train]:
        trains: list[Train] = []
        at = 0
        for _ in range(count):
            (size,) = _SIZE.unpack_from(payload, at)
            at += _SIZE.size
            trains.append(self._reader.decode(payload[at : at + size], schema))
            at += size
        return trains

    def release(self, ref: Ref) -> None:
        """Nobody waits for this block any more."""
        segment = self._segments[ref.segment]
        segment.live -= 1
        assert segment.live >= 0
        if not segment.live and not self._keep_dead and ref.segment != self._next - 1:
            self._remove(ref.segment)

    def sync(self) -> None:
        """Everything written that somebody waits for is on disk after this, names included; OSError when it is not.

        A segment of which one sync has failed is never trusted again: a second sync would succeed and mean nothing.
        """
        for number, segment in list(self._segments.items()):
            if segment.is_lost and segment.live:
                raise OSError(errno.EIO, "a sync of it failed before", self._files.where(self._name(number)))
            if segment.dirty:
                segment.dirty = False
                segment.is_lost = True
                segment.file.sync()
                segment.is_lost = False
                self._unnamed = True
        if self._unnamed:
            self._files.sync_folder(self._folder)
            self._unnamed = False

    def collect(self, kept: Collection[int]) -> None:
        """Remove the segments that nobody waits for and that no checkpoint refers to."""
        for number, segment in list(self._segments.items()):
            if not segment.live and number not in kept and number != self._next - 1:
                self._remove(number)

    def close(self) -> None:
        for segment in self._segments.values():
            segment.file.close()

    def _current(self) -> tuple[int, _Segment]:
        number = self._next - 1
        segment = self._segments.get(number)
        if segment is None or segment.file.size >= self._segment_bytes:
            if segment is not None and not segment.live and not self._keep_dead:
                self._remove(number)
            number = self._next
            segment = _Segment(self._files.create(self._name(number)))
            self._segments[number] = segment
            self._next += 1
        return number, segment

    def _remove(self, number: int) -> None:
        segment = self._segments.pop(number)
        self.disk_bytes -= segment.file.size
        self._files.remove(self._name(number))

    def _name(self, number: int) -> str:
        return f"{self._folder}/{number:012d}.spill"


def _encode(trains: Sequence[Train]) -> list[Bytes]:
    parts: list[Bytes] = []
    crc = size = 0
    joined = coalesce(list(trains))
    for train in joined:
        encoded = encode_train(train)
        length = sum([len(p) for p in encoded])
        for part in (_SIZE.pack(length), *encoded):
            crc = crc32(part, crc)
            parts.append(part)
        size += _SIZE.size + length
    return [_HEADER.pack(_MAGIC, size, crc, len(joined)), *parts]
