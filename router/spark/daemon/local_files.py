"""A fingerprint of files on this machine, without Spark: whether a source has changed since it was read.

Spark needs half a minute to start, and a rerun would only learn that there is nothing to do. The driver's fingerprint
still decides for every source that this one cannot judge.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from glob import glob
from pathlib import Path
from typing import Any

KINDS = ("parquet", "orc", "csv", "json", "text")
MOST_FILES = 10_000


def local_fingerprint(source: Mapping[str, Any], fields: Any) -> str:
    """Hash the request and the names, sizes and times of its files. Empty when they are elsewhere, or too many."""
    given = source.get("path")
    paths = [given] if isinstance(given, str) else list(given or ())
    if source["spark"] not in KINDS or source.get("sql") or not paths:
        return ""
    digest = hashlib.sha256(json.dumps([dict(source), fields], sort_keys=True).encode())
    count = 0
    for path in paths:
        if "://" in path.removeprefix("file://"):
            return ""
        for file in _files(path.removeprefix("file://").removeprefix("file:")):
            count += 1
            if count > MOST_FILES:
                return ""
            found = file.stat()
            digest.update(f"{file}\0{found.st_size}\0{found.st_mtime_ns}\0".encode())
    return digest.hexdigest()[:32] if count else ""


def _files(path: str) -> Iterator[Path]:
    """Yield the files behind a path or glob that Spark would read, in one order."""
    for found in sorted(glob(path)):
        if os.path.isfile(found):
            yield Path(found).absolute()
            continue
        for folder, folders, files in os.walk(found):
            folders[:] = sorted(f for f in folders if not f.startswith(("_", ".")) or "=" in f)
            yield from (Path(folder, f).absolute() for f in sorted(files) if not f.startswith(("_", ".")))
