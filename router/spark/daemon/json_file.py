"""A small JSON file of the daemon that is always replaced whole: a crash leaves the old or the new one.

Errors of the disk and damage are typed: a peer whose request needs the file gets the reason as its answer.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from router.spark.wire.disk import sync_path
from router.spark.wire.errors import SparkFailedError


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the content; None when there is no such file. Raises SparkFailedError."""
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise SparkFailedError(f"{path} cannot be read ({error}): restore it, or move it away to forget it") from error
    if not isinstance(content, dict):
        raise SparkFailedError(f"{path} is damaged: restore it, or move it away to forget it")
    return content


def replace_json(path: Path, content: Mapping[str, Any]) -> None:
    """Replace the content, synced with its name. Raises SparkFailedError, and then the old content stands.

    One thread at a time for a path: the new content has a name of its own until it is complete.
    """
    new = path.with_name(path.name + ".new")
    try:
        with new.open("w") as out:
            json.dump(content, out)
            out.flush()
            os.fsync(out.fileno())
        os.replace(new, path)
        sync_path(path.parent)
    except OSError as error:
        raise SparkFailedError(f"{path} cannot be written: {error.strerror}") from error
