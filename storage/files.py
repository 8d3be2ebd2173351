"""Files below one root: the only place in ``storage`` that opens a file, so that a test can replace the disk.

All other modules use names relative to the root (``log/00000000000000000000.log``) and six file operations: append,
sync, read, truncate, rename, remove. After a kill of the process, the kernel still has all bytes that were written.
After a power failure, only the synced bytes are left: ``tests/crash/crash_files.py`` is such a disk, behind the same
interface.

Rules
- A file grows only at its end, or is truncated there. No byte is overwritten, so only a tail can be torn.
- ``sync`` is fdatasync. When fdatasync fails, the kernel marks the pages clean and drops the bytes that it could not
  write: a second call would succeed and prove nothing. So no caller retries a sync. It stops trusting the file.
- A new or renamed file survives a power failure only after a sync of its folder as well (``sync_folder``).
- Errors are the kernel's own (OSError). The layers above interpret them.
- The root folder stays open, and all names are resolved from its descriptor. So the daemon keeps its folder when
  somebody renames it, and does not take a new folder of the same name for it. A removed file still accepts writes and
  syncs, and loses them with its last descriptor: so ``sync`` checks the link count, and raises.
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
    """Data on disk cannot be used. Names the file, the byte (None: the whole file), and the reason."""

    def __init__(self, file: str, offset: int | None, why: str) -> None:
        super().__init__(f"{file}: {why}" if offset is None else f"{file} at byte {offset:,}: {why}")
        self.file = file
        self.offset = offset
        self.why = why


def numbers(names: Iterable[str], suffix: str) -> list[int]:
    """Return the numbers of the files that are named by a number, ascending. Ignore files of others."""
    stems = [name.removesuffix(suffix) for name in names if name.endswith(suffix)]
    return sorted(int(stem) for stem in stems if stem.isdecimal())


class DiskSpace(NamedTuple):
    free_bytes: int
    total_bytes: int


class File(Protocol):
    """One open file. One thread writes; any thread may read."""

    name: str

    @property
    def size(self) -> int: ...

    def append(self, parts: Sequence[Bytes]) -> None:
        """Append all parts. After an OSError some bytes may be there, and the caller truncates."""

    def sync(self) -> None: ...

    def begin_sync(self, offset: int) -> None:
        """Ask the kernel to start writing the bytes from ``offset`` on. No guarantee, but the next sync is shorter."""

    def truncate(self, size: int) -> None: ...

    def read(self, offset: int, size: int) -> bytes:
        """Read up to ``size`` bytes; fewer at the end of the file."""

    def close(self) -> None: ...


class Files(Protocol):
    """The files below one root. Names are relative, with slashes; creating a file creates its folder."""

    def create(self, name: str) -> File:
        """Create an empty file; FileExistsError when it exists."""

    def attach(self, name: str) -> File:
        """Open an existing file to read and to append."""

    def list(self, folder: str) -> list[str]:
        """Return the names in a folder, sorted; none when the folder does not exist."""

    def rename(self, old: str, new: str) -> None:
        """Rename atomically; replaces ``new``."""

    def remove(self, name: str) -> None: ...

    def sync_folder(self, folder: str) -> None: ...

    def space(self) -> DiskSpace: ...

    def where(self, name: str) -> str:
        """Return the full path of a name, for messages."""


class RealFile:
    __slots__ = ("_fd", "_has_links", "_size", "name")

    def __init__(self, fd: int, name: str) -> None:
        self._fd = fd
        found = os.fstat(fd)
        self._size = found.st_size
        self._has_links = found.st_nlink > 0  # not every file system counts links
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
            raise FileNotFoundError(errno.ENOENT, "the file was removed", self.name)

    def begin_sync(self, offset: int) -> None:
        if _SYNC_FILE_RANGE is not None:
            _SYNC_FILE_RANGE(self._fd, offset, 0, _RANGE_WRITE)  # ignore errors: sync reports them

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)
        self._size = size

    def read(self, offset: int, size: int) -> bytes:
        data = os.pread(self._fd, size, offset)
        if len(data) == size or not data:
            return data
        chunks = [data]  # the kernel returns at most 2 GiB at once
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
        self.close()  # a reader may hold a file longer than its owner


def _after(parts: list[memoryview], written: int) -> list[memoryview]:
    """Return the parts without their first ``written`` bytes."""
    for i, part in enumerate(parts):
        if written < len(part):
            return [part[written:], *parts[i + 1 :]] if written else parts[i:]
        written -= len(part)
    return []


def make_private(folder: str) -> None:
    """Create a folder that only its owner may enter, and its parents. A folder that exists keeps its permissions."""
    parent = os.path.dirname(os.path.abspath(folder))
    os.makedirs(parent, exist_ok=True)
    with suppress(FileExistsError):
        os.mkdir(folder, 0o700)


class RealFiles:
    def __init__(self, root: str) -> None:
        self.root = root
        self._fd = -1
        make_private(root)
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
            while folder:  # each new folder is a new name in its parent
                folder = os.path.dirname(folder)
                self.sync_folder(folder)
            return os.open(name, flags, 0o640, dir_fd=self._fd)

    def _make_folder(self, folder: str) -> None:
        """Create a folder and its parents. FileNotFoundError when the root is gone."""
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

    def space(self) -> DiskSpace:
        found = os.fstatvfs(self._fd)
        return DiskSpace(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)

    def where(self, name: str) -> str:
        return os.path.join(self.root, name) if name else self.root

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)


class FolderLock:
    """Refuses a second daemon on the same folder: each would take the other's files for damage."""

    def __init__(self, root: str) -> None:
        try:
            make_private(root)
            self._fd = os.open(os.path.join(root, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        except OSError as error:
            raise StorageError(root, None, f"the data_dir cannot be used: {error.strerror}") from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._fd)
            raise StorageError(root, None, "another process uses this data_dir") from None

    def release(self) -> None:
        """Release the lock. When the process ends, the kernel does it."""
        with suppress(OSError):
            os.close(self._fd)
