"""Keep a sink's trains on disk until Spark has them: a folder of segments. One segment becomes one commit.

A segment is an Arrow IPC stream. Its name says everything about it: ``<number>-<first sequence>-<rows>.arrow``. Its
number and the folder's epoch are the name of its commit. So a commit that is repeated after a crash has the same name,
and a sink that has seen the name ignores it. Segments are committed in the order of their numbers, and a segment is
removed only when its commit is published.

The segment that grows is ``open.arrow``. Sealing writes the end mark, syncs and renames. After a crash the whole
messages of the open segment are sealed. An incomplete message at its end is truncated: the feed still has its tuples.

Owner: the writer thread appends and seals; the commit thread removes. Errors are the kernel's (OSError): the writer
waits while the disk is full.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.ipc as pa_ipc

from router.spark.wire.disk import sync_path

OPEN = "open.arrow"
END_MARK = b"\xff\xff\xff\xff\x00\x00\x00\x00"
_NAME = re.compile(r"(\d{12})-(\d{20})-(\d{12})\.arrow")


class SinkSegment(NamedTuple):
    number: int
    first: int  # the sequence number of its first tuple
    rows: int
    path: Path
    nbytes: int


class SinkSegments:
    """``begin`` is the schema message with which every segment starts."""

    def __init__(self, folder: Path, begin: bytes) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._begin = begin
        self._lock = Lock()
        self.epoch = self._read_epoch()
        found = sorted(self._find())
        self.sealed: list[SinkSegment] = [s for s in found if s.number >= self._read_next_file()[0]]
        self._removed = [
            s.path for s in found if s.number < self._read_next_file()[0]
        ]  # removed, and their files not deleted yet
        self.sweep()
        last = self.sealed[-1] if self.sealed else None
        self._number = self._read_number(last)
        self.next_sequence = self._read_next(last)  # of the next tuple that is sealed
        self._fd = -1
        self._rows = 0
        self._nbytes = 0
        self._is_torn = False  # the file has bytes behind the last whole batch
        self._recover()

    # -- writing ------------------------------------------------------------------------------------------------------

    @property
    def open_rows(self) -> int:
        return self._rows

    @property
    def open_bytes(self) -> int:
        return self._nbytes

    def append(self, data: bytes, rows: int) -> None:
        """Append a batch. On OSError nothing of it counts."""
        if self._fd < 0:
            self._open()
        self._truncate_torn()
        try:
            _write(self._fd, data)
        except OSError:
            self._is_torn = True
            self._truncate_torn()
            raise
        self._nbytes += len(data)
        self._rows += rows

    def _open(self) -> None:
        fd = os.open(self.folder / OPEN, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            _write(fd, self._begin)
        except OSError:
            os.close(fd)
            raise
        self._fd, self._nbytes, self._rows = fd, len(self._begin), 0

    def seal(self) -> SinkSegment | None:
        """Turn the open segment into one that can be committed. None when it is empty."""
        if self._fd < 0 or not self._rows:
            return None
        path = self.folder / f"{self._number:012d}-{self.next_sequence:020d}-{self._rows:012d}.arrow"
        self._truncate_torn()
        try:
            _write(self._fd, END_MARK)
            os.fdatasync(self._fd)
            os.rename(self.folder / OPEN, path)
        except OSError:  # it is still the open segment
            self._is_torn = True
            self._truncate_torn()
            raise
        try:
            sync_path(self.folder)
        except OSError:
            self._is_torn = True
            os.rename(path, self.folder / OPEN)
            raise
        size = self._nbytes + len(END_MARK)
        os.close(self._fd)
        self._fd = -1
        segment = SinkSegment(self._number, self.next_sequence, self._rows, path, size)
        with self._lock:
            self.sealed.append(segment)
        self._number += 1
        self.next_sequence += self._rows
        self._rows = self._nbytes = 0
        return segment

    def _truncate_torn(self) -> None:
        """Truncate what a failed write left behind the last whole batch. If this fails, the next write repeats it."""
        if self._is_torn:
            os.ftruncate(self._fd, self._nbytes)
            os.lseek(self._fd, self._nbytes, os.SEEK_SET)
            self._is_torn = False

    # -- committing ---------------------------------------------------------------------------------------------------

    def commit_name(self, segment: SinkSegment) -> str:
        return f"{self.epoch}-{segment.number:012d}"

    def remove(self, segment: SinkSegment) -> None:
        """Record that a segment is published.

        The file ``next`` says where the next segment begins. Without it an empty folder would begin at 0 again, and a
        file that still exists would be committed again. ``sweep`` deletes the file: the kernel needs 10 ms for 64 MiB.
        """
        _replace(self.folder / "next", f"{segment.number + 1} {segment.first + segment.rows}\n".encode())
        with self._lock:
            self.sealed.remove(segment)
            self._removed.append(segment.path)

    def sweep(self) -> None:
        """Delete the files of removed segments. Called when nothing is urgent; after a crash the next start does it."""
        with self._lock:
            removed, self._removed = self._removed, []
        for path in removed:
            try:
                path.unlink(missing_ok=True)
            except OSError:  # the next sweep tries it again
                with self._lock:
                    self._removed.append(path)

    @property
    def sealed_rows(self) -> int:
        with self._lock:
            return sum(s.rows for s in self.sealed)

    @property
    def nbytes(self) -> int:
        with self._lock:
            return sum(s.nbytes for s in self.sealed) + self._nbytes

    def oldest(self) -> SinkSegment | None:
        with self._lock:
            return self.sealed[0] if self.sealed else None

    def after(self, segment: SinkSegment) -> SinkSegment | None:
        """Return the next sealed segment behind this one."""
        with self._lock:
            return next((s for s in self.sealed if s.number > segment.number), None)

    def close(self) -> None:
        self.sweep()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    # -- after a crash ------------------------------------------------------------------------------------------------

    def _read_epoch(self) -> str:
        path = self.folder / "epoch"
        if not path.is_file():
            _replace(path, secrets.token_hex(6).encode())
        return path.read_text()

    def _find(self) -> Iterator[SinkSegment]:
        for path in self.folder.iterdir():
            if match := _NAME.fullmatch(path.name):
                yield SinkSegment(int(match[1]), int(match[2]), int(match[3]), path, path.stat().st_size)

    def _read_next_file(self) -> tuple[int, int]:
        path = self.folder / "next"
        number, sequence = path.read_text().split() if path.is_file() else ("0", "0")
        return int(number), int(sequence)

    def _read_number(self, last: SinkSegment | None) -> int:
        return max(self._read_next_file()[0], last.number + 1 if last else 0)

    def _read_next(self, last: SinkSegment | None) -> int:
        return max(self._read_next_file()[1], last.first + last.rows if last else 0)

    def _recover(self) -> None:
        path = self.folder / OPEN
        if not path.is_file():
            return
        whole, rows = measure(path, self._begin)
        if rows:
            self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            os.ftruncate(self._fd, whole)
            os.lseek(self._fd, whole, os.SEEK_SET)
            self._nbytes, self._rows = whole, rows
            self.seal()
        else:
            path.unlink()


def measure(path: Path, begin: bytes) -> tuple[int, int]:
    """Return how many bytes of an open segment are whole messages, and how many rows they have."""
    with pa.memory_map(str(path)) as source:
        if source.read(len(begin)) != begin:
            return 0, 0
        schema = pa_ipc.read_schema(pa.py_buffer(begin))
        whole, rows = len(begin), 0
        while True:
            try:
                message = pa_ipc.read_message(source)
                batch: Any = pa_ipc.read_record_batch(message, schema)
                batch.validate()
            except (pa.ArrowException, EOFError, OSError, StopIteration):
                return whole, rows
            whole, rows = source.tell(), rows + batch.num_rows


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _replace(path: Path, data: bytes) -> None:
    new = path.with_name(path.name + ".new")
    new.write_bytes(data)
    os.replace(new, path)
