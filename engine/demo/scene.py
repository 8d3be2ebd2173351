"""The demo as processes: a daemon, a feed, and whoever looks at them. Started in order, ended in order.

The feed ends first and the daemon last, so that the daemon drains what it has been sent. What the daemon logs goes to
a file while the terminal shows a table, and is shown if the daemon dies.
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
from engine.processes import command, end, spawn

START_SECONDS = 20.0
LOG_TAIL_LINES = 20


class SceneError(AuroraError):
    """The daemon or its feed is gone, or never came. ``code`` is the daemon's exit code."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code or 1


class Scene:
    """A daemon and its feed, both running."""

    def __init__(self, daemon: subprocess.Popen[bytes], feed: subprocess.Popen[bytes], log: IO[bytes] | None) -> None:
        self.daemon = daemon
        self.feed = feed
        self._log = log

    def check(self) -> None:
        """Raises when either has ended by itself."""
        if (code := self.daemon.poll()) is not None:
            raise SceneError(f"the daemon has ended with code {code}{self.tail()}", code)
        if (code := self.feed.poll()) is not None:
            raise SceneError(f"the feed has ended with code {code}")

    def tail(self) -> str:
        """The end of the daemon's log, where it went to a file."""
        if self._log is None:
            return ""
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").splitlines()
        return "\n" + "\n".join(lines[-LOG_TAIL_LINES:])


@contextmanager
def play(file: Path, network: Network, per_s: float, seed: int, *, quiet: bool) -> Iterator[Scene]:
    """Start daemon and feed; end both when the block is left. ``quiet``: the daemon's log goes to a file."""
    fed = {s.name: s.source.tcp for s in network.streams if s.source is not None and s.source.tcp is not None}
    if lacking := {"trades", "quotes"} - set(fed):
        names = " and ".join(sorted(lacking))
        raise SceneError(
            f"{file} has no stream {names} with a tcp source: the demo's market feeds trades and quotes", 78
        )
    trades, quotes = reachable(fed["trades"]), reachable(fed["quotes"])
    with ExitStack() as stack:
        log = stack.enter_context(tempfile.TemporaryFile(prefix="aurorad-demo-")) if quiet else None
        daemon = spawn(command("run", str(file.resolve())), stdout=log, stderr=log)
        stack.callback(end, daemon)
        feed = spawn(
            [sys.executable, "-m", "engine.demo.traffic", trades.host, str(trades.port), str(quotes.port), str(per_s),
             str(seed)], stderr=log,
        )  # fmt: skip
        stack.callback(end, feed)  # before the daemon: callbacks run last in, first out
        yield Scene(daemon, feed, log)


def reachable(address: Address) -> Address:
    """Where to connect to something that listens there."""
    return Address("127.0.0.1", address.port) if address.host in ("0.0.0.0", "::") else address  # noqa: S104


def wait_until(answers: Callable[[], bool], scene: Scene) -> None:
    """Raises when the daemon dies first or takes too long."""
    deadline = time.monotonic() + START_SECONDS
    while not answers():
        scene.check()
        if time.monotonic() > deadline:
            raise SceneError(f"the daemon does not answer after {START_SECONDS:g} s{scene.tail()}")
        time.sleep(0.05)
