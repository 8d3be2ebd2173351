"""Clause M: a slow reader, a slow connection, half-open and idle ones by the hundred; the others hardly notice."""

from __future__ import annotations

import json
import socket
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from tests.e2e.daemon import RunningDaemon, connect, free_ports, running, wait_for

HALF_OPEN = 500
IDLE = 450
PROBES = 300
ROUNDS = 3
FACTOR = 2.0
NOISE_MS = 2.0
"""What a busy machine adds to the best of three rounds by itself."""


def network(source: int, sink: int, dead_sink: int) -> str:
    return f"""
engine: {{workers: 2}}
streams:
  t: {{schema: {{n: bigint, pad: string}}, source: {{tcp: 127.0.0.1:{source}}}}}
boxes:
  all: {{filter: t, where: "n >= 0"}}
  echo: {{filter: t, where: "n < 0"}}
outputs:
  o: {{from: echo, sink: {{tcp: 127.0.0.1:{sink}}}}}
  flood: {{from: all, sink: {{tcp: 127.0.0.1:{dead_sink}, buffer: 256KiB}}}}
"""


def p99_ms(sender: socket.socket, reader: socket.socket) -> float:
    """Round trips of single tuples, one a few milliseconds; the best of some rounds."""
    file = reader.makefile("rb")
    best = float("inf")
    for _ in range(ROUNDS):
        waits = []
        for n in range(1, PROBES + 1):
            begun = time.perf_counter()
            sender.sendall(b'{"n":-%d,"pad":""}\n' % n)
            assert json.loads(file.readline())["n"] == -n
            waits.append((time.perf_counter() - begun) * 1e3)
            time.sleep(0.001)
        best = min(best, float(np.quantile(waits, 0.99)))
    return best


def crowd(stack: ExitStack, daemon: RunningDaemon, source: int, dead_sink: int) -> None:
    dead = stack.enter_context(connect(dead_sink))  # reads nothing, ever
    dead.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    for n in range(HALF_OPEN + IDLE):
        s = stack.enter_context(connect(source))
        if n < HALF_OPEN:
            s.sendall(b'{"n": 1, "pad": "a line that')  # and never its end
    flood = stack.enter_context(connect(source))
    for start in range(0, 20_000, 1_000):
        flood.sendall(b"".join(b'{"n":%d,"pad":"%s"}\n' % (n, b"x" * 100) for n in range(start, start + 1_000)))
    wait_for(lambda: daemon.stream("t")["connections"] > HALF_OPEN + IDLE, "everyone is there")
    wait_for(lambda: daemon.output("flood")["dropped"] > 0, "the dead reader is too slow")


@pytest.mark.quiet
def test_the_others_p99_at_most_doubles(tmp_path: Path) -> None:
    http, source, sink, dead_sink = free_ports(4)
    with running(tmp_path, network(source, sink, dead_sink), http) as daemon, ExitStack() as stack:
        reader = stack.enter_context(connect(sink))
        sender = stack.enter_context(connect(source))
        wait_for(lambda: daemon.output("o")["readers"] == 1, "the reader is there")
        alone = p99_ms(sender, reader)
        crowd(stack, daemon, source, dead_sink)
        slow = stack.enter_context(connect(source))
        slow.sendall(b'{"n": 7')  # one byte at a time from here on
        crowded = p99_ms(sender, reader)
        assert crowded <= FACTOR * alone + NOISE_MS, f"{crowded:.2f} ms among the crowd, {alone:.2f} alone"
        print(f"p99 {alone:.2f} ms alone, {crowded:.2f} ms among {HALF_OPEN} half-open and {IDLE} idle connections")
