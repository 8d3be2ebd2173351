"""The only place in ``storage`` that opens files, so that a test can put a disk behind it that forgets.

Everything above speaks of names below one root (``log/00000000000000000000.log``) and of six deeds: append, sync, read,
truncate, rename, remove. A process that is killed keeps what it has written, because the kernel does; a machine that
loses power keeps what was synced. ``tests/crash/crash_files.py`` is the second kind behind the same interface.

Rules
- A file only grows at its end (or is cut there). Nothing is written in place, so nothing can be torn but a tail.
- ``sync`` is fdatasync. When it fails, the kernel has marked the pages clean and dropped what it could not write: a
  second call would succeed and mean nothing. So nobody calls it twice: whoever gets the error stops trusting the file.
- A new or renamed file is there after a power cut only once its folder was synced as well (``sync_folder``).
- Errors are the kernel's own (OSError); the layers above give them their meaning.
- The root is held open and names are looked up from there: a folder that is renamed goes on being ours, and one that is
  made anew under its name does not become it. A file that somebody has removed takes writes and syncs like any other,
  and all of it is gone with its last descriptor: ``sync`` looks, and says so.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol

from catalog.errors import AuroraError

Bytes = bytes | bytearray | memoryview

_IOV_MAX = 1_024
_RANGE_WRITE = 2  # SYNC_FILE_RANGE_WRITE
_SYNC_FILE_RANGE = getattr(ctypes.CDLL(None), "sync_file_range", None)  # Linux has it, Python does not name it
if _SYNC_FILE_RANGE is not None:
    _SYNC_FILE_RANGE.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class StorageError(AuroraError):
    """Something that lies on disk cannot be used. Says which file, where in it (None: all of it), and why."""

    def __init__(self, file: str, offset: int | None, why: str) -> None:
        super().__init__(f"{file}: {why}" if offset is None else f"{file} at byte {offset:,}: {why}")
        self.file = file
        self.offset = offset
        self.why = why


def numbers(names: Iterable[str], suffix: str) -> list[int]:
    """Of the files that are called by a number, ascending. What else lies there is somebody's, and is left alone."""
    stems = [name.removesuffix(suffix) for name in names if name.endswith(suffix)]
    return sorted(int(stem) for stem in stems if stem.isdecimal())


class Space(NamedTuple):
    free_bytes: int
    total_bytes: int


class File(Protocol):
    """One open file. One writer; readers may read what is there from any thread."""

    name: str

    @property
    def size(self) -> int: ...

    def append(self, parts: Sequence[Bytes]) -> None:
        """All of it at the end, or OSError; then some of it may be there, and the caller truncates."""

    def sync(self) -> None: ...

    def begin_sync(self, offset: int) -> None:
        """Let the disk begin with what was appended from this byte on. Promises nothing: a sync has less left to do."""

    def truncate(self, size: int) -> None: ...

    def read(self, offset: int, size: int) -> bytes:
        """Up to ``size`` bytes; fewer at the end of the file."""

    def close(self) -> None: ...


class Files(Protocol):
    """What lies below one root. Names are relative, with slashes; a folder is made when something is made in it."""

    def create(self, name: str) -> File:
        """A new, empty file; FileExistsError when there is one."""

    def attach(self, name: str) -> File:
        """A file that is there, to read and to append to."""

    def list(self, folder: str) -> list[str]:
        """The names in a folder, sorted; none when there is no such folder."""

    def rename(self, old: str, new: str) -> None:
        """Atomic; replaces ``new``."""

    def remove(self, name: str) -> None: ...

    def sync_folder(self, folder: str) -> None: ...

    def space(self) -> Space: ...

    def where(self, name: str) -> str:
        """The name as a person would look for it."""


