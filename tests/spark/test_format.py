"""``format("aurorad")``: read and written by a Spark that knows nothing of the engine, killed and restarted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from engine.daemon.daemon import Daemon
from engine.run.network_file import read_network
from router.spark.wire.aurorad_wire import Connection, WireError, read_batches, send_batches
from storage.train import Train
from tests.e2e.certificates import Authority
from tests.e2e.daemon import wait_for

pytest.importorskip("pyspark")

ROOT = Path(__file__).resolve().parents[2]


TOKEN = "spark-token-" * 4


def guard(folder: Path) -> tuple[str, str]:
    """Return an ``access`` section with TLS and a user for Spark, and the file of the authority to trust."""
    authority = Authority(folder)
    authority.issue("server")
    tls = f"{{cert_file: {authority.crt('server')}, key_file: {authority.key('server')}}}"
    user = f"{{token: {TOKEN}, publish: [doubled], subscribe: [numbers], names: [query, batch]}}"
    return f"access: {{tls: {tls}, users: {{spark: {user}}}}}\n", authority.crt("ca")


def network(data_dir: Path | None) -> str:
    engine = f"engine: {{data_dir: {data_dir}, checkpoint: 1s}}" if data_dir is not None else ""
    return f"""
http: {{listen: "off"}}
spark: {{listen: 127.0.0.1:0}}
{engine}
streams:
  source: {{schema: {{n: bigint}}}}
  doubled: {{schema: {{n: bigint, twice: bigint}}}}
outputs:
  numbers: {{from: source}}
  out: {{from: doubled}}
"""


@contextmanager
def running(data_dir: Path | None, access: str = "") -> Iterator[tuple[Daemon, list[tuple[int, int]]]]:
    daemon = Daemon(read_network(access + network(data_dir), {}))
    seen: list[tuple[int, int]] = []
    daemon.subscribe("out", lambda train: seen.extend(train.to_rows()))
    daemon.start()
    try:
        yield daemon, seen
    finally:
        daemon.stop()


def feed(daemon: Daemon, start: int, rows: int) -> None:
    schema = daemon.network.stream("source").schema
    daemon.ingress.admit(
        daemon.network.stream("source").number,
        Train.from_pylists(schema, {"n": list(range(start, start + rows))}, daemon.now_ns()),
    )


class Query:
    """``query.py`` as a process of its own, with its JVM in its group."""

    def __init__(self, address: str, checkpoint: Path, *login: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.query", address, str(checkpoint), *login], cwd=ROOT,
            start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def wait_running(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"running\n"

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._close()

    def finish(self) -> int:
        self.process.communicate(b"finish\n", timeout=300)
        return self.process.returncode

    def _close(self) -> None:
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()


@pytest.mark.timeout(800)  # two starts of Spark on a machine that others use
def test_a_streaming_query_over_tls_killed_and_restarted_is_exact(tmp_path: Path) -> None:
    """With a token, over TLS: the driver and the executors log in with the rights of a user."""
    access, cacert = guard(tmp_path / "certificates")
    with running(tmp_path / "data", access) as (daemon, seen):
        address = f"tls://{daemon.spark.port.address}"
        with pytest.raises(WireError, match="access denied"), Connection(address, TOKEN[1:], cacert) as stranger:
            stranger.ask("offsets", output="numbers", reader="query")
        for reader in ("query", "batch"):
            with Connection(address, TOKEN, cacert) as connection:
                connection.ask("offsets", output="numbers", reader=reader)  # from here on it is kept for them
        sent = 0
        stop = threading.Event()

        def keep_feeding() -> None:
            nonlocal sent
            while not stop.wait(0.02):
                feed(daemon, sent, 50)
                sent += 50

        feeder = threading.Thread(target=keep_feeding)
        feeder.start()
        query = Query(address, tmp_path / "checkpoint", TOKEN, cacert)
        try:
            query.wait_running()
            wait_for(lambda: len(seen) > 1_000, "rows have come back", 200)
            time.sleep(0.3)
        finally:
            query.kill()
            stop.set()
            feeder.join()
        assert len(seen) < sent, "there is something left for the second run"
        query = Query(address, tmp_path / "checkpoint", TOKEN, cacert)
        query.wait_running()
        assert query.finish() == 0
        assert daemon.engine.drain(30)
        wait_for(lambda: len(seen) >= sent + 50, "all rows have come back")
        batch = [(-n, 0) for n in range(59, 9, -1)]
        assert sorted(seen) == [*batch, *[(n, 2 * n) for n in range(sent)]]


# -- the daemon's end, without a JVM ----------------------------------------------------------------------------------


def batch(start: int, rows: int) -> Any:
    numbers = range(start, start + rows)
    return pa.record_batch({"n": list(numbers), "twice": [2 * n for n in numbers]})


def stage(address: str, *batches: Any, stream: str = "doubled") -> str:
    with Connection(address) as connection:
        connection.ask("stage", stream=stream)
        send_batches(connection, batches)
        name: str = connection.hear()["staged"]
        return name


def ask(address: str, do: str, **arguments: Any) -> dict[str, Any]:
    with Connection(address) as connection:
        return connection.ask(do, **arguments)


def test_a_batch_counts_once_and_only_what_its_commit_names(tmp_path: Path) -> None:
    with running(None) as (daemon, seen):
        address = daemon.spark.port.address
        good, twice, other = stage(address, batch(0, 5)), stage(address, batch(0, 5)), stage(address, batch(5, 5))
        assert not seen, "staged rows have not entered"
        first = ask(address, "commit", stream="doubled", query="q", batch=7, staged=[good, other])
        assert (first["rows"], first["repeated"]) == (10, False)
        again = ask(address, "commit", stream="doubled", query="q", batch=7, staged=[twice])
        assert again["repeated"]
        assert ask(address, "commit", stream="doubled", query="q", batch=6, staged=[])["repeated"]
        assert ask(address, "commit", stream="doubled", query="another", batch=6, staged=[])["repeated"] is False
        ask(address, "abort", stream="doubled", staged=[stage(address, batch(50, 5))])
        assert daemon.engine.drain(10)
        assert sorted(seen) == [(n, 2 * n) for n in range(10)]
        assert not list(Path(daemon.spark._folder("exchange")).glob("*.rows")), "nothing staged is left"


def test_what_was_decided_before_a_crash_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The crash after the decision: the batch enters at the next start, from the files that were decided on."""
    data = tmp_path / "data"
    with running(data) as (daemon, seen):
        address = daemon.spark.port.address
        name = stage(address, batch(0, 100))

        def crash(entry: Any) -> int:
            raise RuntimeError("the power is cut here")

        monkeypatch.setattr(daemon.spark.exchange, "_finish", crash)
        with pytest.raises(WireError):
            ask(address, "commit", stream="doubled", query="q", batch=0, staged=[name])
        assert not seen
    with running(data) as (daemon, seen):
        assert daemon.engine.drain(10)
        wait_for(lambda: len(seen) == 100, "the batch is in")
        address = daemon.spark.port.address
        assert ask(address, "commit", stream="doubled", query="q", batch=0, staged=[stage(address, batch(0, 100))])[
            "repeated"
        ]
        assert daemon.engine.drain(10)
        assert sorted(seen) == [(n, 2 * n) for n in range(100)]


