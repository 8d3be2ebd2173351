"""The audit log: refused logins and handshakes, denied requests, and every change. One JSON object a line.

It goes to the daemon's log (``aurorad.audit``) and, if the network file names a file (``access.audit``), to that file.
No line has a secret. At most ``LINES_A_SECOND`` lines are written; the next one says how many were left out, so that a
flood of refused logins fills no disk.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from datetime import UTC, datetime
from threading import Lock
from typing import Any

import orjson

from catalog.errors import ListenError
from catalog.readings import AccessCount
from router.access.pace import Pace

log = logging.getLogger("aurorad.audit")

LINES_A_SECOND = 20
BURST = 200


class Audit:
    """Any thread."""

    def __init__(self, path: str | None = None) -> None:
        self._pace = Pace(LINES_A_SECOND, BURST)
        self._left_out = 0
        self._lock = Lock()
        self._counts: Counter[tuple[str, str]] = Counter()  # by event and listener, lines that were left out included
        self._fd: int | None = None
        if path is not None:
            try:
                self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except OSError as error:
                raise ListenError(f"access.audit: {path}: {error.strerror}") from error

    def count(self, event: str, listener: str) -> None:
        """Count what happened at a listener, without a line."""
        with self._lock:
            self._counts[event, listener] += 1

    def counts(self) -> list[AccessCount]:
        with self._lock:
            return [AccessCount(event, listener, n) for (event, listener), n in sorted(self._counts.items())]

    def note(self, event: str, *, listener: str = "", **facts: Any) -> None:
        """Write a line: what happened, where, and the facts of it."""
        facts["listener"] = listener
        with self._lock:
            self._counts[event, listener] += 1
            if not self._pace.may_take():
                self._left_out += 1
                return
            left_out, self._left_out = self._left_out, 0
        if left_out:
            facts["left_out"] = left_out
        log.warning("%s: %s", event, ", ".join(f"{key} {value}" for key, value in facts.items() if value != ""))
        if self._fd is not None:
            at = datetime.now(UTC).isoformat(timespec="milliseconds")
            line = orjson.dumps({"at": at, "event": event, **facts}, default=str) + b"\n"
            try:
                os.write(self._fd, line)
            except OSError as error:
                log.error("the audit file cannot be written: %s", error.strerror)

    def close(self) -> None:
        with self._lock:
            fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)
