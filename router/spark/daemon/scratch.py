"""The scratch folder of a driver: temporary files of the JVM and of Spark's Python workers.

Three processes may have to remove it. The daemon does when its driver has ended. A driver whose daemon is gone does it
itself (``driver/main.py``). When both were killed, the next daemon on this machine does: a folder has a lock file that
its daemon holds, and the kernel lets go of the lock when the daemon ends.
"""

from __future__ import annotations

import fcntl
import logging
import shutil
import tempfile
import time
from pathlib import Path

log = logging.getLogger("aurorad.spark")

PREFIX = "aurorad-spark-"
LOCK = "daemon.lock"
UNLOCKED_SECONDS = 24 * 3600.0  # a younger folder without a lock may be one that another daemon is making now


class ScratchFolder:
    """A folder of this daemon, from its construction to ``remove``."""

    def __init__(self) -> None:
        sweep(Path(tempfile.gettempdir()))
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        self._lock = (self.path / LOCK).open("wb")
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


def sweep(parent: Path) -> None:
    """Remove the scratch folders of daemons that were killed together with their drivers."""
    for folder in parent.glob(f"{PREFIX}*"):
        try:
            if _is_abandoned(folder):
                shutil.rmtree(folder)
                log.info("removed %s: its daemon was killed", folder)
        except OSError as error:  # the folder of another user, or one that another daemon removes now
            log.debug("%s stays: %s", folder, error)


def _is_abandoned(folder: Path) -> bool:
    lock = folder / LOCK
    if not lock.exists():
        return time.time() - folder.stat().st_mtime > UNLOCKED_SECONDS
    with lock.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True
