"""The files of a source on this machine, without Spark: which there are, and whether they have changed.

Spark needs half a minute to start, and a rerun would only learn that there is nothing to do. The driver's fingerprint
still decides for every source that this one cannot judge.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from glob import glob
from pathlib import Path
from typing import Any

KINDS = ("parquet", "orc", "csv", "json", "text")
MOST_FILES = 10_000


def local_paths(given: Any) -> list[str] | None:
    """Return the paths and globs of a source as those of this machine; None if one of them is elsewhere."""
    paths = [given] if isinstance(given, str) else list(given or ())
    if not paths or any("://" in path.removeprefix("file://") for path in paths):
        return None
    return [os.path.abspath(path.removeprefix("file://").removeprefix("file:")) for path in paths]


def local_fingerprint(source: Mapping[str, Any], fields: Any) -> str:
    """Hash the request and the names, sizes and times of its files. Empty when they are elsewhere, or too many."""
    paths = local_paths(source.get("path"))
    if source["spark"] not in KINDS or source.get("sql") or paths is None:
        return ""
    digest = hashlib.sha256(json.dumps([dict(source), fields], sort_keys=True).encode())
    count = 0
    for path in paths:
        for file, _ in files_of(path):
            count += 1
            if count > MOST_FILES:
                return ""
            found = file.stat()
            digest.update(f"{file}\0{found.st_size}\0{found.st_mtime_ns}\0".encode(errors="surrogateescape"))
    return digest.hexdigest()[:32] if count else ""


def files_of(path: str, onerror: Callable[[OSError], None] | None = None) -> Iterator[tuple[Path, str]]:
    """Yield the files behind a path or glob that Spark would read, in one order, each with the folder that the path
    names; an empty text where it names the file itself. ``onerror`` gets what cannot be listed."""
    found = [path] if os.path.exists(path) else sorted(glob(path))
    for place in found:
        if os.path.isfile(place):
            yield Path(place).absolute(), ""
            continue
        for folder, folders, files in os.walk(place, onerror=onerror):
            folders[:] = sorted(f for f in folders if not f.startswith(("_", ".")) or "=" in f)
            yield from ((Path(folder, f).absolute(), place) for f in sorted(files) if not f.startswith(("_", ".")))
