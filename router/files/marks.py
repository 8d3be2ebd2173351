"""What a file sink has written, over restarts: the rows and bytes that are surely in its file.

With a data_dir the writer syncs its file, then notes how many rows of the output are in it and up to which byte, then
lets the log forget those rows. After a crash the file is cut to that byte, and the history goes on behind that row: no
row is lost and none is there twice.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import NamedTuple


class SinkMark(NamedTuple):
    rows: int  # of the output, from the first one on
    nbytes: int  # of the file
    inode: int


class SinkMarks:
    """The mark of one output. ``path`` None: nothing is remembered. Owner: the writer's thread."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def read(self) -> SinkMark | None:
        if self._path is None or not self._path.is_file():
            return None
        return SinkMark(**json.loads(self._path.read_text()))

    def write(self, mark: SinkMark) -> None:
        """Keep a mark so that it survives a power failure. Raises OSError."""
        if self._path is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        new = self._path.with_name(self._path.name + ".new")
        with new.open("w") as out:
            json.dump(mark._asdict(), out)
            out.flush()
            os.fsync(out.fileno())
        os.replace(new, self._path)
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
