"""The folder of a data_dir: its files, and the lock that keeps a second daemon out.

Constructing it makes the folder if it does not exist, and checks that it can be written to; nothing is read and nothing
is locked before ``lock``. Tests hand in files of their own, which live in memory and need no lock.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from storage.files import Files, FolderLock, RealFiles, StorageError


class DataFolder:
    """Owner: the keeper. Raises StorageError when the folder cannot be used."""

    def __init__(self, root: str, files: Files | None = None) -> None:
        self.root = root
        self.files: Files = real_files(root) if files is None else files
        self._is_real = files is None
        self._lock: FolderLock | None = None

    def lock(self) -> None:
        """Lock the folder until ``release``. StorageError when another process has it."""
        if self._is_real:
            self._lock = FolderLock(self.root)

    def release(self) -> None:
        if self._lock is not None:
            self._lock.release()

    @contextmanager
    def start_errors(self) -> Iterator[None]:
        """Raise as StorageError of this folder what the kernel refuses during a start."""
        try:
            yield
        except OSError as error:
            raise StorageError(error.filename or self.root, None, f"cannot start: {error.strerror}") from error


def real_files(root: str) -> Files:
    """Open the files of a folder. StorageError when it cannot be made or written to."""
    try:
        files: Files = RealFiles(root)
        if not os.access(root, os.W_OK):
            raise OSError(errno.EROFS, "it cannot be written to")
        return files
    except OSError as error:
        raise StorageError(root, None, f"the data_dir cannot be used: {error.strerror}") from error
