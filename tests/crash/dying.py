"""Files that kill their own process before a given file operation: a test reaches every moment of a daemon's writing.

They send SIGKILL, so the process cleans nothing up. The kernel keeps what was written, as it does for any process that
is killed. ``dying_daemon.py`` starts the real daemon on such files.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from threading import Lock

from storage.files import Bytes, DiskSpace, File, Files


class DyingFiles:
    """Counts file operations from 0: create, append, sync, truncate, rename, remove, sync_folder."""

    def __init__(self, files: Files, crash_before: int) -> None:
        self._files = files
        self._left = crash_before
        self._lock = Lock()

    def count_operation(self) -> None:
        with self._lock:
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            self._left -= 1

    def create(self, name: str) -> File:
        self.count_operation()
        return DyingFile(self._files.create(name), self)

    def attach(self, name: str) -> File:
        return DyingFile(self._files.attach(name), self)

    def list(self, folder: str) -> list[str]:
        return self._files.list(folder)

    def rename(self, old: str, new: str) -> None:
        self.count_operation()
        self._files.rename(old, new)

    def remove(self, name: str) -> None:
        self.count_operation()
        self._files.remove(name)

    def sync_folder(self, folder: str) -> None:
        self.count_operation()
        self._files.sync_folder(folder)

    def space(self) -> DiskSpace:
        return self._files.space()

    def where(self, name: str) -> str:
        return self._files.where(name)


class DyingFile:
    def __init__(self, file: File, files: DyingFiles) -> None:
        self._file = file
        self._files = files
        self.name = file.name

    @property
    def size(self) -> int:
        return self._file.size

    def append(self, parts: Sequence[Bytes]) -> None:
        self._files.count_operation()
        self._file.append(parts)

    def sync(self) -> None:
        self._files.count_operation()
        self._file.sync()

    def begin_sync(self, offset: int) -> None:
        self._file.begin_sync(offset)

    def truncate(self, size: int) -> None:
        self._files.count_operation()
        self._file.truncate(size)

    def read(self, offset: int, size: int) -> bytes:
        return self._file.read(offset, size)

    def close(self) -> None:
        self._file.close()
