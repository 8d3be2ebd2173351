"""Keys that a user types while a table is live. Without a terminal as standard input there are none."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Keys:
    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    def wait(self, seconds: float) -> str:
        """Wait for a key, at most this long. Return "" when none came."""
        if self._descriptor is None:
            time.sleep(seconds)
            return ""
        ready, _, _ = select.select([self._descriptor], [], [], seconds)
        if not ready:
            return ""
        typed = os.read(self._descriptor, 1).decode(errors="replace")
        if not typed:  # the terminal is gone: do not ask it again
            self._descriptor = None
        return typed


@contextmanager
def reading_keys() -> Iterator[Keys]:
    """Take each key at once and do not show it, until the block ends."""
    if not sys.stdin.isatty():
        yield Keys(None)
        return
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)  # Ctrl-C still interrupts
    try:
        yield Keys(descriptor)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