class RealFile:
    __slots__ = ("_fd", "_has_links", "_size", "name")

    def __init__(self, fd: int, name: str) -> None:
        self._fd = fd
        found = os.fstat(fd)
        self._size = found.st_size
        self._has_links = found.st_nlink > 0  # not every file system counts them
        self.name = name

    @property
    def size(self) -> int:
        return self._size

    def append(self, parts: Sequence[Bytes]) -> None:
        left = [memoryview(p).cast("B") for p in parts if len(p)]
        while left:
            written = os.writev(self._fd, left[:_IOV_MAX])
            self._size += written
            left = _after(left, written)

    def sync(self) -> None:
        os.fdatasync(self._fd)
        if self._has_links and not os.fstat(self._fd).st_nlink:
            raise FileNotFoundError(errno.ENOENT, "somebody has removed the file", self.name)

    def begin_sync(self, offset: int) -> None:
        if _SYNC_FILE_RANGE is not None:
            _SYNC_FILE_RANGE(self._fd, offset, 0, _RANGE_WRITE)  # an error comes again from sync, which is asked

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)
        self._size = size

    def read(self, offset: int, size: int) -> bytes:
        data = os.pread(self._fd, size, offset)
        if len(data) == size or not data:
            return data
        chunks = [data]  # the kernel gives at most 2 GiB at once
        have = len(data)
        while have < size and (more := os.pread(self._fd, size - have, offset + have)):
            chunks.append(more)
            have += len(more)
        return b"".join(chunks)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()  # a reader may hold a file longer than its owner does


def _after(parts: list[memoryview], written: int) -> list[memoryview]:
    """What is left of the parts when so many bytes were taken."""
    for i, part in enumerate(parts):
        if written < len(part):
            return [part[written:], *parts[i + 1 :]] if written else parts[i:]
        written -= len(part)
    return []


class RealFiles:
    def __init__(self, root: str) -> None:
        self.root = root
        self._fd = -1
        os.makedirs(root, exist_ok=True)
        self._fd = os.open(root, _FOLDER_FLAGS)

    def create(self, name: str) -> File:
        return RealFile(self._make(name), name)

    def _make(self, name: str) -> int:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            return os.open(name, flags, 0o640, dir_fd=self._fd)
        except FileNotFoundError:
            folder = os.path.dirname(name)
            self._make_folder(folder)
            while folder:  # a folder is a name in the one above
                folder = os.path.dirname(folder)
                self.sync_folder(folder)
            return os.open(name, flags, 0o640, dir_fd=self._fd)

    def _make_folder(self, folder: str) -> None:
        """And those above it. FileNotFoundError when the root is gone."""
        parts = folder.split("/")
        for n in range(len(parts)):
            with suppress(FileExistsError):
                os.mkdir("/".join(parts[: n + 1]), dir_fd=self._fd)

    def attach(self, name: str) -> File:
        return RealFile(os.open(name, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC, dir_fd=self._fd), name)

    def list(self, folder: str) -> list[str]:
        try:
            fd = os.open(folder or ".", _FOLDER_FLAGS, dir_fd=self._fd)
        except FileNotFoundError:
            return []
        try:
            return sorted(os.listdir(fd))
        finally:
            os.close(fd)

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new, src_dir_fd=self._fd, dst_dir_fd=self._fd)

    def remove(self, name: str) -> None:
        os.unlink(name, dir_fd=self._fd)

    def sync_folder(self, folder: str) -> None:
        fd = os.open(folder or ".", _FOLDER_FLAGS, dir_fd=self._fd)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def space(self) -> Space:
        found = os.fstatvfs(self._fd)
        return Space(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)

    def where(self, name: str) -> str:
        return os.path.join(self.root, name) if name else self.root

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)


class FolderLock:
    """Two daemons on one folder would each take the other's files for damage: the second one is refused."""

    def __init__(self, root: str) -> None:
        try:
            os.makedirs(root, exist_ok=True)
            self._fd = os.open(os.path.join(root, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        except OSError as error:
            raise StorageError(root, None, f"the data_dir cannot be used: {error.strerror}") from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._fd)
            raise StorageError(root, None, "another process uses this data_dir") from None

    def release(self) -> None:
        """The kernel does it too when the process ends."""
        with suppress(OSError):
            os.close(self._fd)
