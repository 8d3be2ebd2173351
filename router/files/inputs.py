"""Open a file, a FIFO or standard input, and read it in large blocks.

A pipe is read only when it has bytes, so that a reader which is to stop never hangs in ``read``. A regular file is
recognised after a restart by its inode and its first line: an appended file is the same file, and a replaced or
rewritten one is another.
"""

from __future__ import annotations

import fcntl
import os
import select
import stat
import sys
import zlib
from contextlib import suppress

from catalog.errors import AuroraError

POLL_MS = 100
PIPE_BYTES = 1024**2
FIRST_LINE_BYTES = 4096


class FileError(AuroraError):
    """A file cannot be opened, read or written. The message names the stream or the output, the file and the reason."""


class FileInput:
    """``path`` None: standard input. Owner: the reader's thread."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self.name = "standard input" if path is None else path
        self._fd = -1
        self._poll: select.poll | None = None  # of a pipe, a terminal or a socket
        self._state: os.stat_result | None = None
        self.offset = 0  # bytes read

    @property
    def is_open(self) -> bool:
        return self._fd >= 0

    def open(self) -> None:
        """Open for reading. Raises OSError. A FIFO opens at once, whether it has a writer or not."""
        if self._path is None:
            if sys.stdin is None:  # the process was started without one, and its number may mean another file now
                raise OSError(0, "it is closed")
            fd = os.dup(0)
        else:
            fd = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            self._state = os.fstat(fd)
            if stat.S_ISDIR(self._state.st_mode):
                raise IsADirectoryError(0, "it is a directory")
        except OSError:
            os.close(fd)
            raise
        self._fd = fd
        self.offset = 0
        if not self.is_regular:
            self._poll = select.poll()
            self._poll.register(fd, select.POLLIN)
            with suppress(OSError):  # another pipe size is not permitted, or this is no pipe
                fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, PIPE_BYTES)

    @property
    def is_regular(self) -> bool:
        return self._state is not None and stat.S_ISREG(self._state.st_mode)

    def read(self, size: int) -> bytes | None:
        """Return the next bytes, b"" at the end, None when there is nothing now. Raises OSError."""
        if self._poll is not None and not self._poll.poll(POLL_MS):
            return None
        try:
            data = os.read(self._fd, size)
        except BlockingIOError:
            return None
        self.offset += len(data)
        return data

    def is_replaced(self) -> bool:
        """Tell whether the name now means another file, or this file was truncated below what was read of it."""
        if self._path is None or self._state is None or not self.is_regular:
            return False
        try:
            now = os.stat(self._path)
        except OSError:
            return False  # it was moved away, and the next one is not there yet
        if (now.st_dev, now.st_ino) != (self._state.st_dev, self._state.st_ino):
            return True
        return now.st_size < self.offset

    def identity(self) -> str:
        """Return a name for this very file that survives a restart; empty for a pipe, and before its first line."""
        if not self.is_regular or self._state is None:
            return ""
        head = os.pread(self._fd, FIRST_LINE_BYTES, 0)
        line, newline, _ = head.partition(b"\n")
        if not newline and len(head) < FIRST_LINE_BYTES:
            return ""
        return f"file {self.name} {self._state.st_ino:x}-{zlib.crc32(line):08x}"

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd, self._poll = -1, None
