"""The HTTP server on a real socket, and the commands that read from it."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from typing import Any

import orjson
import pytest
import typer
from typer.testing import CliRunner

from catalog.catalog import Catalog
from catalog.describe import TapPlace
from catalog.errors import ListenError
from catalog.readings import Readings
from engine.cli import tap as tap_command
from engine.cli import top as top_command
from qos_monitor.loop import Monitor
from qos_monitor.metrics import EngineCollector, expose, registry_for
from router.http.app import HttpApp, HttpQueries
from router.http.server import HttpServer
from storage.train import Train
from tests.unit.monitored import SECOND_NS, busy, diamond, idle

NETWORK = diamond()
SCHEMA = NETWORK.stream("trades").schema
LIMIT_S = 20


class Daemon:
    """An I/O thread with the HTTP app over readings of a moment; trains pass by when the test says so."""

    def __init__(self) -> None:
        script: list[Readings] = [idle(NETWORK), busy(NETWORK)]
        self.monitor = Monitor(Catalog(NETWORK), lambda: script.pop(0) if len(script) > 1 else script[0])
        self.monitor.tick()
        self.monitor.tick()
        registry = registry_for(EngineCollector(self.monitor.readings, lambda: self.monitor.residuals))
        self.watchers: list[Callable[[Train], None]] = []
        self.watched = threading.Event()
        self.sources = HttpQueries(
            metrics=lambda accept: expose(registry, accept),
            stats=self.monitor.stats,
            bills=self.monitor.bills,
            network=lambda: NETWORK,
            ready=lambda: {"state": ""},
            dead_letters=lambda limit: [],
            tap=self._tap,
            explain=lambda output, where, limit: {},
            follow=lambda output, where, found: lambda: None,
            drops=lambda limit: {"plans": [], "limit": limit},
        )
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, name="aurorad-io")
        self.thread.start()
        self.server = self.on_loop(HttpServer.start(HttpApp(self.sources), "127.0.0.1", 0))

    def on_loop(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(LIMIT_S)

    def _tap(self, place: TapPlace, callback: Callable[[Train], None]) -> Callable[[], None]:
        self.watchers.append(callback)
        self.watched.set()
        return lambda: self.watchers.remove(callback)

    def send(self, first: int, count: int) -> None:
        sizes = list(range(first, first + count))
        data = {"ts": [SECOND_NS] * count, "symbol": ["A"] * count, "price": [0.5] * count, "size": sizes}
        for watcher in list(self.watchers):
            watcher(Train.from_pylists(SCHEMA, data, 0))

    def get(self, path: str, **headers: str) -> tuple[int, bytes]:
        connection = HTTPConnection("127.0.0.1", self.server.port, timeout=LIMIT_S)
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        body = response.read()
        connection.close()
        return response.status, body

    def stop(self) -> None:
        self.on_loop(self.server.stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    daemon = Daemon()
    yield daemon
    daemon.stop()


@pytest.fixture
def app() -> typer.Typer:
    app = typer.Typer()
    top_command.register(app)
    tap_command.register(app)
    return app


def wait_for(condition: Callable[[], bool]) -> None:
    tick = threading.Event()
    for _ in range(LIMIT_S * 100):
        if condition():
            return
        tick.wait(0.01)
    pytest.fail("it did not come to that")


def test_every_address_answers(daemon: Daemon) -> None:
    for path in ("/metrics", "/health", "/ready", "/api/v1/network", "/api/v1/stats", "/api/v1/dead_letters"):
        assert daemon.get(path)[0] == 200, path
    assert b"aurorad_load_ratio" in daemon.get("/metrics")[1]
    assert daemon.get("/metrics", Accept="application/openmetrics-text;version=1.0.0")[1].endswith(b"# EOF\n")
    assert orjson.loads(daemon.get("/api/v1/stats")[1])["outputs"][0]["name"] == "alerts"


def test_a_port_in_use_names_the_key(daemon: Daemon) -> None:
    with pytest.raises(ListenError, match=r"^http\.listen: .*127\.0\.0\.1:\d+: the port is in use"):
        daemon.on_loop(HttpServer.start(HttpApp(daemon.sources), "127.0.0.1", daemon.server.port))


def test_an_address_of_another_machine_is_refused(daemon: Daemon) -> None:
    with pytest.raises(ListenError, match=r"^http\.listen: cannot listen on 203\.0\.113\.7:1"):
        daemon.on_loop(HttpServer.start(HttpApp(daemon.sources), "203.0.113.7", 1))


def test_signals_stay_as_they_were() -> None:
    async def run() -> None:
        before = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)]
        daemon_sources = Daemon()
        server = await HttpServer.start(HttpApp(daemon_sources.sources), "127.0.0.1", 0)
        assert [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)] == before
        await server.stop()
        daemon_sources.stop()

    asyncio.run(run())


def test_a_watcher_that_hangs_up_is_forgotten(daemon: Daemon) -> None:
    with socket.create_connection(("127.0.0.1", daemon.server.port), LIMIT_S) as client:
        client.sendall(b"GET /api/v1/tap?name=trades&limit=0 HTTP/1.1\r\nHost: x\r\n\r\n")
        assert daemon.watched.wait(LIMIT_S)
        daemon.send(0, 3)
        seen = b""
        while b'"size":2' not in seen:
            seen += client.recv(65536)
    wait_for(lambda: not daemon.watchers)


def test_stopping_ends_an_open_tap() -> None:
    daemon = Daemon()
    client = socket.create_connection(("127.0.0.1", daemon.server.port), LIMIT_S)
    client.sendall(b"GET /api/v1/tap?name=trades&limit=0 HTTP/1.1\r\nHost: x\r\n\r\n")
    assert daemon.watched.wait(LIMIT_S)
    daemon.stop()
    while client.recv(65536):
        pass
    client.close()
    assert daemon.watchers == []


# -- commands ---------------------------------------------------------------------------------------------------------


def test_top_once(daemon: Daemon, app: typer.Typer) -> None:
    result = CliRunner().invoke(app, ["top", "--once", "--url", daemon.server.url])
    assert result.exit_code == 0, result.output
    for word in ("aurorad 1.2.3", "alerts", "others", "big", "selectivity"):
        assert word in result.output


def test_tap_prints_tuples(daemon: Daemon, app: typer.Typer) -> None:
    def feed() -> None:
        daemon.watched.wait(LIMIT_S)
        daemon.send(0, 10)

    feeder = threading.Thread(target=feed)
    feeder.start()
    result = CliRunner().invoke(app, ["tap", "trades", "--limit", "2", "--every", "4", "--url", daemon.server.url])
    feeder.join()
    assert result.exit_code == 0, result.output
    assert [orjson.loads(line)["size"] for line in result.output.splitlines()] == [0, 4]


def test_tap_of_nothing_known(daemon: Daemon, app: typer.Typer) -> None:
    result = CliRunner().invoke(app, ["tap", "trads", "--url", daemon.server.url])
    assert result.exit_code == 2
    assert "there is no stream, box, arc or output 'trads'" in result.output
    assert "did you mean 'trades'?" in result.output


@pytest.mark.parametrize("command", [["top"], ["top", "--once"], ["tap", "trades"]])
def test_no_daemon(app: typer.Typer, command: list[str]) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound and not listening: nobody answers, and nobody else takes it
        result = CliRunner().invoke(app, [*command, "--url", f"127.0.0.1:{unused.getsockname()[1]}"])
    assert result.exit_code == 1
    assert "no aurorad answers at http://127.0.0.1:" in result.output
    assert "aurorad run" in result.output


PROGRAM = """
import sys, typer
from engine.cli import tap, top
app = typer.Typer()
top.register(app)
tap.register(app)
app(sys.argv[1:])
"""


def test_top_without_a_terminal_is_a_line_at_a_time(daemon: Daemon) -> None:
    command = [sys.executable, "-c", PROGRAM, "top", "--interval", "0.1", "--url", daemon.server.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(3)]
        process.send_signal(signal.SIGINT)
        process.stdout.close()
        assert process.wait(LIMIT_S) == 0
    assert all(line.startswith("load ") and "alerts" in line for line in lines)


def test_tap_into_head_ends_quietly(daemon: Daemon) -> None:
    command = [sys.executable, "-c", PROGRAM, "tap", "trades", "--url", daemon.server.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert daemon.watched.wait(LIMIT_S)
        daemon.send(0, 1)
        assert orjson.loads(process.stdout.readline())["size"] == 0
        process.stdout.close()

        def ended() -> bool:
            daemon.send(0, 100)
            return process.poll() is not None

        wait_for(ended)
        assert (process.returncode, process.stderr.read()) == (0, "")
