"""Remember bulk jobs over restarts: one small file for each job, if there is a data_dir.

A job is identified by its name and the fingerprint of its input. The same input again is the same job: it goes on where
it stopped, because the log knows which of its trains it has, and once it is done it is not read a second time. Another
input under the same name is a new job. Its epoch is higher, so the log takes its trains as new ones.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NamedTuple


class KnownJob(NamedTuple):
    epoch: int
    is_done: bool


class JobLedger:
    """``folder`` None: every job is new, and nothing is remembered."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def begin(self, job: str, fingerprint: str, now_ns: int) -> KnownJob:
        """Find the job, or enter it as a new one with a higher epoch than the one of its name before."""
        known = self._read(job)
        if known is not None and fingerprint and known["fingerprint"] == fingerprint:
            return KnownJob(known["epoch"], known["done"])
        epoch = max(now_ns, known["epoch"] + 1 if known is not None else 0)
        self._write(job, {"fingerprint": fingerprint, "epoch": epoch, "done": False})
        return KnownJob(epoch, False)

    def done(self, job: str) -> None:
        known = self._read(job)
        if known is not None:
            self._write(job, {**known, "done": True})

    def _path(self, job: str) -> Path:
        assert self._folder is not None
        safe = "".join(c if c.isalnum() or c in "-_" else f"%{ord(c):04x}" for c in job)
        return self._folder / f"{safe[:200]}.json"

    def _read(self, job: str) -> dict[str, Any] | None:
        if self._folder is None or not self._path(job).is_file():
            return None
        found: dict[str, Any] = json.loads(self._path(job).read_text())
        return found

    def _write(self, job: str, entry: dict[str, Any]) -> None:
        if self._folder is None:
            return
        path = self._path(job)
        new = path.with_name(path.name + ".new")
        with new.open("w") as out:
            json.dump(entry, out)
            out.flush()
            os.fsync(out.fileno())
        os.replace(new, path)
