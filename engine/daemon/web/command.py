"""An aurorad command in a process of its own, for an answer of the console: it takes the GIL from nobody."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from catalog.errors import AuroraError

COMMAND_SECONDS = 120.0


class ConsoleError(AuroraError):
    """The console asked for something that cannot be done."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def plain_word(value: Any, key: str) -> str:
    if not isinstance(value, str) or not value.replace("_", "").isalnum():
        raise ConsoleError(f"{key} must be a name")
    return value


def aurorad_command(arguments: list[str], text: str, niceness: int = 0) -> str:
    """Run an aurorad command with this text as its input. Return what it prints."""
    try:
        done = subprocess.run(  # noqa: S603  (our own command; its words are checked above)
            [sys.executable, "-m", "aurorad", *arguments],
            input=text.encode(), capture_output=True, timeout=COMMAND_SECONDS, check=False,
            preexec_fn=lambda: os.nice(niceness),
            env={**os.environ, "NO_COLOR": "1"},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise ConsoleError(f"it took longer than {COMMAND_SECONDS:g} s", "the network may be too large") from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()
        raise ConsoleError(said[-2_000:] or f"`aurorad {arguments[0]}` ended with {done.returncode}")
    return done.stdout.decode()
