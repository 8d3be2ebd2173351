"""Append chunks of whole rows to a file, a FIFO or standard output.

A chunk is there whole or not at all, as far as the kernel permits: when a write fails in the middle, a regular file is
cut back to where the chunk began. ``kill -9`` in the middle of a write can leave half a line at the end. The next start
removes it: a last line without its newline that is no whole JSON object. (Refused: smaller writes. The kernel may stop
between any two pages of a write, and no line length respects pages.)

Standard output. The target keeps a copy of descriptor 1 and points descriptor 1 to standard error. So nothing that
prints, such as a function of a user, can get between the rows.
"""

from __future__ import annotations

import errno
import logging
import os
import select
import stat
import sys

import orjson

log = logging.getLogger("aurorad.files")

TAIL_BYTES = 1024**2


def write_all(fd: int, data: bytes) -> None:
    """Write everything. Waits where the descriptor is not blocking. Raises OSError."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:
            poll = select.poll()
            poll.register(fd, select.POLLOUT)
            poll.poll()


class FileTarget:
    """``mode`` is append or replace. ``known`` is an inode and a length: a file of this inode is cut to this length.
    Owner: the writer's thread, once it runs."""

    def __init__(self, path: str, mode: str, format: str, known: tuple[int, int] | None = None) -> None:
        self.name = path
        self.nbytes = 0
        self.inode = 0
        self._mode = mode
        self._format = format
        self._known = known  # (inode, bytes) that a mark knows of
        self._fd = -1
        self._is_regular = False

    def open(self, header: bytes) -> bool:
        """Open, and write the header if this is the beginning. False: a FIFO has no reader yet. Raises OSError."""
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        try:
            if stat.S_ISFIFO(os.stat(self.name).st_mode):
                return self._open_fifo(header)
        except FileNotFoundError:
            pass
        try:
            self._fd = os.open(self.name, flags, 0o666)
        except PermissionError:
            self._fd = os.open(self.name, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        state = os.fstat(self._fd)
        self.inode = state.st_ino
        self._is_regular = stat.S_ISREG(state.st_mode)
        if self._is_regular:
            self.nbytes = self._begin(state.st_size, header)
        if not self.nbytes and header:
            self.append(header)
        return True

    def _open_fifo(self, header: bytes) -> bool:
        try:
            self._fd = os.open(self.name, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return False
            raise
        os.set_blocking(self._fd, True)
        self.append(header)
        return True

    def _begin(self, size: int, header: bytes) -> int:
        """Bring a regular file to the end of its last whole row. Return its length."""
        if self._mode == "replace":
            return self._cut(0)
        if self._known is not None and self._known[0] == self.inode and self._known[1] <= size:
            return self._cut(self._known[1])
        if not size or (not header.endswith(b"\n") and self._format not in ("ndjson", "csv")):
            return self._refuse_to_append(size)
        if header:
            self._check_header(header)
        return self._without_torn_line(size)

    def _refuse_to_append(self, size: int) -> int:
        if size:
            raise OSError(0, f"{self._format} cannot be appended to a file: write mode: replace, or name another file")
        return 0

    def _check_header(self, header: bytes) -> None:
        if (found := os.pread(self._fd, len(header), 0)) != header:
            first = found.partition(b"\n")[0].decode("utf-8", "replace")
            raise OSError(0, f"its header is {first!r}, and not {header.decode().strip()!r}: name another file")

    def _without_torn_line(self, size: int) -> int:
        start = max(0, size - TAIL_BYTES)
        tail = os.pread(self._fd, size - start, start).rpartition(b"\n")[2]
        if not tail:
            return size
        if self._format == "ndjson" and _is_object(tail):
            self.nbytes = size
            self.append(b"\n")
            return self.nbytes
        log.warning("%s: removed the last line, which was cut off in the middle: %r", self.name, tail[:200])
        return self._cut(size - len(tail))

    def _cut(self, size: int) -> int:
        os.ftruncate(self._fd, size)
        return size

    def append(self, data: bytes) -> None:
        """Write a chunk. Raises OSError; BrokenPipeError when the reader of a FIFO has gone."""
        try:
            write_all(self._fd, data)
        except OSError:
            if self._is_regular:
                self._cut(self.nbytes)
            raise
        self.nbytes += len(data)

    def sync(self) -> None:
        if self._is_regular:
            os.fdatasync(self._fd)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(orjson.loads(line), dict)
    except orjson.JSONDecodeError:
        return False


class StdoutTarget:
    name = "standard output"
    inode = 0

    def __init__(self) -> None:
        self.nbytes = 0
        self._fd = -1

    def open(self, header: bytes) -> bool:
        if sys.stdout is None:  # the process was started without one
            raise OSError(0, "it is closed")
        self._fd = os.dup(1)
        os.dup2(2, 1)
        self.append(header)
        return True

    def append(self, data: bytes) -> None:
        write_all(self._fd, data)
        self.nbytes += len(data)

    def sync(self) -> None:
        """Do nothing: the reader has the bytes."""

    def close(self) -> None:
        if self._fd >= 0:
            os.dup2(self._fd, 1)
            os.close(self._fd)
            self._fd = -1
