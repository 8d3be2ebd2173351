"""Clause M: a slow reader, a slow connection, half-open and idle ones by the hundred; the others hardly notice.

Times cannot be compared on a machine that others use as well, unless both are taken at the same moments. So there are
two daemons with the same network and the same load, one with the crowd and one without; a tuple goes through one, then
one through the other, and so on. What slows the machine slows both. A round is some hundreds of each; the best round of
either counts, because noise only ever adds, and more rounds are taken while the promise does not show.
"""

from __future__ import annotations

import json
import resource
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import numpy as np
import pytest

from tests.e2e.daemon import RunningDaemon, connect, free_ports, running, wait_for

HALF_OPEN = 500
IDLE = 1_000
FILES = 4_096  # that a process may have open, for so many connections
PROBES = 300
ROUNDS_AT_MOST = 8
FACTOR = 2.0
FLOOD = b"".join(b'{"n":%d,"pad":"%s"}\n' % (n, b"x" * 100) for n in range(1_000))


def network(source: int, sink: int, dead_sink: int) -> str:
    return f"""
engine: {{workers: 2}}
limits: {{connections: 2000}}
streams:
  t: {{schema: {{n: bigint, pad: string}}, source: {{tcp: 127.0.0.1:{source}}}}}
boxes:
  all: {{filter: t, where: "n >= 0"}}
  echo: {{filter: t, where: "n < 0"}}
outputs:
  o: {{from: echo, sink: {{tcp: 127.0.0.1:{sink}}}}}
  flood: {{from: all, sink: {{tcp: 127.0.0.1:{dead_sink}, buffer: 256KiB}}}}
"""


class Served:
    """A daemon, a client that sends single tuples and reads them back, and another that floods a second output."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        folder.mkdir()
        http, self.source, sink, self.dead_sink = free_ports(4)
        text = network(self.source, sink, self.dead_sink)
        self.daemon: RunningDaemon = stack.enter_context(running(folder, text, http))
        self._reader = stack.enter_context(connect(sink)).makefile("rb")
        self._sender = stack.enter_context(connect(self.source))
        self._flood = stack.enter_context(connect(self.source))
        wait_for(lambda: self.daemon.output("o")["readers"] == 1, "the reader is there")

    def flood(self, trains: int = 1) -> None:
        for _ in range(trains):
            self._flood.sendall(FLOOD)

    def probe_ms(self, number: int) -> float:
        begun = time.perf_counter()
        self._sender.sendall(b'{"n":-%d,"pad":""}\n' % number)
        assert json.loads(self._reader.readline())["n"] == -number
        return (time.perf_counter() - begun) * 1e3


def reads_on(sock: socket.socket) -> None:
    """The flood's reader where there is no crowd: what is looked for is the price of a dead one, not of any."""

    def read() -> None:
        with suppress(OSError):
            while sock.recv(1 << 20):
                pass

    threading.Thread(target=read, name="flood-reader", daemon=True).start()


def crowd(stack: ExitStack, served: Served) -> socket.socket:
    """Everyone who is of no use; the connection that goes on with a byte at a time."""
    dead = stack.enter_context(connect(served.dead_sink))  # reads nothing, ever
    dead.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    for n in range(HALF_OPEN + IDLE):
        s = stack.enter_context(connect(served.source))
        if n < HALF_OPEN:
            s.sendall(b'{"n": 1, "pad": "a line that')  # and never its end
    slow = stack.enter_context(connect(served.source))
    slow.sendall(b'{"n": 7, "pad": "')
    wait_for(lambda: served.daemon.stream("t")["connections"] > HALF_OPEN + IDLE, "everyone is there")

    def is_too_slow() -> bool:  # how much the kernel takes for a reader is its own affair
        served.flood(5)
        return bool(served.daemon.output("flood")["dropped"])

    wait_for(is_too_slow, "the dead reader is too slow")
    return slow


def round_ms(alone: Served, crowded: Served, slow: socket.socket) -> tuple[float, float]:
    """The p99 of either."""
    waits: tuple[list[float], list[float]] = ([], [])
    for n in range(1, PROBES + 1):
        for served, kept in zip((alone, crowded), waits, strict=True):
            if n % 20 == 0:
                served.flood()
            kept.append(served.probe_ms(n))
        slow.sendall(b"y")
        time.sleep(0.001)
    return float(np.quantile(waits[0], 0.99)), float(np.quantile(waits[1], 0.99))


@pytest.fixture
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < FILES:
        pytest.skip(f"a process may have only {hard} files open here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, FILES), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_files")
def test_the_others_p99_at_most_doubles(tmp_path: Path) -> None:
    with ExitStack() as stack:
        alone, crowded = Served(stack, tmp_path / "alone"), Served(stack, tmp_path / "crowded")
        reads_on(stack.enter_context(connect(alone.dead_sink)))
        alone.flood(20)
        slow = crowd(stack, crowded)
        best = (float("inf"), float("inf"))
        rounds = 0
        while rounds < 2 or (best[1] > FACTOR * best[0] and rounds < ROUNDS_AT_MOST):
            best = tuple(map(min, best, round_ms(alone, crowded, slow)))  # type: ignore[assignment]
            rounds += 1
        ratio = best[1] / best[0]
        said = f"p99 {best[1]:.2f} ms among the crowd, {best[0]:.2f} alone: {ratio:.2f}, after {rounds} rounds"
        print(said)
        assert ratio <= FACTOR, said
