"""The rounds of a watched folder on disk: which files were taken, and which staged rows enter now.

A round is a set of files. Its line is the decision: from then on its files are taken, and the rows that are staged for
it are what enters, also after a crash. Before that line nothing of the round counts. A second line says that all of its
rows are in the log. The file only grows; a line without its end is one that a crash cut off, and is removed.

Owner: the thread of the source. Errors are SparkFailedError: a round whose line cannot be written has not begun.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from router.spark.daemon.look import FileSign
from router.spark.wire.disk import sync_path
from router.spark.wire.errors import SparkFailedError


class StagedRound(NamedTuple):
    number: int
    files: list[str]  # staged, in the order in which they are sent
    rows: int
    batch_rows: int
    bad: int


class RoundBook:
    """``path`` None: nothing outlives the process."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.name = secrets.token_hex(4)  # of this folder's rounds: another data_dir has another
        self.taken: dict[str, FileSign] = {}
        self.pending: StagedRound | None = None  # decided, and not all of its rows are in the log
        self.last = 0  # the number of the last round
        self._nbytes = 0
        if path is not None:
            self._open(path)

    def decide(self, files: Mapping[str, FileSign], staged: StagedRound) -> None:
        """Record that a round consists of these files, and of these staged rows."""
        entries = [[path, *sign] for path, sign in files.items()]
        self._write({"round": staged.number, "took": entries, **staged._asdict()})
        self._take(entries)
        self.pending, self.last = staged, staged.number

    def done(self) -> None:
        """Record that all rows of the round are in."""
        assert self.pending is not None
        self._write({"done": self.pending.number})
        self.pending = None

    def rename(self, path: str, sign: FileSign) -> None:
        """Record that a file which was taken has this name now."""
        self._write({"renamed": [[path, *sign]]})
        self.taken[path] = sign

    def _take(self, entries: Sequence[Sequence[Any]]) -> None:
        self.taken.update({path: FileSign(*sign) for path, *sign in entries})

    def _open(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            data = path.read_bytes() if path.exists() else b""
            whole = data[: data.rfind(b"\n") + 1]
            for line in whole.splitlines():
                self._read(json.loads(line))
            self._nbytes = len(whole)
            if len(whole) < len(data):
                os.truncate(path, len(whole))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise SparkFailedError(
                f"{path} cannot be read ({error}): restore it, or move it away to take all files again"
            ) from error
        if not self._nbytes:
            self._write({"name": self.name})

    def _read(self, entry: dict[str, Any]) -> None:
        if "name" in entry:
            self.name = entry["name"]
        elif "round" in entry:
            self._take(entry["took"])
            self.pending = StagedRound(**{key: entry[key] for key in StagedRound._fields})
            self.last = self.pending.number
        elif "done" in entry:
            self.pending = None
        else:
            self._take(entry["renamed"])

    def _write(self, entry: Mapping[str, Any]) -> None:
        if self._path is None:
            return
        line = json.dumps(entry).encode() + b"\n"
        try:
            with self._path.open("ab") as out:
                out.truncate(self._nbytes)  # a line that an error cut off
                out.write(line)
                out.flush()
                os.fsync(out.fileno())
            sync_path(self._path.parent)
        except OSError as error:
            raise SparkFailedError(f"{self._path} cannot be written: {error.strerror}") from error
        self._nbytes += len(line)
