"""The processes of the demo: a daemon and a feed, started and ended in order.

The feed starts when the daemon has said that its own listeners are open (``engine/daemon/process/notify``). So it
never feeds a stranger that has one of the ports. An answer over HTTP would not show that: the stranger may answer.

The feed ends first and the daemon last, so that the daemon drains everything that it was sent. While the terminal shows
a table, the daemon's log goes to a file; if the daemon dies, the error shows the end of that file.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from catalog.config.checks import listeners
from catalog.config.units import Address
from catalog.errors import AuroraError
from catalog.network import Network
from engine.daemon.process.notify import NOTIFY_SOCKET, READY
from engine.lab.processes import command, end, spawn
from router.ports import why_taken

START_SECONDS = 60.0
POLL_SECONDS = 0.1
LOG_TAIL_LINES = 20
EX_UNAVAILABLE = 69  # sysexits.h: something that the demo needs is not to be had
EX_CONFIG = 78


class SceneError(AuroraError):
    """The daemon or its feed ended, or cannot start. ``code`` is the exit code of the command."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code or 1


class Scene:
    """A running daemon and, once the daemon is ready, its feed."""

    def __init__(self, daemon: subprocess.Popen[bytes], log: IO[bytes] | None) -> None:
        self.daemon = daemon
        self.feed: subprocess.Popen[bytes] | None = None
        self._log = log

    def check(self) -> None:
        """Raise SceneError if either process has ended by itself."""
        if (code := self.daemon.poll()) is not None:
            raise SceneError(f"the daemon ended with code {code}{self.tail()}", code)
        if self.feed is not None and (code := self.feed.poll()) is not None:
            raise SceneError(f"the feed ended with code {code}")

    def end_feed(self) -> None:
        """End the feed, so that the daemon comes to rest."""
        if self.feed is not None:
            end(self.feed)

    def tail(self) -> str:
        """Return the end of the daemon's log if it went to a file."""
        if self._log is None:
            return ""
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").splitlines()
        return "\n" + "\n".join(lines[-LOG_TAIL_LINES:])


@contextmanager
def play(
    file: Path, network: Network, per_s: float, seed: int, *, quiet: bool, options: tuple[str, ...] = ()
) -> Iterator[Scene]:
    """Start the daemon, and the feed once the daemon is ready, and end both when the block is left.

    ``quiet`` sends the daemon's log to a file; ``options`` go to ``aurorad run``. Raises SceneError before anything
    starts when the file has no streams to feed or a port is taken.
    """
    trades, quotes = _fed_streams(file, network)
    _check_ports(network)
    with ExitStack() as stack:
        log = stack.enter_context(tempfile.TemporaryFile(prefix="aurorad-demo-")) if quiet else None
        path = f"{stack.enter_context(tempfile.TemporaryDirectory(prefix='aurorad-demo-'))}/notify"
        ready = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        ready.bind(path)
        ready.settimeout(POLL_SECONDS)
        daemon = spawn(
            command("run", str(file.resolve()), *options), stdout=log, stderr=log,
            environment={**os.environ, NOTIFY_SOCKET: path},
        )  # fmt: skip
        stack.callback(end, daemon)
        scene = Scene(daemon, log)
        _wait_until_ready(ready, scene)
        scene.feed = spawn(
            [sys.executable, "-m", "engine.lab.demo.traffic", trades.host, str(trades.port), str(quotes.port),
             str(per_s), str(seed)], stderr=log,
        )  # fmt: skip
        stack.callback(end, scene.feed)  # ends before the daemon: callbacks run last in, first out
        yield scene


def _fed_streams(file: Path, network: Network) -> tuple[Address, Address]:
    """Return where to feed trades and quotes."""
    fed = {s.name: s.source.tcp for s in network.streams if s.source is not None and s.source.tcp is not None}
    if lacking := {"trades", "quotes"} - set(fed):
        names = " and ".join(sorted(lacking))
        raise SceneError(
            f"{file} has no stream {names} with a tcp source; the demo feeds the streams trades and quotes", EX_CONFIG
        )
    if network.config.http.listen is None or not all(at.port for _, at in listeners(network.config)):
        raise SceneError(f"{file}: the demo needs http.listen, and a port other than 0 everywhere", EX_CONFIG)
    return reachable(fed["trades"]), reachable(fed["quotes"])


def _check_ports(network: Network) -> None:
    """Raise SceneError when a port of the network is taken, and name each of them with the process that has it."""
    places = listeners(network.config)
    taken = [f"  {'.'.join(map(str, place))} {at}: {why}" for place, at in places if (why := why_taken(at))]
    if taken:
        raise SceneError(
            "\n".join(["the demo cannot start:", *taken, "end that process, or choose other ports: --port-base 19400"]),
            EX_UNAVAILABLE,
        )


def _wait_until_ready(ready: socket.socket, scene: Scene) -> None:
    """Wait until the daemon says that it listens. Raise SceneError if it ends first or takes too long."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            if ready.recv(4096).decode() == READY:
                return
        except TimeoutError:
            scene.check()
        if time.monotonic() > deadline:
            raise SceneError(f"the daemon was not ready within {START_SECONDS:g} s{scene.tail()}")


def reachable(address: Address) -> Address:
    """Return the address to connect to for a listener that may listen on all interfaces."""
    return Address("127.0.0.1", address.port) if address.host in ("0.0.0.0", "::") else address  # noqa: S104
