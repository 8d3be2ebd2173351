"""The log: records one after another in segment files, on disk before anybody is told so.

A position is a count of bytes since the log began; a segment is named by the position of its first byte, and records
(``log_records.py``) follow one another in it. ``append`` collects; ``commit`` writes the group and syncs it,
and when it returns without an error the group is on disk. Of a large group each MiB is written as soon as it is there
and the disk told to begin with it, so it works while the rest is encoded; what goes wrong with that is said by
``commit``. A segment is begun only at the start of a group, after its folder was synced, so every segment but the last
is whole.

What a start may find, and what it means:
- A bad record with nothing after it that was ever synced: the tail of a group that was being written when the power
  went. Nobody was told of it. It is cut off and counted.
- A bad record below a position that is known to have been synced: damage. Somebody was told that this is safe, so the
  log refuses to open and names the file and the byte.

What is known to have been synced is in the log itself: every group begins with a mark that says up to where the groups
before it were, and a log that falls silent gets a mark of its own (``mark``). Marks are looked for behind a bad record
too. What is left: a bit that rots in the very last group before its mark is on disk, a few milliseconds, looks like a
torn tail.

Errors: a full disk (ENOSPC while writing) takes the group back and the log goes on; whoever wants to tries again. An
error of sync is the end: the pages that could not be written are gone and nobody knows which, so the log stays failed
until a restart has read what is really there. It is never tried twice.

Owner: one thread writes; ``read`` and ``records`` may be called from any thread for what is durable.
"""

from __future__ import annotations

import errno
import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from storage.files import Bytes, File, Files, StorageError, numbers
from storage.log_records import Record, Scan, framed
from storage.plants import planted

MARK = 0
"""The kind of record that is the log's own; users of the log number theirs from 1."""

SEGMENT_BYTES = 64 * 1024**2
PIECE_BYTES = 1024**2
_MARK = struct.Struct("<Q")


class DiskFullError(StorageError):
    """No room for a group; it was taken back whole."""


class LogFailedError(StorageError):
    """Nothing can be promised any more until a restart."""


class LogDamageError(StorageError):
    """Something that was acknowledged cannot be read."""


