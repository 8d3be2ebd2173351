"""The real daemon and its data_dir: kill -9, SIGTERM, damage, a full disk, a second daemon."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from aurorad_client import Reader, RefusedError, Sender

from engine.daemon.daemon import Daemon
from engine.daemon.durable.outbox import NAMES_AT_MOST
from engine.daemon.durable.records import OUTPUT
from engine.run.network_file import read_network
from storage.files import RealFiles, StorageError
from storage.log import Log, LogDamageError
from tests.crash.driver import Driver
from tests.e2e.daemon import wait_for

CYCLES = int(os.environ.get("AURORAD_KILLS", "2"))


NETWORK = """
engine: {{data_dir: {data}, checkpoint: 1h}}
http: {{listen: "{http}"}}
streams:
  t: {{schema: {{ts: timestamp, v: bigint}}, time: ts, source: {{tcp: 127.0.0.1:0, timestamps: s}}}}
boxes:
  sums: {{aggregate: t, window: {{tumbling: 10s}}, select: {{n: "count(*)", s: "sum(v)"}}}}
outputs:
  o: {{from: sums, sink: {{tcp: 127.0.0.1:0}}}}
"""


@contextmanager
def daemon_on(data: Path, *, crash: bool = False, http: str = "off") -> Iterator[Daemon]:
    """Run a daemon in this process. ``crash``: it ends without a checkpoint, as after a kill."""
    daemon = Daemon(read_network(NETWORK.format(data=data, http=http), {}))
    daemon.start()
    try:
        yield daemon
    finally:
        daemon.failed = crash
        daemon.stop(5.0)


def ports(daemon: Daemon) -> tuple[int, int]:
    return daemon.server.address("stream t")[1], daemon.server.address("output o")[1]


def rows(first: int, last: int) -> list[dict[str, int]]:
    return [{"ts": 1_600_000_000 + n, "v": n} for n in range(first, last)]


def test_killed_under_load_it_loses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    verdict = Driver(tmp_path, seed=7).run(CYCLES, longest_s=0.4)
    assert verdict["acknowledged_tuples"] > 0
    assert verdict["results"] > 0
    for promise in ("lost", "repeats_unflagged", "repeats_flagged", "numbers_missing", "exit"):
        assert verdict[promise] == 0, verdict


@pytest.mark.parametrize("operation", [29])
def test_killed_before_this_very_operation_it_loses_nothing(tmp_path: Path, operation: int) -> None:
    """The daemon kills itself before its n-th write, sync, rename or removal (``tests/crash/dying.py``)."""
    verdict = Driver(tmp_path, seed=operation).run_dying(operation)
    assert verdict["starts"] == 2
    for promise in ("lost", "repeats_unflagged", "numbers_missing", "exit"):
        assert verdict[promise] == 0, verdict


def test_a_stop_checkpoints_and_the_next_start_replays_nothing(tmp_path: Path) -> None:
    with daemon_on(tmp_path / "data") as daemon, Sender("127.0.0.1", ports(daemon)[0], "x", epoch=1) as sender:
        for start in range(0, 500, 50):
            sender.send(rows(start, start + 50))
    with daemon_on(tmp_path / "data") as daemon:
        source, sink = ports(daemon)
        assert daemon.keeper is not None
        assert (daemon.keeper.recovered.tuples, daemon.keeper.recovered.log_bytes) == (0, 0)
        reader = Reader("127.0.0.1", sink, "r", idle_s=2.0)
        with Sender("127.0.0.1", source, "x", epoch=1) as sender:
            assert sender.resumed_at == 10
            sender.send(rows(500, 511))
        got: list[dict[str, int]] = []
        while len(got) < 2:
            got += next(iter(reader)).rows
        reader.close()
        # The window of 490 to 499 was open when the daemon stopped, and closes with what it held.
        assert [(r["n"], r["s"]) for r in got] == [(10, sum(range(490, 500))), (10, sum(range(500, 510)))]


def test_damage_below_what_was_acknowledged_refuses_to_start_and_names_the_place(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with daemon_on(data, crash=True) as daemon, Sender("127.0.0.1", ports(daemon)[0], "x", epoch=1) as sender:
        sender.send(rows(0, 10))
        sender.flush()
        sender.send(rows(10, 20))
    [segment] = sorted((data / "log").iterdir())
    log = Log(RealFiles(str(data)))
    log.open()
    first = next(iter(log.records(0)))
    log.close()
    raw = bytearray(segment.read_bytes())
    raw[first.position + 40] ^= 0x10
    segment.write_bytes(raw)
    with pytest.raises(LogDamageError) as refused, daemon_on(data):
        pass
    assert (refused.value.file, refused.value.offset) == (str(segment), first.position)


def test_a_torn_tail_is_cut_and_counted_and_a_bad_checkpoint_passed_over(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for life in range(3):  # each stop writes a checkpoint
        with daemon_on(data) as daemon, Sender("127.0.0.1", ports(daemon)[0], "x", epoch=1) as sender:
            sender.send(rows(life * 10, life * 10 + 10))
    newest = sorted((data / "checkpoint").glob("*.json"))[-1]
    newest.write_bytes(newest.read_bytes()[:-5])
    [segment] = sorted((data / "log").iterdir())
    with segment.open("ab") as tail:
        tail.write(b"AuL1 and then the power went")
    with daemon_on(data) as daemon:
        assert daemon.keeper is not None
        recovered = daemon.keeper.recovered
        assert (recovered.torn_bytes, recovered.passed_over, recovered.tuples) == (28, 1, 10)
        assert daemon.readings().streams[0].admitted == 30
        with Sender("127.0.0.1", ports(daemon)[0], "x", epoch=1) as sender:
            assert sender.resumed_at == 3


def test_a_second_daemon_on_the_same_folder_is_refused(tmp_path: Path) -> None:
    with daemon_on(tmp_path / "data"):
        second = Daemon(read_network(NETWORK.format(data=tmp_path / "data", http="off"), {}))
        with pytest.raises(StorageError, match="another process uses this data_dir"):
            second.start()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a disk of 16 MiB, which a test can fill; needs the right to mount."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", place], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("mounting a small disk is not allowed here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def test_a_full_disk_refuses_with_a_reason_delivers_on_and_recovers_by_itself(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    with daemon_on(small_disk / "data") as daemon:
        source, sink = ports(daemon)
        assert daemon.keeper is not None
        committer = daemon.keeper.committer
        reader = Reader("127.0.0.1", sink, "r", after=0, idle_s=0.5)
        sender = Sender("127.0.0.1", source, "x", epoch=1, window=1_000)
        for start in range(0, 1_000, 100):
            sender.send(rows(start, start + 100))
        sender.flush()
        ballast.write_bytes(bytes(15 * 2**20 + 2**19))
        for start in range(1_000, 3_000, 100):
            sender.send(rows(start, start + 100))
        wait_for(lambda: committer.refusal.startswith("the disk is full"), "the disk is full")
        got = [r for batch in reader for r in batch.rows]
        assert len(got) == 99, "what was admitted before is delivered"
        sender.poll()
        assert sender.acknowledged == 10
        assert "the disk is full" in sender.refusal
        ballast.unlink()
        sender.flush()
        assert sender.acknowledged == 30
        wait_for(lambda: daemon.readings().streams[0].admitted == 3_000, "all of it is in")
        got += [r for batch in reader for r in batch.rows]
        assert [r["n"] for r in got] == [10] * 299
        assert daemon.readings().streams[0].rejected["refused"] > 0
        sender.close()
        reader.close()


def test_ready_says_that_the_disk_is_full_also_when_nothing_arrives(small_disk: Path) -> None:
    def answer() -> tuple[int, dict[str, Any]]:
        assert daemon.http is not None
        try:
            with urllib.request.urlopen(f"{daemon.http.url}/ready", timeout=10) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    with daemon_on(small_disk / "data", http="127.0.0.1:0") as daemon:
        assert answer() == (200, {"status": "ready", "checks": dict.fromkeys(answer()[1]["checks"], "ok")})
        ballast = fill(small_disk)
        wait_for(lambda: answer()[0] == 503, "it is not ready")
        _, said = answer()
        assert "disk" in said["why"] and "full" in said["checks"]["disk"]
        assert {check for check, why in said["checks"].items() if why != "ok"} == {"disk"}
        assert daemon.readings().readiness.checks["disk"], "and so does the metric"
        ballast.unlink()
        wait_for(lambda: answer()[0] == 200, "it is ready again by itself")


def test_a_client_that_connects_while_the_disk_is_full_gets_its_welcome(tmp_path: Path) -> None:
    """The server stops reading then; it must still read a hello, or the client waits until its time-out."""
    with daemon_on(tmp_path / "data") as daemon:
        assert daemon.keeper is not None
        committer = daemon.keeper.committer
        committer._is_short_of_room = lambda wanted_bytes: True  # type: ignore[method-assign]
        committer.refusal = "the disk is full"
        with Sender("127.0.0.1", ports(daemon)[0], "x", epoch=1, timeout_s=5.0) as sender:
            assert sender.resumed_at == 0


def test_one_named_reader_too_many_is_refused_and_a_dropped_one_makes_room(tmp_path: Path) -> None:
    """Every name keeps the log for its reader: a stranger that invents names must not fill the disk."""
    with daemon_on(tmp_path / "data") as daemon:
        assert daemon.keeper is not None
        outbox, sink = daemon.keeper.outboxes[0], ports(daemon)[1]
        for number in range(NAMES_AT_MOST):
            outbox.subscribe(f"r{number}", None)
        with pytest.raises(RefusedError, match=f"{NAMES_AT_MOST:,} named readers"):
            Reader("127.0.0.1", sink, "one-more", after=0, timeout_s=20)
        Reader("127.0.0.1", sink, "r7", after=0, timeout_s=20).close()
        with Reader("127.0.0.1", sink, "r8", after=0, timeout_s=20) as reader:
            reader.forget()
        wait_for(lambda: "r8" not in outbox.names, "the name is given up")
        Reader("127.0.0.1", sink, "one-more", after=0, timeout_s=20).close()
        assert len(outbox.names) == NAMES_AT_MOST


def forget_outputs(data: Path) -> None:
    """Remove the outputs from the log, as after a kill when only the inputs were on disk."""
    old = Log(RealFiles(str(data)))
    old.open()
    new = Log(RealFiles(str(data)), "fresh")
    new.open()
    for record in old.records(0):
        if record.kind != OUTPUT:
            new.append(record.kind, [record.payload])
    new.commit()
    old.close()
    new.close()
    shutil.rmtree(data / "log")
    (data / "fresh").rename(data / "log")
    shutil.rmtree(data / "log.mark")
    (data / "fresh.mark").rename(data / "log.mark")
    # The first name asks for a checkpoint. It may come before or after the first batches, and refers to the old log.
    shutil.rmtree(data / "checkpoint", ignore_errors=True)


def fill(place: Path) -> Path:
    ballast = place / "ballast"
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(2**12))
    return ballast


def test_a_disk_that_is_full_during_recovery_delays_what_comes_of_it_and_loses_nothing(small_disk: Path) -> None:
    data = small_disk / "data"
    with daemon_on(data, crash=True) as daemon:
        source, sink = ports(daemon)
        Reader("127.0.0.1", sink, "r", after=0).close()
        with Sender("127.0.0.1", source, "x", epoch=1) as sender:
            for start in range(0, 1_000, 100):
                sender.send(rows(start, start + 100))
    forget_outputs(data)
    ballast = fill(small_disk)
    with daemon_on(data) as daemon:
        source, sink = ports(daemon)
        assert daemon.keeper is not None
        assert daemon.keeper.recovered.tuples == 1_000
        assert daemon.keeper.committer.refusal.startswith("the disk is full")
        reader = Reader("127.0.0.1", sink, "r", after=0, idle_s=0.3)
        got = [r for batch in reader for r in batch.rows]
        assert len(got) < 99, "nothing is delivered that a crash could undo; a few fit into the file's last page"
        with Sender("127.0.0.1", source, "x", epoch=1) as sender:
            assert sender.resumed_at == 10
            sender.send(rows(1_000, 1_010))
            sender.poll()
            ballast.unlink()
            sender.flush()
        for batch in reader:
            assert not batch.is_repeat
            got += batch.rows
        assert [(r["n"], r["s"]) for r in got] == [(10, sum(range(n, n + 10))) for n in range(0, 1_000, 10)]
        reader.close()
