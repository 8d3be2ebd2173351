"""Sync files that another process reads: the daemon's segments, and the files that the driver publishes in a sink."""

from __future__ import annotations

import os
from pathlib import Path


def sync_path(path: Path) -> None:
    """Sync a file's bytes, or the names in a folder."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
