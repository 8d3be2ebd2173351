"""The processes of the demo: a daemon and a feed, started and ended in order.

The feed ends first and the daemon last, so that the daemon drains everything that it was sent. While the terminal shows
a table, the daemon's log goes to a file; if the daemon dies, the error shows the end of that file.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from catalog.config.units import Address
from catalog.errors import AuroraError
from catalog.network import Network
from engine.lab.processes import command, end, spawn

START_SECONDS = 20.0
LOG_TAIL_LINES = 20


class SceneError(AuroraError):
    """The daemon or its feed ended, or did not start. ``code`` is the daemon's exit code."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code or 1


class Scene:
    """A running daemon and its running feed."""

    def __init__(self, daemon: subprocess.Popen[bytes], feed: subprocess.Popen[bytes], log: IO[bytes] | None) -> None:
        self.daemon = daemon
        self.feed = feed
        self._log = log

    def check(self) -> None:
        """Raise SceneError if either process has ended by itself."""
        if (code := self.daemon.poll()) is not None:
            raise SceneError(f"the daemon ended with code {code}{self.tail()}", code)
        if (code := self.feed.poll()) is not None:
            raise SceneError(f"the feed ended with code {code}")

    def tail(self) -> str:
        """Return the end of the daemon's log if it went to a file."""
        if self._log is None:
            return ""
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").splitlines()
        return "\n" + "\n".join(lines[-LOG_TAIL_LINES:])


@contextmanager
def play(file: Path, network: Network, per_s: float, seed: int, *, quiet: bool) -> Iterator[Scene]:
    """Start daemon and feed, and end both when the block is left. ``quiet`` sends the daemon's log to a file."""
    fed = {s.name: s.source.tcp for s in network.streams if s.source is not None and s.source.tcp is not None}
    if lacking := {"trades", "quotes"} - set(fed):
        names = " and ".join(sorted(lacking))
        raise SceneError(
            f"{file} has no stream {names} with a tcp source; the demo feeds the streams trades and quotes", 78
        )
    trades, quotes = reachable(fed["trades"]), reachable(fed["quotes"])
    with ExitStack() as stack:
        log = stack.enter_context(tempfile.TemporaryFile(prefix="aurorad-demo-")) if quiet else None
        daemon = spawn(command("run", str(file.resolve())), stdout=log, stderr=log)
        stack.callback(end, daemon)
        feed = spawn(
            [sys.executable, "-m", "engine.lab.demo.traffic", trades.host, str(trades.port), str(quotes.port),
             str(per_s), str(seed)], stderr=log,
        )  # fmt: skip
        stack.callback(end, feed)  # ends before the daemon: callbacks run last in, first out
        yield Scene(daemon, feed, log)


def reachable(address: Address) -> Address:
    """Return the address to connect to for a listener that may listen on all interfaces."""
    return Address("127.0.0.1", address.port) if address.host in ("0.0.0.0", "::") else address  # noqa: S104


def wait_until(answers: Callable[[], bool], scene: Scene) -> None:
    """Wait until ``answers()`` is true. Raise SceneError if the daemon ends first or takes too long."""
    deadline = time.monotonic() + START_SECONDS
    while not answers():
        scene.check()
        if time.monotonic() > deadline:
            raise SceneError(f"the daemon did not answer within {START_SECONDS:g} s{scene.tail()}")
        time.sleep(0.05)
