"""Strangers at the ports of a real daemon: hostile requests, silent crowds, probes that connect and go.

Each of them may lose its own connection. None may end the daemon, leave a traceback, or keep others out.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from router.spark.daemon.port import SparkPort
from router.spark.daemon.request import PortRequest
from router.spark.wire.peer import Peer
from tests.e2e.daemon import RunningDaemon, connect, free_ports, lines, running, wait_for

NETWORK = """
engine: {{data_dir: {data}}}
spark: {{listen: 127.0.0.1:0}}
limits: {{connections: {connections}}}
streams: {{s: {{schema: {{n: bigint}}, overload: block, source: {{tcp: 127.0.0.1:{source}}}}}}}
outputs: {{o: {{from: s, sink: {{tcp: 127.0.0.1:{sink}}}}}}}
"""


class Guarded:
    """A daemon with a data_dir, and its ports."""

    def __init__(self, daemon: RunningDaemon, source: int, sink: int) -> None:
        self.daemon = daemon
        self.source = source
        self.sink = sink
        host, port = daemon.stats()["spark"]["port"].rsplit(":", 1)
        self.spark = (host, int(port))

    def ask(self, request: bytes) -> bytes:
        """Send bytes to the Spark port and return everything that it answers."""
        with socket.create_connection(self.spark, timeout=30) as sock:
            sock.sendall(request)
            sock.shutdown(socket.SHUT_WR)
            answer = b""
            while more := sock.recv(65_536):
                answer += more
            return answer

    def is_whole(self) -> bool:
        """Tell whether a tuple still goes through, and a reader's name onto the disk."""
        with connect(self.sink) as reader, connect(self.source) as sender:
            reader.sendall(b'{"_hello": {"name": "whole", "after": 0}}\n')
            welcome = lines(reader, 1)[0]
            sender.sendall(b'{"n": 7}\n')
            found = reader.recv(4_096)
            return "_welcome" in welcome and b"_batch" in found and self.daemon.process.poll() is None

    def tracebacks(self) -> list[Any]:
        return [entry for entry in self.daemon.log if "exception" in entry]


@pytest.fixture
def guarded(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Guarded]:
    http, source, sink = free_ports(3)
    connections = getattr(request, "param", 1_000)
    network = NETWORK.format(data=tmp_path / "data", source=source, sink=sink, connections=connections)
    with running(tmp_path, network, http) as daemon:
        yield Guarded(daemon, source, sink)


HOSTILE = [
    b'{"aurorad":1,"do":"offsets","output":"o","reader":"\\ud800"}',
    b'{"aurorad":1,"do":"offsets","output":"o","reader":{"a":1}}',
    b'{"aurorad":1,"do":"offsets","output":["o"],"reader":"r"}',
    b'{"aurorad":1,"do":"offsets","output":"o","reader":"' + b"r" * 5_000 + b'"}',
    b'{"aurorad":1,"do":"read","output":"o","reader":"r","start":"x","end":1}',
    b'{"aurorad":1,"do":"read","output":"o","reader":"r","start":-5,"end":1e400}',
    b'{"aurorad":1,"do":"read","output":"o","reader":"r"}',
    b'{"aurorad":1,"do":"read","output":"o","reader":"r","start":0,"end":99999999999999999999999}',
    b'{"aurorad":1,"do":"release","output":"o","reader":"r","end":[]}',
    b'{"aurorad":1,"do":"begin","job":"\\udfff","stream":"s"}',
    b'{"aurorad":1,"do":"begin","stream":"s"}',
    b'{"aurorad":1,"do":"begin","job":"j","stream":"s","rows":99999999999999999999999999}',
    b'{"aurorad":1,"do":"expect","job":"j","rows":{}}',
    b'{"aurorad":1,"do":"progress","job":7}',
    b'{"aurorad":1,"do":"end","job":null}',
    b'{"aurorad":1,"do":"push","job":"j","partition":"one"}',
    b'{"aurorad":1,"do":"abort","staged":7}',
    b'{"aurorad":1,"do":"abort","staged":["../../lock"]}',
    b'{"aurorad":1,"do":"abort","staged":["' + b"a" * 5_000 + b'"]}',
    b'{"aurorad":1,"do":"commit","stream":"s","query":[],"batch":"x","staged":[[]]}',
    b'{"aurorad":1,"do":{"a":1}}',
    b'{"aurorad":"1","do":"describe","stream":"s","token":{}}',
    b"[" * 100_000,
    b'{"a":' * 3_000,
    b'"\xff\xfe"',
    b"null",
    b"",
    b"GET / HTTP/1.1\r\n\r\n",
]


def test_hostile_requests_to_the_spark_port_are_answered_and_harm_nobody(guarded: Guarded) -> None:
    """One of these once ended the daemon: a name that the thread of the log could not write as UTF-8."""
    for request in HOSTILE:
        answer = guarded.ask(request + b"\n")
        error = json.loads(answer.splitlines()[-1])["error"]
        assert error and "internal error" not in error, (request[:100], answer)
    assert guarded.is_whole()
    assert not guarded.tracebacks()


def test_rows_of_hostile_messages_are_refused_by_the_spark_port(guarded: Guarded) -> None:
    begin = b'{"aurorad":1,"do":"begin","job":"j","stream":"s"}\n'
    assert json.loads(guarded.ask(begin))["ok"]
    for frames in (struct.pack(">I", 2**31), struct.pack(">I", 8) + b"\xff" * 8, struct.pack(">I", 0) + b"[]\n"):
        answer = guarded.ask(b'{"aurorad":1,"do":"push","job":"j","partition":0}\n' + frames)
        assert "error" in json.loads(answer.splitlines()[-1]), (frames, answer)
    assert guarded.is_whole()
    assert not guarded.tracebacks()


@pytest.mark.parametrize("guarded", [20], indirect=True)
def test_readers_that_connect_and_go_leave_their_places(guarded: Guarded) -> None:
    """A load balancer's probe connects to a quiet output and closes. A thousand of these once filled every place."""
    for _ in range(60):
        connect(guarded.sink).close()
    assert guarded.is_whole()


@pytest.mark.parametrize("guarded", [20], indirect=True)
def test_a_reader_that_closes_its_sending_side_reads_on(guarded: Guarded) -> None:
    with connect(guarded.sink) as reader:
        reader.shutdown(socket.SHUT_WR)
        wait_for(lambda: guarded.daemon.output("o")["subscribers"], "the reader is there")
        with connect(guarded.source) as sender:
            sender.sendall(b'{"n": 1}\n')
        assert lines(reader, 1) == [{"n": 1}]


def test_a_silent_crowd_at_the_spark_port_makes_room() -> None:
    """Peers that send a request and nothing after it once held all places for ever."""

    def wait_for_frames(peer: Peer, _: PortRequest) -> None:
        peer.say(ok=True)
        list(peer.frames(100))

    port = SparkPort({"stage": wait_for_frames}, connections=4, silent_s=0.05)
    port.open("127.0.0.1", 0)
    host, number = port.address.rsplit(":", 1)
    with closing(port):
        crowd = [_silent(host, int(number)) for _ in range(4)]
        wait_for(lambda: _is_answered(host, int(number)), "the port answers in the crowd", 60)
        assert port.evicted
        for sock in crowd:
            sock.close()


def _silent(host: str, port: int) -> socket.socket:
    sock = socket.create_connection((host, port), timeout=30)
    sock.sendall(b'{"aurorad":1,"do":"stage"}\n')
    return sock


def _is_answered(host: str, port: int) -> bool:
    with _silent(host, port) as sock:
        try:
            return b"ok" in sock.recv(100)
        except OSError:
            return False
