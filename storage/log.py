"""The log: records one after another in segment files, on disk before any client gets an acknowledgement.

A position is a count of bytes since the log began. A segment is named by the position of its first byte, and records
(``log_records.py``) follow one another in it. ``append`` collects a group; ``commit`` writes and syncs it. When
``commit`` returns without an error, the group is on disk. A large group is written in pieces of 1 MiB, each as soon as
it is complete, and the disk starts on each piece while the next one is encoded. ``commit`` reports the errors of these
early writes. A segment begins only at the start of a group, after a sync of its folder, so every segment but the last
is complete.

A bad record at a start means one of two things:
- Nothing behind the record was ever synced: it is the tail of a group that was being written when the power failed. No
  client has an acknowledgement for it. The log truncates the tail and counts the bytes.
- A position behind the record is known to be synced: the record is damaged. A client may have an acknowledgement for
  it, so the log refuses to open, and names the file and the byte.

The log itself records the synced positions: every group begins with a mark of the position up to which the groups
before it were synced, and an idle log writes a mark of its own (``mark``). A start looks for marks behind a bad record
too. A mark outside the log (``log_mark.py``) has the last synced position as well: a log that ends below it was cut, or
its files are gone, and is refused. One case stays undetected: a power failure and bit rot in the very last group before
its mark is on disk, a few milliseconds, look like a torn tail.

A start has two steps. ``examine`` reads and changes nothing, so that a start that is refused for any reason leaves the
log as it was. ``repair`` then truncates a torn tail.

Errors: on a full disk (ENOSPC while writing) the log truncates the group and continues; the caller may retry. An error
of sync is final: the kernel has dropped the pages that it could not write, and does not say which. So the log stays
failed until a restart has read the bytes that are really there. It never retries a sync.

Owner: one thread writes. Any thread may call ``records`` for durable positions.
"""

from __future__ import annotations

import errno
import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from storage.files import Bytes, File, Files, StorageError, numbers
from storage.log_mark import LogMark
from storage.log_records import LogRecord, SegmentScan, framed

MARK = 0
"""The kind of the log's own records. Users of the log number theirs from 1."""

SEGMENT_BYTES = 64 * 1024**2
PIECE_BYTES = 1024**2
_MARK = struct.Struct("<Q")


class DiskFullError(StorageError):
    """The disk has no room for a group. The log has removed all of it."""


class LogFailedError(StorageError):
    """The log cannot guarantee anything until a restart."""


class LogDamageError(StorageError):
    """Acknowledged data cannot be read."""


