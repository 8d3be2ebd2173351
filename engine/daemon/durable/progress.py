"""How far a recovery is: a bar on a terminal, else a log line every two seconds."""

from __future__ import annotations

import logging
import sys
from time import monotonic

from engine.daemon.durable.recovery import Progress

log = logging.getLogger("aurorad")

BAR_WIDTH = 30
LOG_EVERY_SECONDS = 2.0


class ProgressBar:
    def __init__(self) -> None:
        self._logged_s = monotonic()

    def __call__(self, progress: Progress) -> None:
        if not progress.total_bytes:
            return
        if sys.stderr.isatty():
            self._draw(progress)
        elif monotonic() - self._logged_s > LOG_EVERY_SECONDS:
            self._logged_s = monotonic()
            log.info("recovering: %s", describe(progress))

    def _draw(self, progress: Progress) -> None:
        filled = BAR_WIDTH * progress.done_bytes // progress.total_bytes
        bar = "#" * filled + "." * (BAR_WIDTH - filled)
        end = "\n" if progress.done_bytes >= progress.total_bytes else ""
        sys.stderr.write(f"\rrecovering [{bar}] {describe(progress)}\x1b[K{end}")
        sys.stderr.flush()


def describe(progress: Progress) -> str:
    share = progress.done_bytes / progress.total_bytes
    left_s = progress.seconds * (1 - share) / share if share else 0.0
    return f"{share:.0%}, {progress.tuples:,} tuples, {left_s:.0f} s left"
