"""Starts the real daemon as a process and talks to it over real sockets, for the end-to-end tests."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import socket
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from engine.lab.processes import command

WAIT_SECONDS = 30.0

TRADES = "{ts: timestamp, symbol: string, price: double, size: int, venue: string?}"


PORTS_A_WORKER = 1_000  # each of up to 22 workers of xdist has its own range
_next_port = itertools.count(random.SystemRandom().randrange(PORTS_A_WORKER))


def free_ports(count: int) -> list[int]:
    """Return ports that are free now and that no other test gets before this test's daemon is up.

    The ports lie below the range for outgoing connections. A restarted daemon must find its port free, and a client
    that tries to reconnect in the meantime could get that very port from the kernel, and connect to itself.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 22
    ports: list[int] = []
    while len(ports) < count:
        port = 10_000 + worker * PORTS_A_WORKER + next(_next_port) % PORTS_A_WORKER
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
            except OSError:
                continue
        ports.append(port)
    return ports


class RunningDaemon:
    def __init__(
        self, process: subprocess.Popen[bytes], log: Path, http_port: int, tls: ssl.SSLContext | None = None
    ) -> None:
        self.tls = tls
        self.process = process
        self.log_path = log
        self.http_port = http_port

    def get(self, path: str) -> bytes:
        scheme = "http" if self.tls is None else "https"
        url = f"{scheme}://127.0.0.1:{self.http_port}{path}"
        with urllib.request.urlopen(url, timeout=10, context=self.tls) as response:
            body: bytes = response.read()
            return body

    def stats(self) -> dict[str, Any]:
        stats: dict[str, Any] = json.loads(self.get("/api/v1/stats"))
        return stats

    def stream(self, name: str) -> dict[str, Any]:
        return next(s for s in self.stats()["streams"] if s["name"] == name)

    def output(self, name: str) -> dict[str, Any]:
        return next(o for o in self.stats()["outputs"] if o["name"] == name)

    @property
    def log(self) -> list[dict[str, Any]]:
        lines = self.log_path.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("\n")]  # whole ones

    def rss_bytes(self) -> int:
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def end(self, number: int = signal.SIGTERM, seconds: float = WAIT_SECONDS) -> int:
        self.process.send_signal(number)
        return self.process.wait(seconds)


@contextmanager
def running(
    tmp_path: Path, network: str, http_port: int, *arguments: str, tls: ssl.SSLContext | None = None
) -> Iterator[RunningDaemon]:
    """Run a daemon and wait until it is ready. ``network`` is the file's text without its http section."""
    file = tmp_path / "network.yaml"
    file.write_text(f"http: {{listen: 127.0.0.1:{http_port}}}\nlog: {{format: json}}\n{network}")
    log = tmp_path / "log.json"
    with log.open("wb") as sink:
        process = subprocess.Popen(command("run", str(file), *arguments), stderr=sink, stdout=sink)
    daemon = RunningDaemon(process, log, http_port, tls)
    try:
        wait_for(lambda: process.poll() is not None or is_ready(daemon), "the daemon is ready", 3 * WAIT_SECONDS)
        assert process.poll() is None, log.read_text()
        yield daemon
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def is_ready(daemon: RunningDaemon) -> bool:
    try:
        daemon.get("/ready")
    except OSError:
        return False
    return True


def wait_for(condition: Any, what: str, seconds: float = WAIT_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s until {what}"
        time.sleep(0.02)


def connect(port: int) -> socket.socket:
    s = socket.create_connection(("127.0.0.1", port), timeout=WAIT_SECONDS)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return s


def send(port: int, data: bytes) -> None:
    with connect(port) as s:
        s.sendall(data)


def lines(sock: socket.socket, count: int) -> list[Any]:
    """Read this many ndjson lines."""
    data = b""
    while data.count(b"\n") < count:
        more = sock.recv(1 << 20)
        assert more, f"the connection ended before {count} lines: {data[-200:]!r}"
        data += more
    return [json.loads(line) for line in data.splitlines()]


def trade(number: int, **fields: Any) -> dict[str, Any]:
    return {"ts": number, "symbol": "ABC", "price": float(number), "size": 1, "venue": "N", **fields}


def ndjson(rows: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)
