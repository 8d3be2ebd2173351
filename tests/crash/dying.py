"""Files that kill their own process before a given file operation: a test reaches every moment of a daemon's writing.

They send SIGKILL, so the process cleans nothing up. The kernel keeps what was written, as it does for any process that
is killed. ``dying_daemon.py`` starts the real daemon on such files.

A ``Death`` decides when. It counts the moments of one phase and notes in a file, just before the kill, where it was:
so a test knows that a kill hit a checkpoint, a recovery or a spill, and does not hope so.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from threading import Lock

from storage.files import Bytes, DiskSpace, File, Files

FOLDERS = {"checkpoint": ("checkpoint/",), "spill": ("spill/",), "state": ("state/",)}
"""The phases whose moments are the operations on files with these names."""

RECOVERY = "recovery"
"""The phase from the first record that a start reads behind its checkpoint to the end of the replay."""

ANY = "any"
"""All file operations."""


class Death:
    """Kills the process before the moment with this number, from 0, of a phase. Any thread."""

    def __init__(self, phase: str, moment: int, note: Path | None = None) -> None:
        self.phase = phase
        self._left = moment
        self._note = note
        self._lock = Lock()
        self._is_recovering = False

    def operation(self, what: str, name: str) -> None:
        """Count a file operation, if it belongs to the phase."""
        if (
            self.phase == ANY
            or name.startswith(FOLDERS.get(self.phase, ()))
            or (self.phase == RECOVERY and self._is_recovering)
        ):
            self._count(what, name)

    def recovering(self, what: str) -> None:
        """Count a step of a recovery. The last one, ``finish``, kills in any case: no recovery gets away."""
        self._is_recovering = True
        if self.phase == RECOVERY:
            if what == "finish":
                self._left = 0
            self._count(what, "")

    def _count(self, what: str, name: str) -> None:
        with self._lock:
            if self._left <= 0:
                if self._note is not None:
                    with self._note.open("a") as file:
                        file.write(json.dumps({"phase": self.phase, "before": what, "file": name}) + "\n")
                os.kill(os.getpid(), signal.SIGKILL)
            self._left -= 1


class DyingFiles:
    """Counts create, append, sync, truncate, rename, remove and sync_folder."""

    def __init__(self, files: Files, death: Death) -> None:
        self._files = files
        self.death = death

    def create(self, name: str) -> File:
        self.death.operation("create", name)
        return DyingFile(self._files.create(name), self)

    def attach(self, name: str) -> File:
        return DyingFile(self._files.attach(name), self)

    def list(self, folder: str) -> list[str]:
        return self._files.list(folder)

    def rename(self, old: str, new: str) -> None:
        self.death.operation("rename", old)
        self._files.rename(old, new)

    def remove(self, name: str) -> None:
        self.death.operation("remove", name)
        self._files.remove(name)

    def sync_folder(self, folder: str) -> None:
        self.death.operation("sync_folder", f"{folder}/")
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
        self._files.death.operation("append", self.name)
        self._file.append(parts)

    def sync(self) -> None:
        self._files.death.operation("sync", self.name)
        self._file.sync()

    def begin_sync(self, offset: int) -> None:
        self._file.begin_sync(offset)

    def truncate(self, size: int) -> None:
        self._files.death.operation("truncate", self.name)
        self._file.truncate(size)

    def read(self, offset: int, size: int) -> bytes:
        return self._file.read(offset, size)

    def close(self) -> None:
        self._file.close()
