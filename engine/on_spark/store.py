"""Files of a checkpoint: on this machine, or wherever ``pyarrow.fs`` reaches (``hdfs:``, ``s3:``, ``gs:``).

A file appears whole: it is written under another name and renamed. On this machine ``sync`` makes it safe against a
loss of power too; elsewhere the file system answers for that.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from pathlib import Path

from pyarrow import fs

from catalog.errors import AuroraError
from router.spark.wire.disk import sync_path
from storage.checksum import crc32


class SparkCheckpointError(AuroraError):
    """A file of a checkpoint is missing or damaged, or the checkpoint belongs to another network."""


class CheckpointStore:
    """Any thread, any process."""

    def __init__(self, place: str) -> None:
        self.place = place
        self._files, self._root = _open(place)
        self._is_local = isinstance(self._files, fs.LocalFileSystem)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    def local(self, name: str) -> Path | None:
        """Return the path of a file on this machine; None when the checkpoint is elsewhere."""
        return Path(self._path(name)) if self._is_local else None

    def address(self, name: str) -> str:
        """Return the address that Spark takes."""
        if self._is_local:
            return f"file://{self._path(name)}"
        return f"{self.place.rstrip('/')}/{name}"

    def write(self, name: str, data: bytes) -> int:
        """Write a file whole. Return its checksum."""
        path = self._path(name)
        self._files.create_dir(path.rpartition("/")[0], recursive=True)
        new = f"{path}.{secrets.token_hex(4)}.new"
        with self._files.open_output_stream(new) as out:
            out.write(data)
        self._files.move(new, path)
        return crc32(data)

    def output(self, name: str) -> fs.NativeFile:  # type: ignore[name-defined]
        """Open a file to write. Nobody knows its name until its writer has closed it and told it."""
        path = self._path(name)
        self._files.create_dir(path.rpartition("/")[0], recursive=True)
        return self._files.open_output_stream(path)

    def read(self, name: str, checksum: int | None = None) -> bytes:
        """Read a file. Raises SparkCheckpointError when it is not there, or not what was written."""
        try:
            with self._files.open_input_file(self._path(name)) as file:
                data: bytes = file.read()
        except (FileNotFoundError, OSError) as error:
            raise SparkCheckpointError(f"{self.place}/{name} cannot be read: {error}") from error
        if checksum is not None and crc32(data) != checksum:
            raise SparkCheckpointError(f"{self.place}/{name} is damaged")
        return data

    def has(self, name: str) -> bool:
        found: fs.FileInfo = self._files.get_file_info(self._path(name))
        return bool(found.type != fs.FileType.NotFound)

    def names(self, name: str) -> list[str]:
        """List a folder. A folder that does not exist is empty."""
        chosen = fs.FileSelector(self._path(name), allow_not_found=True)
        return sorted(info.base_name for info in self._files.get_file_info(chosen))

    def delete(self, name: str) -> None:
        """Delete a folder, if it exists."""
        if self.has(name):
            self._files.delete_dir(self._path(name))

    def sync(self, names: Iterable[str]) -> None:
        """Sync files and the folders between them and the root, if they are on this machine."""
        if not self._is_local:
            return
        root = Path(self._root)
        paths = [root / name for name in names]
        folders = {f for path in paths for f in path.parents if f == root or root in f.parents}
        for path in [*paths, *sorted(folders)]:
            sync_path(path)


def _open(place: str) -> tuple[fs.FileSystem, str]:
    if "://" in place:
        files, path = fs.FileSystem.from_uri(place)
        return files, path.rstrip("/")
    return fs.LocalFileSystem(), os.path.abspath(place.removeprefix("file:"))
