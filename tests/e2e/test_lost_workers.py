"""Code of users that ends, loops or hangs inside a real daemon: its tuples are dead and counted, the daemon goes on."""

from __future__ import annotations

import json
import signal
import time
import urllib.error
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.daemon import RunningDaemon, connect, free_ports, lines, running, send, wait_for

FUNCTIONS = """
import sys, time

def ends(columns):
    if (columns["n"] == 13).any():
        sys.exit(3)
    return columns

def loops(columns):
    while (columns["n"] == 13).any():
        pass
    return columns

def loops_and_swallows(columns):
    swallowed = 0
    while (columns["n"] == 13).any() and swallowed < 3:
        try:
            while True:
                pass
        except:
            swallowed += 1
    return columns if swallowed == 0 else {}

def hangs(columns):
    if (columns["n"] == 13).any():
        time.sleep(3600)
    return columns
"""

NETWORK = """
engine: {{workers: 1, drain: 3s{data}}}
streams: {{s: {{schema: {{n: bigint}}, overload: block, source: {{tcp: 127.0.0.1:{source}}}}}}}
boxes:
  called: {{python: s, call: "users_functions:{function}", schema: {{n: bigint}}, timeout: {timeout}}}
outputs:
  o: {{from: called, sink: {{tcp: 127.0.0.1:{sink}}}}}
  plain: {{from: s}}
"""


@contextmanager
def daemon_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, timeout: str = "200ms", data: str = ""
) -> Iterator[tuple[RunningDaemon, int, int]]:
    (tmp_path / "users_functions.py").write_text(FUNCTIONS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    http, source, sink = free_ports(3)
    network = NETWORK.format(data=data, source=source, sink=sink, function=function, timeout=timeout)
    with running(tmp_path, network, http) as daemon:
        yield daemon, source, sink


def dead(daemon: RunningDaemon) -> int:
    return int(daemon.stats()["boxes"][0]["dead"])


def missing(daemon: RunningDaemon) -> str:
    """The last line of the log says how many tuples are unaccounted for."""
    return str(daemon.log[-1]["message"]).rpartition(", ")[2]


@pytest.mark.parametrize("function", ["ends", "loops", "loops_and_swallows"])
def test_a_function_that_ends_or_loops_costs_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    with daemon_with(tmp_path, monkeypatch, function) as (daemon, source, sink), connect(sink) as reader:
        send(source, b'{"n": 13}\n')
        wait_for(lambda: dead(daemon) == 1, "the tuple is dead", 60)
        send(source, b'{"n": 1}\n')
        assert lines(reader, 1) == [{"n": 1}]
        assert b"ready" in daemon.get("/ready")
        assert daemon.end() == 0
        assert missing(daemon) == "0 unaccounted for"


def test_a_function_that_hangs_loses_its_box_and_no_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The only worker is lost inside the call: another thread takes its place, and SIGTERM ends the process in time."""
    with daemon_with(tmp_path, monkeypatch, "hangs") as (daemon, source, _):
        send(source, b'{"n": 13}\n')
        wait_for(lambda: dead(daemon) == 1, "the call is given up", 60)
        send(source, b'{"n": 1}\n')
        wait_for(lambda: daemon.output("plain")["emitted"] == 2, "the other output goes on", 60)
        wait_for(lambda: dead(daemon) == 2, "the box takes nothing any more", 60)
        stats = daemon.stats()
        assert stats["workers"][0]["replaced"] == 1
        assert "does not return" in stats["boxes"][0]["failure"]
        with pytest.raises(urllib.error.HTTPError) as refused:
            daemon.get("/ready")
        answer = json.loads(refused.value.read())
        assert "box called" in answer["checks"]["workers"] and answer["checks"]["disk"] == "ok"
        assert b'aurorad_ready{check="workers"} 0.0' in daemon.get("/metrics")
        assert daemon.end() == 0
        assert missing(daemon) == "0 unaccounted for"


def test_sigterm_ends_a_daemon_whose_function_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit of the call is longer than that of a stop: the stop does not wait for it."""
    with daemon_with(tmp_path, monkeypatch, "hangs", "1h") as (daemon, source, _):
        send(source, b'{"n": 13}\n')
        wait_for(lambda: daemon.stream("s")["admitted"] == 1, "the tuple is in", 60)
        begun = time.monotonic()
        assert daemon.end(signal.SIGTERM) == 0
        assert time.monotonic() - begun < 25


def test_a_restart_goes_through_a_function_that_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The replay meets the same tuple again. It once hung there: the worker was gone."""
    data = f", data_dir: {tmp_path / 'data'}"
    with daemon_with(tmp_path, monkeypatch, "ends", data=data) as (daemon, source, _):
        with connect(source) as sender:
            sender.sendall(
                b'{"_hello": {"source": "a", "epoch": 1}}\n{"_batch": 1, "tuples": 1, "bytes": 10}\n{"n": 13}\n'
            )
            assert "_ack" in lines(sender, 2)[1]
        daemon.process.kill()
        daemon.process.wait()
    with daemon_with(tmp_path, monkeypatch, "ends", data=data) as (daemon, source, sink), connect(sink) as reader:
        assert dead(daemon) == 1
        send(source, b'{"n": 1}\n')
        assert lines(reader, 1) == [{"n": 1}]