class Log:
    """Records in ``folder``. ``open`` first; then ``append`` and ``commit``."""

    def __init__(
        self,
        files: Files,
        folder: str = "log",
        segment_bytes: int = SEGMENT_BYTES,
        piece_bytes: int = PIECE_BYTES,
    ) -> None:
        self._files = files
        self._folder = folder
        self.segment_bytes = segment_bytes
        self.piece_bytes = piece_bytes
        self._bases: list[int] = []  # the segments' first positions, ascending
        self._segments: dict[int, File] = {}
        self._piece: list[Bytes] = []  # what is not yet written of the group
        self._piece_bytes = 0
        self._group_bytes = 0
        self._group_file: File | None = None  # once a piece of it is written
        self._group_at = 0  # where it begins in its file
        self._trouble: StorageError | None = None  # why the group cannot be written
        self.durable = 0  # everything below is on disk
        self._marked = 0  # the highest synced position that a record on disk tells of
        self.torn_bytes = 0  # cut off when the log was opened
        self.failed: LogFailedError | None = None
        self.commits = 0
        self.committed_bytes = 0

    # -- opening ------------------------------------------------------------------------------------------------------

    def open(self, start: int = 0) -> None:
        """Check everything from ``start`` on (the beginning of a record), cut a torn tail. LogDamageError if not."""
        self._bases = numbers(self._files.list(self._folder), ".log")
        for base in self._bases:
            self._segments[base] = self._files.attach(self._name(base))
        if not self._bases:
            self.durable = self._marked = start
            return
        self._check_row(start)
        self.durable = self._marked = start
        first = max(0, bisect_right(self._bases, start) - 1)
        for base in self._bases[first:]:
            self._open_segment(base, max(start, base))
        last = self._bases[-1]
        self._sync(self._segments[last])  # what a killed process left is read from the kernel's memory: make it true
        self.durable = last + self._segments[last].size

    def _check_row(self, start: int) -> None:
        """The segments follow one another without a hole, and reach down to where reading must begin."""
        if self._bases[0] > start:
            raise self._damage(self._bases[0], 0, f"the log begins at {self._bases[0]}, after position {start}")
        for base, after in zip(self._bases, self._bases[1:], strict=False):
            size = self._segments[base].size
            if after > start and base + size != after:
                raise self._damage(base, size, f"ends at position {base + size}, and the next segment is {after}")
        end = self._bases[-1] + self._segments[self._bases[-1]].size
        if end < start:
            raise self._damage(
                self._bases[-1], end - self._bases[-1], f"ends before position {start}, which was synced"
            )

    def _open_segment(self, base: int, position: int) -> None:
        file = self._segments[base]
        is_last = base == self._bases[-1]
        scan = Scan(file, base)
        for record in scan.records(position):
            self._note(record)
        if scan.bad_at is None:
            return
        offset = scan.bad_at - base
        if not is_last:
            raise self._damage(base, offset, f"{scan.why}, and a whole segment follows")
        for record in scan.salvage(scan.bad_at + 1):
            self._note(record)
        if scan.bad_at < self._marked and not planted("cut_damage"):
            raise self._damage(base, offset, f"{scan.why}, below {self._marked}, up to where it was acknowledged")
        self.torn_bytes = file.size - offset
        file.truncate(offset)
        file.sync()

    def _note(self, record: Record) -> None:
        if record.kind == MARK:
            self._marked = max(self._marked, _MARK.unpack_from(record.payload)[0])

    def _damage(self, base: int, offset: int, why: str) -> LogDamageError:
        return LogDamageError(self._files.where(self._name(base)), offset, why)

    # -- writing ------------------------------------------------------------------------------------------------------

    @property
    def start(self) -> int:
        """The first position that is still here."""
        return self._bases[0] if self._bases else self.durable

    @property
    def group_bytes(self) -> int:
        return self._group_bytes

    def append(self, kind: int, parts: Sequence[Bytes]) -> int:
        """Into the group that the next ``commit`` makes durable; the record's position. Parts are not copied."""
        if not self._group_bytes:
            self._put(MARK, [_MARK.pack(self.durable)])
        position = self._put(kind, parts)
        if self._piece_bytes >= self.piece_bytes:
            self._write_piece()
        return position

    def _put(self, kind: int, parts: Sequence[Bytes]) -> int:
        position = self.durable + self._group_bytes
        written, size = framed(position, kind, parts)
        self._piece += written
        self._piece_bytes += size
        self._group_bytes += size
        return position

    def commit(self) -> int:
        """Write the group and sync it; the position up to which all is on disk. See the head for its errors."""
        size = self._group_bytes
        if size:
            self._write_piece()
        file, trouble = self._group_file, self._trouble
        self._group_bytes, self._group_file, self._trouble = 0, None, None
        if self.failed is not None:
            raise self.failed
        if trouble is not None:
            raise trouble
        if file is None:
            return self.durable
        self._sync(file)
        self.durable += size
        self._marked = self.durable - size  # as the mark of this very group says
        self.commits += 1
        self.committed_bytes += size
        return self.durable

    def _write_piece(self) -> None:
        piece, self._piece, self._piece_bytes = self._piece, [], 0
        if self.failed is not None or self._trouble is not None:
            return  # ``commit`` says so
        try:
            if self._group_file is None:
                self._group_file = self._segment()
                self._group_at = self._group_file.size
            before = self._group_file.size
            self._write(self._group_file, piece)
            if self._group_file.size - before >= self.piece_bytes:  # of a small one the sync comes at once
                self._group_file.begin_sync(before)
        except StorageError as error:
            self._trouble = error

    def mark(self) -> None:
        """Let the log say of its last group that it was synced. For when nothing more comes; costs a sync."""
        if self.durable > self._marked and not self._group_bytes and self._bases:
            self._put(MARK, [_MARK.pack(self.durable)])
            self.commit()
            self._marked = self.durable  # nothing but the mark itself is behind what it tells

    def _segment(self) -> File:
        """The file to append to; a new one when the last is full."""
        if self._bases:
            last = self._segments[self._bases[-1]]
            if last.size < self.segment_bytes:
                return last
        base = self.durable
        try:
            file = self._files.create(self._name(base))
            self._files.sync_folder(self._folder)
        except OSError as error:
            raise self._refuse(base, 0, error) from error
        self._segments[base] = file
        self._bases = [*self._bases, base]
        return file

    def _write(self, file: File, piece: list[Bytes]) -> None:
        """At the end; or the whole group is taken back."""
        try:
            file.append(piece)
        except OSError as error:
            try:
                file.truncate(self._group_at)
            except OSError as worse:
                raise self._fail(file, self._group_at, worse) from worse
            raise self._refuse(self._bases[-1], self._group_at, error) from error

    def _sync(self, file: File) -> None:
        try:
            file.sync()
        except OSError as error:
            if planted("retry_sync"):
                file.sync()
                return
            raise self._fail(file, file.size, error) from error

    def _refuse(self, base: int, offset: int, error: OSError) -> StorageError:
        """ENOSPC and EDQUOT are a full disk; any other error of writing means that the disk is not to be trusted."""
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return DiskFullError(self._files.where(self._name(base)), offset, f"{error.strerror}")
        self.failed = LogFailedError(self._files.where(self._name(base)), offset, f"{error.strerror}")
        return self.failed

    def _fail(self, file: File, offset: int, error: OSError) -> LogFailedError:
        self.failed = LogFailedError(
            self._files.where(file.name), offset, f"{error.strerror} (it is never tried twice)"
        )
        return self.failed

    # -- reading ------------------------------------------------------------------------------------------------------

    def records(self, start: int, stop: int | None = None) -> Iterator[Record]:
        """Every record from a position on that was durable when it was reached. LogDamageError at a bad one."""
        position = start
        while position < (limit := self.durable if stop is None else min(stop, self.durable)):
            bases = self._bases  # one list for both looks: prune makes a new one
            at = max(0, bisect_right(bases, position) - 1)
            base, end = bases[at], bases[at + 1] if at + 1 < len(bases) else limit
            scan = Scan(self._segments[base], base, min(end, limit))
            for record in scan.records(max(position, base)):
                if record.kind != MARK:
                    yield record
            if scan.bad_at is not None:
                raise self._damage(base, scan.bad_at - base, scan.why)
            position = min(end, limit)

    def prune(self, below: int) -> int:
        """Remove the segments that lie wholly below a position; the bytes freed. Readers must be past it."""
        freed = 0
        while len(self._bases) > 1 and self._bases[1] <= below:
            base, self._bases = self._bases[0], self._bases[1:]
            file = self._segments.pop(base)  # closed when its last reader lets go of it
            freed += file.size
            self._files.remove(self._name(base))
        return freed

    def segment_of(self, position: int) -> int:
        """The first position of the segment that a position is in."""
        return self._bases[max(0, bisect_right(self._bases, position) - 1)] if self._bases else self.durable

    def close(self) -> None:
        for file in self._segments.values():
            file.close()
        self._segments.clear()
        self._bases = []

    def _name(self, base: int) -> str:
        return f"{self._folder}/{base:020d}.log"
