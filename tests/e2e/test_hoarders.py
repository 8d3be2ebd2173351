"""Peers that make the daemon hold bytes: unfinished messages, unread answers, large bodies, readers that stop.

Each of them took gigabytes at ``memory: 32MiB``. None of them is a tuple, so no queue counts them; every kind has a
common limit of its own. The resident size stays below the line of clause G, and good peers are served meanwhile.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from aurorad_client import Sender

from tests.e2e.daemon import RunningDaemon, connect, free_ports, running, wait_for

MIB = 2**20
BUDGET = 32 * MIB
LINE = int(1.25 * BUDGET + 250e6)
NETWORK = """
engine: {{memory: 32MiB, data_dir: {data}}}
spark: {{listen: 127.0.0.1:0}}
streams:
  columns: {{schema: {{n: bigint}}, overload: block, source: {{tcp: 127.0.0.1:{columns}, format: arrow}}}}
  rows: {{schema: {{n: bigint, s: string?}}, overload: {overload}, source: {{tcp: 127.0.0.1:{rows}}}}}
boxes: {{f: {{filter: rows, where: "n >= 0"}}}}
outputs:
  all: {{from: columns, sink: {{tcp: 127.0.0.1:{all}}}}}
  out: {{from: f, sink: {{tcp: 127.0.0.1:{out}}}}}