class Log:
    """The records in ``folder``. Call ``open`` first, then ``append`` and ``commit``."""

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
        self._piece: list[Bytes] = []  # the part of the group that is not written yet
        self._piece_bytes = 0
        self._group_bytes = 0
        self._group_file: File | None = None  # set once a piece of the group is written
        self._group_at = 0  # where the group begins in its file
        self._write_error: StorageError | None = None  # why the group cannot be written
        self._mark = LogMark(files, f"{folder}.mark")
        self._torn: tuple[File, int] | None = None  # a segment and its size without the torn tail
        self.durable = 0  # everything below is on disk
        self._marked = 0  # the highest synced position for which a mark is on disk
        self.torn_bytes = 0  # truncated when the log was opened
        self.failed: LogFailedError | None = None
        self.commits = 0
        self.committed_bytes = 0

    # -- opening ------------------------------------------------------------------------------------------------------

    def open(self, start: int = 0) -> None:
        """Check all records from ``start`` on and truncate a torn tail."""
        self.examine(start)
        self.repair()

    def examine(self, start: int = 0) -> None:
        """Check all records from ``start`` on (the beginning of a record). Changes nothing on disk.

        Raises LogDamageError when an acknowledged record is bad or missing.
        """
        acknowledged = self._mark.find()
        self._bases = numbers(self._files.list(self._folder), ".log")
        for base in self._bases:
            self._segments[base] = self._files.attach(self._name(base))
        if not self._bases:
            self.durable = self._marked = start
            self._check_end(acknowledged)
            return
        self._check_row(start)
        self.durable = self._marked = start
        first = max(0, bisect_right(self._bases, start) - 1)
        for base in self._bases[first:]:
            self._open_segment(base, max(start, base))
        last = self._bases[-1]
        self._sync(self._segments[last])  # a killed process may have left bytes in the kernel only
        self.durable = last + (self._segments[last].size if self._torn is None else self._torn[1])
        self._check_end(acknowledged)

    def repair(self) -> None:
        """Truncate the torn tail that ``examine`` found."""
        if self._torn is not None:
            file, size = self._torn
            file.truncate(size)
            file.sync()
            self._torn = None

    def _check_end(self, acknowledged: int) -> None:
        """Check that the log is there and reaches the mark beside it."""
        if not acknowledged or (self._bases and acknowledged <= self.durable):
            return
        mark = self._files.where(self._mark.folder)
        todo = f"put the files back, or remove {mark} to go on without the tuples that are lost"
        if not self._bases:
            where = self._files.where(self._folder)
            raise LogDamageError(where, None, f"the log is missing; it was acknowledged up to {acknowledged}: {todo}")
        base = self._bases[-1]
        why = f"the log ends at position {self.durable}, but it was acknowledged up to {acknowledged}: {todo}"
        raise self._damage(base, self.durable - base, why)

    def _check_row(self, start: int) -> None:
        """Check that the segments have no hole between them and begin at or before ``start``."""
        if self._bases[0] > start:
            raise self._damage(self._bases[0], 0, f"the log begins at {self._bases[0]}, after position {start}")
        for base, after in zip(self._bases, self._bases[1:], strict=False):
            size = self._segments[base].size
            if after > start and base + size != after:
                raise self._damage(
                    base, size, f"ends at position {base + size}, but the next segment begins at {after}"
                )
        end = self._bases[-1] + self._segments[self._bases[-1]].size
        if end < start:
            raise self._damage(
                self._bases[-1],
                end - self._bases[-1],
                f"ends before position {start}, which was synced: put the files back",
            )

    def _open_segment(self, base: int, position: int) -> None:
        file = self._segments[base]
        is_last = base == self._bases[-1]
        scan = SegmentScan(file, base)
        for record in scan.records(position):
            self._note(record)
        if scan.bad_at is None:
            return
        offset = scan.bad_at - base
        if not is_last:
            raise self._damage(base, offset, f"{scan.why}, but a complete segment follows")
        for record in scan.salvage(scan.bad_at + 1):
            self._note(record)
        if not self._is_torn_tail(scan.bad_at):
            raise self._damage(base, offset, f"{scan.why}, but everything below {self._marked} was acknowledged")
        self.torn_bytes = file.size - offset
        self._torn = (file, offset)

    def _is_torn_tail(self, bad_at: int) -> bool:
        """Tell whether no client can have an acknowledgement for a bad record: no mark covers its position."""
        return bad_at >= self._marked

    def _note(self, record: LogRecord) -> None:
        if record.kind == MARK:
            self._marked = max(self._marked, _MARK.unpack_from(record.payload)[0])

    def _damage(self, base: int, offset: int, why: str) -> LogDamageError:
        return LogDamageError(self._files.where(self._name(base)), offset, why)

    # -- writing ------------------------------------------------------------------------------------------------------

    @property
    def start(self) -> int:
        """The first position that the log still holds."""
        return self._bases[0] if self._bases else self.durable

    @property
    def group_bytes(self) -> int:
        return self._group_bytes

    def append(self, kind: int, parts: Sequence[Bytes]) -> int:
        """Add a record to the group that the next ``commit`` makes durable, and return its position. Copies nothing."""
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
        """Write and sync the group; return the position up to which all is on disk. Errors: see the module."""
        if self._commit():
            self._mark.note(self.durable)
        return self.durable

    def _commit(self) -> bool:
        """Write and sync the group. False when there is none."""
        size = self._group_bytes
        if size:
            self._write_piece()
        file, error = self._group_file, self._write_error
        self._group_bytes, self._group_file, self._write_error = 0, None, None
        if self.failed is not None:
            raise self.failed
        if error is not None:
            raise error
        if file is None:
            return False
        self._sync(file)
        self.durable += size
        self._marked = self.durable - size  # the position in the mark of this group
        self.commits += 1
        self.committed_bytes += size
        return True

    def _write_piece(self) -> None:
        piece, self._piece, self._piece_bytes = self._piece, [], 0
        if self.failed is not None or self._write_error is not None:
            return  # ``commit`` raises it
        try:
            if self._group_file is None:
                self._group_file = self._segment()
                self._group_at = self._group_file.size
            before = self._group_file.size
            self._write(self._group_file, piece)
            if self._group_file.size - before >= self.piece_bytes:  # the sync of a small piece follows at once
                self._group_file.begin_sync(before)
        except StorageError as error:
            self._write_error = error

    def mark(self) -> None:
        """Write a mark for the last group, at the cost of a sync. Call it when the log is idle."""
        if self.durable > self._marked and not self._group_bytes and self._bases:
            self._put(MARK, [_MARK.pack(self.durable)])
            self._commit()
            self._marked = self.durable  # only the mark itself lies behind the marked position
            self._mark.sync()

    def _segment(self) -> File:
        """Return the file to append to: a new one when the last segment is full."""
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
        """Append a piece; on an error truncate the whole group."""
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
            raise self._fail(file, file.size, error) from error

    def _refuse(self, base: int, offset: int, error: OSError) -> StorageError:
        """Classify a write error: ENOSPC and EDQUOT are a full disk; after any other error the log fails."""
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return DiskFullError(self._files.where(self._name(base)), offset, f"{error.strerror}")
        self.failed = LogFailedError(self._files.where(self._name(base)), offset, f"{error.strerror}")
        return self.failed

    def _fail(self, file: File, offset: int, error: OSError) -> LogFailedError:
        self.failed = LogFailedError(
            self._files.where(file.name), offset, f"{error.strerror} (a sync is never retried)"
        )
        return self.failed

    # -- reading ------------------------------------------------------------------------------------------------------

    def records(self, start: int, stop: int | None = None) -> Iterator[LogRecord]:
        """Yield each record from ``start`` on that is durable when it is reached. LogDamageError at a bad record."""
        position = start
        while position < (limit := self.durable if stop is None else min(stop, self.durable)):
            bases = self._bases  # one list for both lookups: prune replaces the list
            at = max(0, bisect_right(bases, position) - 1)
            base, end = bases[at], bases[at + 1] if at + 1 < len(bases) else limit
            scan = SegmentScan(self._segments[base], base, min(end, limit))
            for record in scan.records(max(position, base)):
                if record.kind != MARK:
                    yield record
            if scan.bad_at is not None:
                raise self._damage(base, scan.bad_at - base, scan.why)
            position = min(end, limit)

    def prune(self, below: int) -> int:
        """Remove the segments that lie wholly below a position; return the freed bytes. Readers must be past it."""
        freed = 0
        while len(self._bases) > 1 and self._bases[1] <= below:
            base, self._bases = self._bases[0], self._bases[1:]
            file = self._segments.pop(base)  # the file closes with its last reader
            freed += file.size
            self._files.remove(self._name(base))
        return freed

    def segments_up_to(self, end: int) -> list[tuple[str, int, bool]]:
        """Return the files that hold the log below a durable position: name, bytes below it, and whether the file is
        complete, so that it never changes again. Any thread; the caller keeps ``prune`` away."""
        bases = [base for base in self._bases if base < end]
        ends = [*bases[1:], end]
        last = self._bases[-1] if self._bases else 0
        return [(self._name(base), stop - base, base < last and stop != end) for base, stop in zip(bases, ends)]

    @property
    def mark_folder(self) -> str:
        return self._mark.folder

    def segment_of(self, position: int) -> int:
        """Return the first position of the segment that contains a position."""
        return self._bases[max(0, bisect_right(self._bases, position) - 1)] if self._bases else self.durable

    def close(self) -> None:
        for file in self._segments.values():
            file.close()
        self._segments.clear()
        self._bases = []
        self._mark.close()

    def _name(self, base: int) -> str:
        return f"{self._folder}/{base:020d}.log"
