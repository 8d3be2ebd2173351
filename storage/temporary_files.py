"""Files in a temporary folder that is made on the first write and goes away with its owner."""

from __future__ import annotations

import tempfile

from storage.files import DiskSpace, File, RealFiles


class TemporaryFiles:
    """A ``Files`` below a temporary folder. Most networks never write into it, so it does not exist before."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._real: RealFiles | None = None

    def _files(self) -> RealFiles:
        if self._real is None:
            self._folder = tempfile.TemporaryDirectory(prefix=self._prefix)
            self._real = RealFiles(self._folder.name)
        return self._real

    def create(self, name: str) -> File:
        return self._files().create(name)

    def attach(self, name: str) -> File:
        return self._files().attach(name)

    def list(self, folder: str) -> list[str]:
        return [] if self._real is None else self._real.list(folder)

    def rename(self, old: str, new: str) -> None:
        self._files().rename(old, new)

    def remove(self, name: str) -> None:
        self._files().remove(name)

    def sync_folder(self, folder: str) -> None:
        self._files().sync_folder(folder)

    def space(self) -> DiskSpace:
        return self._files().space()

    def where(self, name: str) -> str:
        return name if self._real is None else self._real.where(name)

    def close(self) -> None:
        folder, self._folder = self._folder, None
        if folder is not None:
            folder.cleanup()

    def __del__(self) -> None:
        self.close()
