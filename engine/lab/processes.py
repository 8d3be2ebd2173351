"""Child processes: how the demo, the benchmarks and the tests start and end the daemon and its clients.

A child is ended by its own handle. If the parent is killed, the kernel sends the child SIGTERM, so no child outlives
its parent.
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
_PACKAGES = Path(__file__).resolve().parents[2]


def shipped(name: str) -> Path:
    """Return the path of a file in ``configs``, which lies beside the packages in a checkout and in an installation."""
    return _PACKAGES / "configs" / name


def command(*arguments: str) -> list[str]:
    """Build the command line of ``aurorad`` in this installation, whether or not its script is on the PATH."""
    return [sys.executable, "-m", "aurorad", *arguments]


def spawn(
    arguments: list[str],
    *,
    stdin: int | None = None,
    stdout: int | IO[bytes] | None = None,
    stderr: IO[bytes] | None = None,
    environment: dict[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own: Ctrl-C reaches only the parent, which ends its children in order."""
    libc = ctypes.CDLL(None, use_errno=True)  # loaded before the fork: between fork and exec nothing may be loaded

    def ask_for_the_signal() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

    return subprocess.Popen(
        arguments, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True, preexec_fn=ask_for_the_signal,
        cwd=_PACKAGES, env=environment,
    )  # fmt: skip


def die_with_parent() -> None:
    """Have the kernel end this process when its parent ends. The workers of a pool call it: else they outlive a parent
    that is killed."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def end(process: subprocess.Popen[bytes], seconds: float = STOP_SECONDS) -> int:
    """Send SIGTERM, and SIGKILL if the process has not ended in time; return its exit code."""
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
