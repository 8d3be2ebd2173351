"""Operations on files below one folder: the folder of a sink, or of staged rows. Files go by their names below it.

``LocalFolder`` is a folder on this machine: it uses the kernel's calls and syncs. ``HadoopFolder`` is any other
(``hdfs:``, ``s3a:``, whatever the user's Spark supports): it uses Hadoop's file system, through the JVM.

Refused: Hadoop's file system for ``file:`` too. Every path and every operation is a call into the JVM, which takes a
millisecond just after a job, and a commit needs forty of them. It also leaves a checksum file beside every file.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from errno import EXDEV
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from router.spark.wire.disk import sync_path
from router.spark.wire.errors import SparkRefusedError

SYNCS_AT_ONCE = 4
LOCK_SECONDS = 24 * 3600.0  # the longest time that a compaction may take
HIDDEN = ("_", ".")  # Spark's readers ignore such files, and such folders unless they are ``field=value``


class FoundFile(NamedTuple):
    name: str  # below the folder that was walked, with slashes
    nbytes: int


class Folder(Protocol):
    def address(self, name: str = "") -> str:
        """Return the address that Spark takes."""

    def has(self, name: str) -> bool: ...

    def read(self, name: str) -> bytes: ...

    def names(self, name: str) -> list[str]:
        """List a folder. A folder that does not exist is empty."""

    def walk(self, name: str) -> list[FoundFile]:
        """Return every file below this folder that Spark's readers would read, sorted by name."""

    def write(self, name: str, data: bytes) -> None:
        """Write a file in one step, synced."""

    def move(self, source: str, target: str) -> None:
        """Move a file. Make its new folder if need be."""

    def sync(self, names: Iterable[str]) -> None:
        """Sync those of these files that exist, and their names, if the file system can."""

    def delete(self, name: str = "") -> None:
        """Delete a file, or a folder with its contents, if it exists."""

    def lock(self, name: str) -> AbstractContextManager[None]:
        """Hold a lock file. Raises SparkRefusedError when another process holds it."""


def open_folder(session: Any, path: str) -> Folder:
    """Open the folder at a path or URI, by the file system that Spark would use for it."""
    jvm = session.sparkContext._jvm
    root = jvm.org.apache.hadoop.fs.Path(path)
    files = root.getFileSystem(session.sparkContext._jsc.hadoopConfiguration())
    root = files.makeQualified(root)
    if str(files.getUri()).startswith("file:"):
        return LocalFolder(Path(str(root.toUri().getPath())))
    return HadoopFolder(jvm, files, root)


class LocalFolder:
    def __init__(self, root: Path) -> None:
        self._root = root

    def address(self, name: str = "") -> str:
        return f"file:{self._root / name}"

    def has(self, name: str) -> bool:
        return (self._root / name).exists()

    def read(self, name: str) -> bytes:
        return (self._root / name).read_bytes()

    def names(self, name: str) -> list[str]:
        folder = self._root / name
        return sorted(os.listdir(folder)) if folder.is_dir() else []

    def walk(self, name: str) -> list[FoundFile]:
        base = self._root / name
        found: list[FoundFile] = []
        for folder, folders, files in os.walk(base, onerror=_raise):
            folders[:] = [f for f in folders if not _is_hidden_folder(f)]
            paths = [Path(folder, f) for f in files if not f.startswith(HIDDEN)]
            found += [FoundFile(p.relative_to(base).as_posix(), p.stat().st_size) for p in paths]
        return sorted(found)

    def write(self, name: str, data: bytes) -> None:
        path = self._root / name
        new = path.with_name(path.name + ".new")
        path.parent.mkdir(parents=True, exist_ok=True)
        with new.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
        sync_path(path.parent)

    def move(self, source: str, target: str) -> None:
        path = self._root / target
        path.parent.mkdir(parents=True, exist_ok=True)
        origin = self._root / source
        try:
            origin.replace(path)
        except OSError as error:
            if error.errno != EXDEV:
                raise
            new = path.with_name(f".{path.name}.new")  # the target is on another disk
            shutil.copyfile(origin, new)
            sync_path(new)
            new.replace(path)
            origin.unlink()

    def sync(self, names: Iterable[str]) -> None:
        """Sync the files and all folders between them and the root: the folders may be new."""
        paths = [path for name in names if (path := self._root / name).exists()]
        folders = {f for path in paths for f in path.parents if f == self._root or self._root in f.parents}
        with ThreadPoolExecutor(SYNCS_AT_ONCE) as pool:
            list(pool.map(sync_path, [*paths, *sorted(folders)]))

    def delete(self, name: str = "") -> None:
        path = self._root / name
        try:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        except FileNotFoundError:
            pass

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """The kernel lets go of the lock when its process ends, however that ends."""
        path = self._root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise SparkRefusedError(f"another process holds {path}") from error
            yield


