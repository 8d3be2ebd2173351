"""Readers that do not read: memory stays in its budget, others are not held up, every tuple is accounted for."""

from __future__ import annotations

import json
import socket
import threading
import time
from pathlib import Path

from tests.e2e.daemon import TRADES, RunningDaemon, connect, free_ports, lines, ndjson, running, send, trade, wait_for

MIB = 2**20
BUDGET = 32 * MIB


def deaf_reader(port: int) -> socket.socket:
    """Connects, and never reads."""
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.connect(("127.0.0.1", port))
    return s


class Flood(threading.Thread):
    """Sends until it is told to stop, or as long as the daemon takes it."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self._port = port
        self._ended = threading.Event()
        self._rows = ndjson([trade(i) for i in range(5_000)])

    def run(self) -> None:
        with connect(self._port) as s:
            s.settimeout(0.2)
            view = memoryview(self._rows)
            while not self._ended.is_set():
                try:
                    view = view[s.send(view) :] or memoryview(self._rows)
                except TimeoutError:
                    continue

    def stop(self) -> None:
        self._ended.set()
        self.join()


class CountLines(threading.Thread):
    """Reads on, and counts."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(daemon=True)
        self._sock = sock
        self.lines = 0

    def run(self) -> None:
        while data := self._sock.recv(MIB):
            self.lines += data.count(b"\n")


def held(daemon: RunningDaemon) -> bool:
    return bool(daemon.stream("trades")["paused"])


def test_a_blocking_output_holds_its_stream_at_the_budget(tmp_path: Path) -> None:
    http, source, sink = free_ports(3)
    network = f"""
engine: {{memory: {BUDGET // MIB}MiB}}
streams:
  trades: {{schema: {TRADES}, source: {{tcp: 127.0.0.1:{source}}}}}
boxes:
  all: {{filter: trades, where: "size > 0"}}
outputs:
  out: {{from: all, sink: {{tcp: 127.0.0.1:{sink}, when_slow: block, buffer: 1MiB}}}}
"""
    with running(tmp_path, network, http) as daemon, deaf_reader(sink) as reader:
        flood = Flood(source)
        flood.start()
        wait_for(lambda: held(daemon), "reading has stopped")
        flood.stop()
        engine = daemon.stats()["engine"]
        assert engine["memory_used"] <= 1.1 * BUDGET  # one read beyond it at the most
        assert daemon.rss_bytes() <= 1.25 * BUDGET + 250 * MIB
        # The reader wakes up: everything that was admitted comes out, and nothing was dropped.
        counted = CountLines(reader)
        counted.start()
        wait_for(lambda: not held(daemon) and counted.lines == daemon.stream("trades")["admitted"], "all is out")
        assert daemon.output("out")["subscribers"][0]["dropped"] == 0
        assert daemon.stats()["conservation_residual"] == {"stream": 0, "arc": 0, "box": 0, "output": 0}


def test_a_slow_reader_loses_tuples_and_nobody_else_does(tmp_path: Path) -> None:
    http, source, sink, other = free_ports(4)
    network = f"""
streams:
  trades: {{schema: {TRADES}, source: {{tcp: 127.0.0.1:{source}}}}}
outputs:
  slow: {{from: trades, sink: {{tcp: 127.0.0.1:{sink}, buffer: 64KiB}}}}
  fast: {{from: trades, sink: {{tcp: 127.0.0.1:{other}}}}}
"""
    count = 30_000
    with running(tmp_path, network, http) as daemon, deaf_reader(sink) as deaf, connect(other) as good:
        send(source, ndjson([trade(i, symbol="long" * 60) for i in range(count)]))
        assert len(lines(good, count)) == count
        wait_for(lambda: daemon.output("slow")["emitted"] == count, "all is emitted")
        wait_for(lambda: daemon.output("slow")["subscribers"][0]["dropped"] > 0, "the slow one lost some")
        assert daemon.output("fast")["subscribers"][0]["dropped"] == 0
        send(source, ndjson([trade(-1)]))
        # It reads again: what it gets and what the gap markers say is missing is everything, in order.
        got = gaps = 0
        newest = -1.0
        with deaf.makefile("rb") as stream:
            while got + gaps < count:
                row = json.loads(stream.readline())
                if "_gap" in row:
                    gaps += row["_gap"]
                else:
                    assert row["price"] > newest
                    newest = row["price"]
                    got += 1
        assert gaps > 0 and got + gaps in (count, count + 1)


def test_a_stop_does_not_wait_for_readers_that_take_nothing(tmp_path: Path) -> None:
    """One dead reader once made every SIGTERM take the whole time for draining."""
    http, source, dropping, blocking = free_ports(4)
    network = f"""
engine: {{memory: {BUDGET // MIB}MiB, drain: 10m}}
streams:
  trades: {{schema: {TRADES}, source: {{tcp: 127.0.0.1:{source}}}}}
boxes: {{all: {{filter: trades, where: "size > 0"}}}}
outputs:
  d: {{from: all, sink: {{tcp: 127.0.0.1:{dropping}, when_slow: drop, buffer: 64KiB}}}}
  b: {{from: all, sink: {{tcp: 127.0.0.1:{blocking}, when_slow: block, buffer: 64KiB}}}}
"""
    with running(tmp_path, network, http) as daemon, deaf_reader(dropping), deaf_reader(blocking):
        flood = Flood(source)
        flood.start()
        for output in ("d", "b"):
            wait_for(lambda o=output: has_pending(daemon, o), "tuples wait for the reader", 60)
        flood.stop()
        assert daemon.end() == 0
        stopped = daemon.log[-1]["message"]
    assert "with tuples left" in stopped and stopped.endswith(" 0 unaccounted for")


def has_pending(daemon: RunningDaemon, output: str) -> bool:
    return any(s["pending"] for s in daemon.output(output)["subscribers"])


def test_an_output_right_behind_a_stream_holds_it_at_the_budget(tmp_path: Path) -> None:
    """Trains once went past the budget where no queue lies between a stream and a blocked output."""
    http, source, sink = free_ports(3)
    network = f"""
engine: {{memory: 16MiB}}
streams:
  trades: {{schema: {TRADES}, source: {{tcp: 127.0.0.1:{source}}}}}
outputs:
  o: {{from: trades, sink: {{tcp: 127.0.0.1:{sink}, when_slow: block, buffer: 1MiB}}}}
"""
    with running(tmp_path, network, http) as daemon, deaf_reader(sink):
        idle_bytes = daemon.rss_bytes()
        flood = Flood(source)
        flood.start()
        try:
            wait_for(lambda: held(daemon), "the stream is held", 60)
            received = daemon.stream("trades")["received_bytes"]
            wait_for(lambda: not _grows(daemon), "the senders wait", 60)
        finally:
            flood.stop()
        assert received > 0
        assert daemon.rss_bytes() - idle_bytes < 1.25 * 16 * MIB + 100 * MIB


def _grows(daemon: RunningDaemon) -> bool:
    before = daemon.stream("trades")["received_bytes"]
    time.sleep(0.3)
    return bool(daemon.stream("trades")["received_bytes"] != before)