def test_an_output_is_read_by_its_offsets(tmp_path: Path) -> None:
    with running(tmp_path / "data") as (daemon, _):
        address = daemon.spark.port.address
        assert ask(address, "offsets", output="numbers", reader="r")["start"] == 0
        for start in range(0, 1_000, 10):
            feed(daemon, start, 10)
        wait_for(lambda: ask(address, "offsets", output="numbers", reader="r")["newest"] == 1_000, "all is on disk")

        def read(start: int, end: int) -> list[int]:
            with Connection(address) as connection:
                connection.ask("read", output="numbers", reader="r", start=start, end=end)
                return [n for part in read_batches(connection) for n in part.column("n").to_pylist()]

        for start, end in ((0, 1_000), (0, 1), (999, 1_000), (5, 5), (13, 777), (10, 20), (995, 1_000)):
            assert read(start, end) == list(range(start, end))
        with pytest.raises(WireError, match="output numbers does not have 1001 tuples"):
            read(990, 1_001)
        ask(address, "release", output="numbers", reader="r", end=500)
        assert ask(address, "offsets", output="numbers", reader="r")["start"] == 500
    with running(tmp_path / "data") as (daemon, _):
        assert ask(daemon.spark.port.address, "offsets", output="numbers", reader="r")["start"] == 500


def test_what_does_not_fit_is_refused_with_its_columns() -> None:
    with running(None) as (daemon, _):
        address = daemon.spark.port.address
        with pytest.raises(WireError, match="field n is string where bigint is wanted; field twice is missing"):
            stage(address, pa.record_batch({"n": ["x"]}))
        with pytest.raises(WireError, match="there is no stream nowhere; the streams are source, doubled"):
            stage(address, batch(0, 1), stream="nowhere")
        with pytest.raises(WireError, match=r"takes engine\.data_dir"):
            ask(address, "offsets", output="numbers", reader="r")
        with pytest.raises(WireError, match="does not know"):
            ask(address, "nonsense")
        with pytest.raises(WireError, match="staged parts are gone"):
            ask(address, "commit", stream="doubled", query="q", batch=0, staged=["abc"])
        with pytest.raises(WireError, match="not the name"):
            ask(address, "commit", stream="doubled", query="q", batch=1, staged=["../../etc"])
