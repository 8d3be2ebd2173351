"""The real daemon with a clock of its own: every SIGUSR1 moves it, by hours or days, to and fro.

    python -m tests.crash.jumping_daemon run network.yaml

The arguments are those of ``aurorad``. The clock of the machine cannot be moved for one process, so the launcher
replaces Python's before anything else is imported.
"""

from __future__ import annotations

import itertools
import signal
import sys
import time

HOUR_S = 3_600
JUMPS_S = (HOUR_S, -2 * HOUR_S, 12 * 24 * HOUR_S, -12 * 24 * HOUR_S, 0)


def jumping_command(*arguments: str) -> list[str]:
    """Return the command line that starts the daemon so; the working directory must be the project's root."""
    return [sys.executable, "-m", "tests.crash.jumping_daemon", *arguments]


def run() -> None:
    jumps, offset_s = itertools.cycle(JUMPS_S), 0
    time_s, time_ns = time.time, time.time_ns

    def jump(*_: object) -> None:
        nonlocal offset_s
        offset_s = next(jumps)

    time.time = lambda: time_s() + offset_s
    time.time_ns = lambda: time_ns() + offset_s * 10**9
    signal.signal(signal.SIGUSR1, jump)
    from engine.cli import main

    main()


if __name__ == "__main__":
    run()
