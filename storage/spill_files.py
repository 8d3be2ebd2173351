"""Spilled trains on disk: blocks in append-only segment files, each block with a CRC.

A block is a run of trains that wait, in order, on the same arcs. It has about 1 MiB, so reading one back is one
sequential read. Blocks of all arcs go into one series of segments. A block is written once, however many arcs wait for
it. Each arc keeps its blocks in order (``storage/spill_blocks.py``), and a segment is removed when no arc waits for any
of its blocks.

Spilling needs no sync: a spilled train is in the log, or a replay computes it again, or no one was promised anything. A
checkpoint that refers to blocks syncs them first (``sync``), and keeps their segments (``keep_dead``) until no
checkpoint needs them. But every few blocks the kernel is asked to start writing (``begin_sync``): the disk works while
the next blocks are encoded, and neither a checkpoint nor the log has to wait for a pile of old pages.

Owner: the spill thread writes and reads; ``release`` needs the storage manager's lock.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Collection, Sequence

from catalog.schema import Schema
from storage.block_ref import BlockRef
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


class _Segment:
    __slots__ = ("begun", "dirty", "file", "is_lost", "live")

    def __init__(self, file: File) -> None:
        self.file = file
        self.live = 0  # blocks that an arc waits for
        self.dirty = False
        self.is_lost = False  # a sync has failed
        self.begun = file.size  # begin_sync covers everything below


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
        self._unnamed = False  # the folder needs a sync
        self.disk_bytes = 0
        self.written_bytes = 0
        self.read_bytes = 0

    def open(self, live: Sequence[BlockRef] = ()) -> None:
        """Open the segments of the blocks that a checkpoint refers to, and remove all others."""
        wanted = {ref.segment for ref in live}
        there = numbers(self._files.list(self._folder), ".spill")
        for ref in live:
            if ref.segment not in there:
                raise SpillDamageError(self._files.where(self._name(ref.segment)), ref.offset, "the file is missing")
        for number in there:
            self._next = number + 1
            if number in wanted:
                self._segments[number] = _Segment(self._files.attach(self._name(number)))
                self.disk_bytes += self._segments[number].file.size
            else:
                self._files.remove(self._name(number))
        for ref in live:
            self._segments[ref.segment].live += 1

    def write(self, trains: Sequence[Train]) -> BlockRef:
        """Write trains as a block. OSError when there is no room; then nothing is left of it."""
        parts, count = _encode(trains)
        return self.write_block(parts, count)

    def write_block(self, payload: Sequence[Bytes], count: int = 0) -> BlockRef:
        """Write a block of any content. OSError when there is no room; then nothing is left of it."""
        size = crc = 0
        for part in payload:
            crc = crc32(part, crc)
            size += len(part)
        parts = [_HEADER.pack(_MAGIC, size, crc, count), *payload]
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
        return BlockRef(number, offset, size)

    def read(self, ref: BlockRef, schema: Schema) -> list[Train]:
        payload, count = self.read_block(ref)
        try:
            return self._decode(payload, count, schema)
        except EncodingError as error:
            raise SpillDamageError(self.name_of(ref), ref.offset, str(error)) from error

    def name_of(self, ref: BlockRef) -> str:
        """Return the file of a block, for messages."""
        return self._files.where(self._name(ref.segment))

    def read_block(self, ref: BlockRef) -> tuple[memoryview, int]:
        """Return the content of a block and the count that was written with it. SpillDamageError when it is bad."""
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
        return payload, count

    def _decode(self, payload: memoryview, count: int, schema: Schema) -> list[Train]:
        trains: list[Train] = []
        at = 0
        for _ in range(count):
            (size,) = _SIZE.unpack_from(payload, at)
            at += _SIZE.size
            trains.append(self._reader.decode(payload[at : at + size], schema))
            at += size
        return trains

    def release(self, ref: BlockRef) -> None:
        """Note that no arc waits for this block any more."""
        segment = self._segments[ref.segment]
        segment.live -= 1
        assert segment.live >= 0
        if not segment.live and not self._keep_dead and ref.segment != self._next - 1:
            self._remove(ref.segment)

    def sync(self) -> None:
        """Sync every block that an arc waits for, and the names of the segments. OSError when that fails.

        After one failed sync a segment is never trusted again: a second sync would succeed and prove nothing.
        """
        for number, segment in list(self._segments.items()):
            if segment.is_lost and segment.live:
                raise OSError(errno.EIO, "an earlier sync of this file failed", self._files.where(self._name(number)))
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
        """Remove the segments that no arc waits for and no checkpoint refers to."""
        for number, segment in list(self._segments.items()):
            if not segment.live and number not in kept and number != self._next - 1:
                self._remove(number)

    def remove_all(self) -> None:
        """Remove every segment: nothing needs them any more."""
        for number in list(self._segments):
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

    def name(self, number: int) -> str:
        """Return the file of a segment, relative to the root."""
        return self._name(number)

    def _name(self, number: int) -> str:
        return f"{self._folder}/{number:012d}.spill"


def _encode(trains: Sequence[Train]) -> tuple[list[Bytes], int]:
    parts: list[Bytes] = []
    joined = coalesce(list(trains))
    for train in joined:
        encoded = encode_train(train)
        parts += [_SIZE.pack(sum([len(p) for p in encoded])), *encoded]
    return parts, len(joined)
