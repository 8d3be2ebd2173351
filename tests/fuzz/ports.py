"""The ports of a real daemon: every message on a connection of its own, whatever comes back is read.

None may end the daemon, leave a traceback, break a conservation law, or keep a good tuple out afterwards.
"""

from __future__ import annotations

import json
import random
import secrets
import socket
import urllib.request
from collections.abc import Callable
from contextlib import suppress

from tests.e2e.daemon import RunningDaemon, connect
from tests.fuzz import grammar, parsers

NETWORK = """
engine: {{data_dir: {data}}}
spark: {{listen: 127.0.0.1:{spark}}}
streams:
  s: {{schema: {schema}, overload: block, source: {{tcp: 127.0.0.1:{ndjson}}}}}
  c: {{schema: {schema}, overload: block, source: {{tcp: 127.0.0.1:{csv}, format: csv}}}}
  a: {{schema: {schema}, overload: block, source: {{tcp: 127.0.0.1:{arrow}, format: arrow}}}}
boxes:
  f: {{filter: s, where: "n >= 0"}}
outputs:
  o: {{from: f, sink: {{tcp: 127.0.0.1:{sink}}}}}
  p: {{from: c}}
  q: {{from: a}}
"""
SCHEMA = "{n: bigint, x: double?, t: timestamp?, s: string?, b: boolean?}"
PORTS = ("http", "ndjson", "csv", "arrow", "sink", "spark")
Message = Callable[[random.Random], bytes]

TARGETS: dict[str, tuple[str, Message]] = {
    "ndjson port": ("ndjson", grammar.rows),
    "csv port": ("csv", grammar.csv),
    "arrow port": ("arrow", parsers.arrow_message),
    "sender at its port": ("ndjson", grammar.session),
    "reader at its port": ("sink", grammar.reader),
    "spark port": ("spark", grammar.spark),
    "http port": ("http", grammar.http),
}


def throw(random_: random.Random, port: int, make: Message) -> None:
    """Send one message, in pieces, and read for a moment."""
    data = make(random_)
    if random_.random() < 0.3:
        data = grammar.damaged(random_, data)
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=10) as sock:
        for piece in grammar.chunks(random_, data):
            sock.sendall(piece)
        if random_.random() < 0.8:
            sock.shutdown(socket.SHUT_WR)
        sock.settimeout(0.02)
        while sock.recv(65_536):
            pass


def findings(daemon: RunningDaemon, ports: dict[str, int]) -> list[str]:
    """Return what is wrong with the daemon now."""
    if daemon.process.poll() is not None:
        return [f"the daemon has ended with code {daemon.process.returncode}"]
    found = [
        f"traceback: {entry['message'].strip()}\n{entry['exception'][-1_500:]}"
        for entry in daemon.log
        if "exception" in entry
    ]
    with urllib.request.urlopen(f"http://127.0.0.1:{ports['http']}/metrics", timeout=30) as response:
        text = response.read().decode()
    broken = [
        line
        for line in text.splitlines()
        if line.startswith("aurorad_conservation_residual") and not line.endswith(" 0.0")
    ]
    return [*found, *broken, *_good_tuple(daemon, ports)]


def _good_tuple(daemon: RunningDaemon, ports: dict[str, int]) -> list[str]:
    """Send a good tuple, and read it under a name that is used for the first time, so that it has no history."""
    name = f"good-{secrets.token_hex(4)}"
    seen = b""
    try:
        with connect(ports["sink"]) as reader, connect(ports["ndjson"]) as sender:
            reader.sendall(b'{"_hello": {"name": "%s", "nonce": "good"}}\n' % name.encode())
            while b'"nonce":"good"' not in seen:
                seen = seen[-100:] + _more(reader)
            sender.sendall(b'{"n": 424242}\n')
            while b"424242" not in seen:
                seen = seen[-100:] + _more(reader)
            reader.sendall(b'{"_forget": true}\n')
    except OSError as error:
        stats = daemon.stats()
        told = {key: stats[key] for key in ("engine", "streams", "arcs", "outputs", "readiness")}
        return [f"a good tuple does not come through: {error!r}, last {seen[-200:]!r}, {json.dumps(told)}"]
    return []


def _more(sock: socket.socket) -> bytes:
    data = sock.recv(65_536)
    if not data:
        raise ConnectionError("the daemon closed the connection")
    return data


__all__ = ["NETWORK", "PORTS", "SCHEMA", "TARGETS", "findings", "throw"]
