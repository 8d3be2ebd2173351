"""Processes of our own: the daemon and its companions, as the demo and the benchmarks start them.

A child is ended by its own handle, and it does not outlive a parent that was killed: the kernel sends it SIGTERM then.
"""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

STOP_SECONDS = 25.0
_PR_SET_PDEATHSIG = 1
_PACKAGES = Path(__file__).resolve().parents[1]


def shipped(name: str) -> Path:
    """A file of ``configs``, which lies beside the packages in a checkout and once installed."""
    return _PACKAGES / "configs" / name


def command(*arguments: str) -> list[str]:
    """The command line of this very installation, whether or not its script is on the path."""
    return [sys.executable, "-c", "from engine.cli import main; main()", *arguments]


def spawn(
    arguments: list[str],
    *,
    stdin: int | None = None,
    stdout: int | IO[bytes] | None = None,
    stderr: IO[bytes] | None = None,
    environment: dict[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """In a session of its own: a Ctrl-C in the terminal reaches the parent alone, who ends its children in order."""
    libc = ctypes.CDLL(None, use_errno=True)  # loaded here: between fork and exec nothing may be

    def die_with_parent() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

    return subprocess.Popen(
        arguments, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True, preexec_fn=die_with_parent,
        cwd=_PACKAGES, env=environment,
    )  # fmt: skip


def end(process: subprocess.Popen[bytes], seconds: float = STOP_SECONDS) -> int:
    """SIGTERM, and SIGKILL for one that does not mind; its exit code."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()
    return process.wait()
