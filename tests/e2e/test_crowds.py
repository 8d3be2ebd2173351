"""Crowds at the ports of a real daemon: unfinished requests, more connections than descriptors, hostile headers."""

from __future__ import annotations

import asyncio
import resource
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from engine.daemon.process.descriptors import HTTP_WANTED, OWN, share
from engine.lab.processes import command
from router.http.answers import plain_answer
from router.http.server import HttpPlaces, HttpServer
from tests.e2e.daemon import RunningDaemon, connect, free_ports, is_ready, lines, running, wait_for

NETWORK = """
streams: {{s: {{schema: {{n: bigint}}, overload: block, source: {{tcp: 127.0.0.1:{source}}}}}}}
outputs: {{o: {{from: s, sink: {{tcp: 127.0.0.1:{sink}}}}}}}
"""
UNFINISHED = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX-Slow: "


def test_health_is_answered_beside_600_unfinished_requests(tmp_path: Path) -> None:
    """An orchestrator once got 503 and restarted a healthy daemon."""
    http, source, sink = free_ports(3)
    with running(tmp_path, NETWORK.format(source=source, sink=sink), http) as daemon, ExitStack() as crowd:
        for _ in range(HTTP_WANTED + 100):
            sock = crowd.enter_context(connect(http))
            sock.sendall(UNFINISHED)
        for path in ("/health", "/ready", "/metrics"):
            assert daemon.get(path)


def test_a_reserved_place_answers_probes_when_all_others_are_busy() -> None:
    async def run() -> None:
        release = asyncio.Event()
        begun = asyncio.Semaphore(0)

        class Slow:
            async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
                if scope["path"] == "/slow":
                    begun.release()
                    await release.wait()
                await plain_answer(200, "")(scope, receive, send)

            def close(self) -> None:
                release.set()

        places = HttpPlaces(2, 2)
        server = await HttpServer.start(Slow(), "127.0.0.1", 0, places=places)

        async def ask(path: str) -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
            answer = await reader.read()
            writer.close()
            return answer

        busy = [asyncio.create_task(ask("/slow")) for _ in range(2)]
        for _ in range(2):
            await begun.acquire()
        assert b" 200 " in await ask("/health")
        assert b" 503 " in await ask("/metrics")
        release.set()
        assert all(b" 200 " in answer for answer in await asyncio.gather(*busy))
        await server.stop()

    asyncio.run(run())


def test_few_descriptors_are_shared_and_the_log_keeps_its_own() -> None:
    usual = share(20_000, 40, 1_000)
    assert (usual.data, usual.http, usual.spark) == (1_000, HTTP_WANTED, 256)
    for limit in (300, 500, 1_024, 2_048):
        few = share(limit, 40, 1_000)
        assert few.data >= 4
        assert few.http + few.http_reserved >= 6
        assert limit <= 300 or few.data + few.http + few.http_reserved + few.spark + 40 + OWN <= limit


def test_a_crowd_at_the_start_of_a_daemon_with_few_descriptors(tmp_path: Path) -> None:
    """The crowd once took the descriptors that the rest of the start needed: a traceback, and exit code 1."""
    http, source, sink, spark = free_ports(4)
    text = NETWORK.format(source=source, sink=sink) + f"spark: {{listen: 127.0.0.1:{spark}}}\n"
    text += f"engine: {{data_dir: {tmp_path / 'data'}}}\n"
    (tmp_path / "n.yaml").write_text(f"http: {{listen: 127.0.0.1:{http}}}\nlog: {{format: json}}\n{text}")
    log = tmp_path / "log"
    with log.open("wb") as out, ExitStack() as crowd:
        process = subprocess.Popen(
            command("run", str(tmp_path / "n.yaml")), stdout=out, stderr=out, preexec_fn=_few_descriptors
        )
        daemon = RunningDaemon(process, log, http)

        def is_up_in_the_crowd() -> bool:
            for port in (spark, sink, source, http):
                for _ in range(10):
                    try:
                        crowd.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5))
                    except OSError:
                        break
            return process.poll() is not None or is_ready(daemon)

        try:
            wait_for(is_up_in_the_crowd, "the daemon is ready in a crowd")
            assert process.poll() is None, log.read_text()
        finally:
            crowd.close()
            process.kill()
            process.wait()
    assert "Traceback" not in log.read_text()
    assert "Too many open files" not in log.read_text()


def _few_descriptors() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (420, 420))


def test_a_host_of_somebody_else_and_two_lengths_are_refused(tmp_path: Path) -> None:
    """DNS rebinding: a page at evil.example, whose name points to 127.0.0.1, may not read what is here."""
    http, source, sink = free_ports(3)
    with running(tmp_path, NETWORK.format(source=source, sink=sink), http):
        ask = _asker(http)
        assert ask(b"Host: evil.example:9400\r\n") == 421
        assert ask(b"Host: localhost.evil.example\r\n") == 421
        for ours in (b"127.0.0.1", b"[::1]:80", b"localhost:9400", b"LOCALHOST"):
            assert ask(b"Host: " + ours + b"\r\n") == 200
        smuggled = b"Host: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n"
        assert ask(smuggled) == 400
        for origin in (b"http://evil.example", b"http://[", b"null"):
            assert ask(b"Host: localhost\r\nOrigin: " + origin + b"\r\n", b"DELETE") == 403
        for path in ("/health", "/metrics", "/api/v1/stats", "/api/v1/nothing"):
            headers = _headers(http, path)
            assert headers["x-content-type-options"] == "nosniff", path


def _asker(port: int) -> Callable[..., int]:
    def ask(headers: bytes, method: bytes = b"GET") -> int:
        with connect(port) as sock:
            sock.sendall(method + b" /api/v1/network HTTP/1.1\r\nConnection: close\r\n" + headers + b"\r\n")
            return int(sock.recv(4_096).split()[1])

    return ask


def _headers(port: int, path: str) -> Any:
    try:
        return urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10).headers
    except urllib.error.HTTPError as error:
        return error.headers


def test_a_second_reader_of_a_name_replaces_the_first_which_is_told(tmp_path: Path) -> None:
    """A stranger once acknowledged tuples beside the reader of a name, which was not told."""
    http, source, sink = free_ports(3)
    text = NETWORK.format(source=source, sink=sink) + f"engine: {{data_dir: {tmp_path / 'data'}}}\n"
    with running(tmp_path, text, http) as daemon, connect(sink) as first, connect(sink) as second:
        assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700
        first.sendall(b'{"_hello": {"name": "billing"}}\n')
        assert "_welcome" in lines(first, 1)[0]
        second.sendall(b'{"_hello": {"name": "billing"}}\n')
        assert "_welcome" in lines(second, 1)[0]
        assert lines(first, 1)[0] == {"_error": "another connection reads under this name now"}
        wait_for(lambda: any("took over the reader billing" in e["message"] for e in daemon.log), "it is logged")
