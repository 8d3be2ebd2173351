"""Log lines: their formats, text for people or JSON (``log: {format: json}``), and how many there may be.

A record is always one line. Strangers can cause lines, a connection each; so lines of one kind have a limit
(``FloodFilter``), and nobody fills a disk with them.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

from catalog.printable import printable
from router.access.pace import Pace

LINES_A_SECOND = 5
BURST = 100
KINDS = 1_000


class TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = f"{_time(record)} {record.levelname.lower():7} {record.name}: {record.getMessage()}"
        if record.exc_info:
            line += " | " + self.formatException(record.exc_info).replace("\n", " | ")
        return printable(line)


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "thread": record.threadName,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


class FloodFilter(logging.Filter):
    """Let a fixed number of lines of one kind through. The next line of a kind says how many were left out before it.

    The kind of a line is its logger and its text before values are filled in; of a text that is all values, its
    beginning. The audit log has a limit of its own.
    """

    def __init__(self, a_second: float = LINES_A_SECOND, burst: float = BURST) -> None:
        super().__init__()
        self._a_second, self._burst = a_second, burst
        self._kinds: dict[tuple[str, str], Pace] = {}
        self._left_out: dict[tuple[str, str], int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name == "aurorad.audit":
            return True
        text = str(record.msg)
        kind = (record.name, record.getMessage()[:40] if text.startswith("%s") else text)
        pace = self._kinds.get(kind)
        if pace is None:
            if len(self._kinds) >= KINDS:  # texts with values in them: each would be a kind of its own
                self._kinds.clear()
            pace = self._kinds[kind] = Pace(self._a_second, self._burst)
        if not pace.may_take():
            self._left_out[kind] = self._left_out.get(kind, 0) + 1
            return False
        if left_out := self._left_out.pop(kind, 0):
            record.msg = f"{record.msg} (and {left_out:,} more like it before)"
        return True


def set_up_logs(style: str, level: str) -> None:
    """Send all log records to standard error, in a format (``text`` or ``json``) and from a level on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
    handler.addFilter(FloodFilter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.getLogger("uvicorn").setLevel(logging.WARNING)  # the daemon logs itself that HTTP starts and ends


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