"""


class Hoard:
    """A daemon, its ports, and sockets that stay open."""

    def __init__(self, daemon: RunningDaemon, ports: dict[str, int], stack: ExitStack) -> None:
        self.daemon = daemon
        self.ports = ports
        self._stack = stack

    def begin(self, port: int, data: bytes) -> None:
        """Send as much of this as the daemon takes within some seconds, and keep the connection."""
        sock = self._stack.enter_context(connect(port))
        sock.settimeout(0.3)
        with contextlib.suppress(OSError):  # the daemon does not read on, or has closed
            sock.sendall(data)

    def is_within(self) -> bool:
        return self.daemon.rss_bytes() <= LINE

    def serves(self, number: int) -> None:
        """A good sender and a good reader get a tuple through, and so does a whole batch."""
        with connect(self.ports["out"]) as reader, connect(self.ports["rows"]) as sender:
            wait_for(lambda: self.daemon.output("out")["readers"], "the reader is there")
            sender.sendall(b'{"n": %d, "s": "good"}\n' % number)
            data = b""
            while b'{"n":%d,"s":"good"}\n' % number not in data:  # tuples of others may come before it
                data = data[-100:] + reader.recv(65_536)
        with Sender("127.0.0.1", self.ports["rows"], f"good-{number}", epoch=1, timeout_s=60) as numbered:
            numbered.send([{"n": n, "s": "good"} for n in range(1_000)])
            numbered.flush()
            assert numbered.acknowledged == 1


@pytest.fixture
def hoard(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Hoard]:
    ports = dict(zip(("http", "columns", "rows", "all", "out"), free_ports(5), strict=True))
    text = NETWORK.format(data=tmp_path / "data", overload=getattr(request, "param", "block"), **ports)
    with running(tmp_path, text, ports["http"]) as daemon, ExitStack() as stack:
        yield Hoard(daemon, ports, stack)
        assert not [entry for entry in daemon.log if "exception" in entry]


def unfinished_columns(number: int) -> bytes:
    batch = pa.record_batch([pa.array(np.arange(1_900_000) + number)], names=["n"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes()[:-300])


def unfinished_batch(number: int) -> bytes:
    hello = b'{"_hello":{"source":"x%d","epoch":1,"ack":"disk"}}\n' % number
    return hello + b'{"_batch":1,"tuples":1,"bytes":16777216}\n' + b" " * (15 * MIB)


@pytest.mark.parametrize(
    ("port", "peers", "make"), [("columns", 30, unfinished_columns), ("rows", 30, unfinished_batch)]
)
def test_unfinished_messages_have_one_limit(hoard: Hoard, port: str, peers: int, make: Callable[[int], bytes]) -> None:
    for number in range(peers):
        hoard.begin(hoard.ports[port], make(number))
    assert hoard.is_within(), hoard.daemon.rss_bytes() / MIB
    hoard.serves(1)
    wait_for(lambda: hoard.daemon.stats()["engine"]["evicted_connections"], "those that stay silent make room", 60)


@pytest.mark.parametrize("hoard", ["block", "shed"], indirect=True)
def test_unfinished_lines_have_one_limit(hoard: Hoard) -> None:
    for _ in range(300):
        hoard.begin(hoard.ports["rows"], b'{"n": 1, "s": "' + b"x" * (MIB - 100))
    assert hoard.is_within(), hoard.daemon.rss_bytes() / MIB
    hoard.serves(2)


def test_whole_batches_that_wait_for_the_decoder_have_a_limit(hoard: Hoard) -> None:
    """One client, whose batches come faster than they are decoded: 64 of them waited, a gigabyte."""
    rows = b'{"n":1,"s":"abcdefghijklm"}\n' * 560_000
    resident = [0]
    with connect(hoard.ports["rows"]) as sock:
        sock.sendall(b'{"_hello":{"source":"x","epoch":1,"ack":"disk"}}\n')
        sock.settimeout(0.5)
        end = time.monotonic() + 5
        data, number = b"", 0
        while time.monotonic() < end:
            if not data:
                number += 1
                data = b'{"_batch":%d,"tuples":560000,"bytes":%d}\n' % (number, len(rows)) + rows
            with contextlib.suppress(TimeoutError):
                data = data[sock.send(data[:MIB]) :]
            resident.append(hoard.daemon.rss_bytes())
    assert max(resident) <= LINE, max(resident) / MIB


def test_a_peer_that_does_not_read_its_answers_is_not_read(hoard: Hoard) -> None:
    """Every batch behind a gap is answered. A flood of empty ones took the I/O thread for seconds at a time."""
    flood = b'{"_batch":5,"tuples":0,"bytes":0}\n' * 300_000
    with connect(hoard.ports["rows"]) as sock:
        sock.sendall(b'{"_hello":{"source":"x","epoch":1,"ack":"disk"}}\n')
        sock.settimeout(2)
        with pytest.raises(TimeoutError):
            sock.sendall(flood)
        assert json.loads(hoard.daemon.get("/ready"))["status"] == "ready"
        hoard.serves(3)


def test_bodies_of_requests_have_one_limit(hoard: Hoard) -> None:
    head = b"PUT /api/v1/network HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4000000\r\n\r\n"
    for _ in range(100):
        hoard.begin(hoard.ports["http"], head + b"#" * 3_900_000)
    assert hoard.is_within(), hoard.daemon.rss_bytes() / MIB
    hoard.serves(4)


def test_frames_of_the_spark_port_have_one_limit(hoard: Hoard) -> None:
    port = hoard.daemon.stats()["spark"]["port"].rpartition(":")[2]
    request = json.dumps({"aurorad": 1, "do": "stage", "stream": "rows"}).encode() + b"\n"
    for _ in range(8):
        hoard.begin(int(port), request + struct.pack(">I", 60 * MIB) + bytes(59 * MIB))
    assert hoard.is_within(), hoard.daemon.rss_bytes() / MIB
    hoard.serves(5)


def test_readers_that_stop_at_different_places_have_one_limit(hoard: Hoard) -> None:
    with ExitStack() as stack:
        for _ in range(60):
            sock = stack.enter_context(socket.socket())
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            sock.connect(("127.0.0.1", hoard.ports["out"]))
            with connect(hoard.ports["rows"]) as sender:
                sender.sendall(b'{"n": 1, "s": "%s"}\n' % (b"y" * 900) * 9_000)
        wait_for(lambda: hoard.daemon.output("out")["emitted"] == 60 * 9_000, "all of it is through", 90)
        assert hoard.is_within(), hoard.daemon.rss_bytes() / MIB
        hoard.serves(6)