class HadoopFolder:
    def __init__(self, jvm: Any, files: Any, root: Any) -> None:
        self._jvm = jvm
        self._files = files
        self._root = root

    def _path(self, name: str) -> Any:
        """Build the path of a name that may contain characters which a URI escapes."""
        path, found = self._jvm.org.apache.hadoop.fs.Path, self._root
        for part in filter(None, name.split("/")):
            found = path(found, path(None, None, part))
        return found

    def address(self, name: str = "") -> str:
        return str(self._path(name).toString())

    def has(self, name: str) -> bool:
        return bool(self._files.exists(self._path(name)))

    def read(self, name: str) -> bytes:
        stream = self._files.open(self._path(name))
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def names(self, name: str) -> list[str]:
        folder = self._path(name)
        if not self._files.exists(folder):
            return []
        return sorted(str(status.getPath().getName()) for status in self._files.listStatus(folder))

    def walk(self, name: str) -> list[FoundFile]:
        base = self._path(name)
        return sorted(self._walk(base, len(base.toUri().getPath()) + 1))

    def _walk(self, folder: Any, skipped: int) -> Iterator[FoundFile]:
        for status in self._files.listStatus(folder):
            path = status.getPath()
            name = path.getName()
            if status.isDirectory():
                if not _is_hidden_folder(name):
                    yield from self._walk(path, skipped)
            elif not name.startswith(HIDDEN):
                yield FoundFile(path.toUri().getPath()[skipped:], status.getLen())

    def write(self, name: str, data: bytes) -> None:
        path, new = self._path(name), self._path(f"{name}.new")
        self._files.mkdirs(path.getParent())
        out = self._files.create(new, True)
        try:
            out.write(data)
            out.hflush()
            out.hsync()
        finally:
            out.close()
        if not self._files.rename(new, path):
            raise SparkRefusedError(f"cannot write {path.toString()}")

    def move(self, source: str, target: str) -> None:
        origin, final = self._path(source), self._path(target)
        self._files.mkdirs(final.getParent())
        if not self._files.rename(origin, final) and not self._files.exists(final):
            raise SparkRefusedError(f"cannot move {origin.toString()} to {final.toString()}")

    def sync(self, names: Iterable[str]) -> None:
        """Do nothing: these file systems promise that a closed file is safe."""

    def delete(self, name: str = "") -> None:
        self._files.delete(self._path(name), True)

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """A file that exists is the lock. A process that was killed leaves it behind, so it counts for a day only."""
        path = self._path(name)
        if self._files.exists(path):
            age_s = time.time() - self._files.getFileStatus(path).getModificationTime() / 1e3
            if age_s < LOCK_SECONDS:
                raise SparkRefusedError(
                    f"{path.toString()} is {age_s:.0f} s old: another process holds it, or was killed; then delete it"
                )
            self._files.delete(path, False)
        try:
            self._files.create(path, False).close()
        except Exception as error:
            raise SparkRefusedError(f"another process holds {path.toString()}") from error
        try:
            yield
        finally:
            self._files.delete(path, False)


def _is_hidden_folder(name: str) -> bool:
    return name.startswith(HIDDEN) and "=" not in name


def _raise(error: OSError) -> None:
    raise error
