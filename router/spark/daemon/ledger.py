"""Remember bulk jobs over restarts: one small file for each job, if there is a data_dir.

A job is identified by its name and the fingerprint of its input. The same input again is the same job: it goes on where
it stopped, because the log knows which of its trains it has, and once it is done it is not read a second time. Another
input under the same name is a new job. Its epoch is higher, so the log takes its trains as new ones.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from router.spark.daemon.json_file import read_json, replace_json
from router.spark.wire.errors import SparkFailedError

NAME_BYTES = 200
"""Of the name of a job's file. File systems take 255."""


class KnownJob(NamedTuple):
    epoch: int
    is_done: bool


class JobMemory(NamedTuple):
    """What the next run needs to know of a job that is done."""

    files: str = ""  # its files on this machine (``local_fingerprint``); empty when it had none
    mark: str = ""  # the highest value of its increasing field
    grows: bool = False  # its input may have more rows without any sign of it: the next run is another job


NO_MEMORY = JobMemory()


class JobLedger:
    """``folder`` None: every job is new, and nothing is remembered. Any thread. Raises SparkFailedError."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._lock = Lock()  # two peers may begin one job at the same time
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def begin(self, job: str, fingerprint: str, now_ns: int) -> KnownJob:
        """Find the job, or enter it as a new one with a higher epoch than the one of its name before."""
        with self._lock:
            known = self._read(job)
            if known is not None and fingerprint and known["fingerprint"] == fingerprint:
                return KnownJob(known["epoch"], known["done"])
            epoch = max(now_ns, known["epoch"] + 1 if known is not None else 0)
            mark = "" if known is None else known.get("mark", "")
            self._write(job, {"fingerprint": fingerprint, "epoch": epoch, "done": False, "mark": mark})
            return KnownJob(epoch, False)

    def done(self, job: str, memory: JobMemory = NO_MEMORY) -> None:
        """Remember that a job has read all of its input."""
        with self._lock:
            known = self._read(job)
            if known is not None:
                more = {"files": memory.files, "mark": memory.mark or known.get("mark", ""), "done": True}
                if memory.grows:
                    more["fingerprint"] = ""
                self._write(job, {**known, **more})

    def has_read(self, job: str, files: str) -> bool:
        """Tell whether the job has read exactly these files."""
        with self._lock:
            known = self._read(job)
        return bool(files) and known is not None and known["done"] and known.get("files") == files

    def has_read_other(self, job: str, fingerprint: str) -> bool:
        """Tell whether a job of this name has read another input to its end."""
        with self._lock:
            known = self._read(job)
        return known is not None and known["done"] and known["fingerprint"] not in ("", fingerprint)

    def mark(self, job: str) -> str:
        """Return the highest value of the increasing field that the job has read; empty at first."""
        with self._lock:
            known = self._read(job)
        return "" if known is None else str(known.get("mark", ""))

    def _path(self, job: str) -> Path:
        assert self._folder is not None
        safe = "".join(c if c.isalnum() or c in "-_" else f"%{ord(c):04x}" for c in job)
        if len(safe.encode()) > NAME_BYTES:
            safe = hashlib.sha256(job.encode()).hexdigest()
        return self._folder / f"{safe}.json"

    def _read(self, job: str) -> dict[str, Any] | None:
        if self._folder is None:
            return None
        path = self._path(job)
        known = read_json(path)
        if known is None:
            return None
        types = {"fingerprint": str, "epoch": int, "done": bool}
        if not all(isinstance(known.get(key), kind) for key, kind in types.items()):
            raise SparkFailedError(f"{path} is damaged: restore it, or move it away to forget the job")
        return known

    def _write(self, job: str, entry: dict[str, Any]) -> None:
        if self._folder is not None:
            replace_json(self._path(job), entry)
