"""What TLS and a login cost: rows a second and delays over sockets, with and without, in turns in one run.

``python -m tests.e2e.measure_tls`` prints a table. The clients are two processes of Python; with TLS they pay a part of
it.
"""

from __future__ import annotations

import json
import multiprocessing
import socket
import ssl
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.e2e.certificates import Authority
from tests.e2e.daemon import free_ports, running

TOKEN = "0123456789abcdef0123456789abcdef"
NETWORK = """
streams: {{s: {{schema: {{n: bigint, at: bigint, x: double}}, overload: block, source: {{tcp: 127.0.0.1:{source}}}}}}}
boxes: {{f: {{filter: s, where: "x >= 0"}}}}
outputs: {{o: {{from: f, sink: {{tcp: 127.0.0.1:{sink}, when_slow: block}}}}}}
"""
ACCESS = """
access:
  tls: {{cert_file: {folder}/server.crt, key_file: {folder}/server.key}}
  users: {{a: {{token: {token}, admin: true}}}}
"""
ROWS = 4_000_000  # a million takes a quarter of a second, and says more about the start than about TLS
PROBES = 3_000
TURNS = 3


def connect(port: int, authority: str) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port), timeout=60)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if not authority:
        return sock
    secure = ssl.create_default_context(cafile=authority).wrap_socket(sock, server_hostname="localhost")
    secure.sendall(f"AUTH Bearer {TOKEN}\n".encode())
    return secure


def send(port: int, authority: str, begin: Any) -> None:
    block = b"".join(b'{"n":%d,"at":0,"x":0.5}\n' % n for n in range(10_000))
    with connect(port, authority) as sock:
        begin.wait()
        for _ in range(ROWS // 10_000):
            sock.sendall(block)


def throughput(ports: dict[str, int], authority: str) -> float:
    """Return rows a second from a sender to a reader."""
    begin = multiprocessing.Event()
    sender = multiprocessing.Process(target=send, args=(ports["source"], authority, begin))
    with connect(ports["sink"], authority) as reader:
        sender.start()
        time.sleep(1.0)
        begun = time.monotonic()
        begin.set()
        rows = 0
        while rows < ROWS:
            rows += reader.recv(1 << 20).count(b"\n")
        seconds = time.monotonic() - begun
    sender.join()
    return ROWS / seconds


def delays(ports: dict[str, int], authority: str) -> tuple[float, float]:
    """Return p50 and p99 in ms of rows that are sent one at a time, a thousand a second."""
    found = []
    with connect(ports["sink"], authority) as reader, connect(ports["source"], authority) as sender:
        time.sleep(0.5)
        pending = b""
        for n in range(PROBES):
            begun = time.perf_counter_ns()
            sender.sendall(b'{"n":%d,"at":%d,"x":0.5}\n' % (n, begun))
            while not pending.endswith(b"\n"):
                pending += reader.recv(65_536)
            if n >= 200:
                found.append((time.perf_counter_ns() - begun) / 1e6)
            pending = b""
            time.sleep(0.001)
    cuts = statistics.quantiles(found, n=100)
    return cuts[49], cuts[98]


def main() -> int:
    with tempfile.TemporaryDirectory() as place, ExitStack() as daemons:
        folder = Path(place)
        authority = Authority(folder)
        authority.issue("server")
        sides: list[tuple[str, dict[str, int], str]] = []
        for name, access, trust in (("plain", "", ""), ("TLS, token", ACCESS, authority.crt("ca"))):
            ports = dict(zip(("http", "source", "sink"), free_ports(3), strict=True))
            text = NETWORK.format(**ports) + access.format(folder=folder, token=TOKEN)
            (folder / name).mkdir()
            tls = authority.client() if trust else None
            daemons.enter_context(running(folder / name, text, ports["http"], tls=tls))
            sides.append((name, ports, trust))
        found: dict[str, list[tuple[float, float, float]]] = {name: [] for name, _, _ in sides}
        for _ in range(TURNS):
            for name, ports, trust in sides:
                found[name].append((throughput(ports, trust), *delays(ports, trust)))
        medians = {name: [statistics.median(column) for column in zip(*turns)] for name, turns in found.items()}
        print(f"{'':12}{'rows a second':>16}{'p50 ms':>10}{'p99 ms':>10}")
        for name, (rate, p50, p99) in medians.items():
            print(f"{name:12}{rate:16,.0f}{p50:10.3f}{p99:10.3f}")
        plain, secure = medians["plain"], medians["TLS, token"]
        print(f"{'ratio':12}{secure[0] / plain[0]:16.2f}{secure[1] / plain[1]:10.2f}{secure[2] / plain[2]:10.2f}")
        print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
