"""Savepoints, backups and restores of a real daemon under load: what is restored goes on exactly. And names."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from aurorad_client import Reader, Sender

from engine.lab.processes import command
from tests.e2e.daemon import free_ports, running, wait_for

NETWORK = """
engine: {{data_dir: {data}, checkpoint: 300ms}}
streams: {{s: {{schema: {{n: bigint, k: bigint}}, overload: block, source: {{tcp: 127.0.0.1:{source}}}}}}}
boxes:
  sums: {{aggregate: s, window: {{count: 100}}, by: [k], select: {{total: sum(n), rows: count(*)}}}}
outputs:
  o: {{from: s, sink: {{tcp: 127.0.0.1:{sink}}}}}
  w: {{from: sums, sink: {{tcp: 127.0.0.1:{windows}}}}}
"""
BATCH = 50


def aurorad(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*words), capture_output=True, text=True, timeout=100, check=False)


def rows(batch: int) -> list[dict[str, int]]:
    return [{"n": n, "k": n % 3} for n in range((batch - 1) * BATCH, batch * BATCH)]


def read(port: int, name: str, last: int) -> list[dict[str, Any]]:
    """Read an output from its first tuple to the one with this number."""
    got: list[dict[str, Any]] = []
    with Reader("127.0.0.1", port, name, after=0, idle_s=20) as reader:
        for batch in reader:
            assert not batch.missing and batch.first == len(got) + 1
            got += batch.rows
            if batch.last >= last:
                break
    return got


def windows_of(count: int) -> list[tuple[int, int, int]]:
    """Compute what the windows of 100 tuples for each key give, in plain Python: the oracle."""
    found: list[tuple[int, int, int]] = []
    windows: dict[int, list[int]] = {k: [] for k in range(3)}
    for n in range(count):
        windows[n % 3].append(n)
        if len(windows[n % 3]) == 100:
            found.append((n % 3, sum(windows[n % 3]), 100))
            windows[n % 3].clear()
    return found


class Loaded:
    """A daemon, a sender that numbers its batches, and named readers that hold the log from its beginning."""

    def __init__(self, tmp_path: Path) -> None:
        self.http, self.source, self.sink, self.windows = free_ports(4)
        self.path = tmp_path
        self.data = tmp_path / "data"

    def text(self, data: Path) -> str:
        return NETWORK.format(data=data, source=self.source, sink=self.sink, windows=self.windows)

    def begin_histories(self) -> None:
        for port in (self.sink, self.windows):
            Reader("127.0.0.1", port, "oracle", after=0).close()

    def goes_on(self, folder: Path, least: int) -> int:
        """Start on a restored folder, send what is missing up to 400 batches, and compare everything with the oracle.
        Return how many batches the folder had."""
        with running(self.path, self.text(folder), self.http) as daemon:
            with Sender("127.0.0.1", self.source, "till", epoch=1) as sender:
                assert sender.resumed_at is not None
                had = sender.resumed_at
                assert least <= had < 400
                for batch in range(had + 1, 401):
                    sender.send(rows(batch))
            wanted = windows_of(400 * BATCH)
            assert [row["n"] for row in read(self.sink, "oracle", 400 * BATCH)] == list(range(400 * BATCH))
            found = [(row["k"], row["total"], row["rows"]) for row in read(self.windows, "oracle", len(wanted))]
            assert sorted(found) == sorted(wanted)
            assert daemon.end() == 0
        return had


@pytest.fixture
def loaded(tmp_path: Path) -> Loaded:
    return Loaded(tmp_path)


def test_a_backup_of_a_running_daemon_restores_to_one_that_goes_on_exactly(loaded: Loaded, tmp_path: Path) -> None:
    stop = threading.Event()
    sent = 0
    with running(loaded.path, loaded.text(loaded.data), loaded.http):
        loaded.begin_histories()

        def feed() -> None:
            nonlocal sent
            with Sender("127.0.0.1", loaded.source, "till", epoch=1) as sender:
                while not stop.is_set() and sent < 350:
                    sent = sender.send(rows(sent + 1))
                    sender.flush()

        feeder = threading.Thread(target=feed)
        feeder.start()
        wait_for(lambda: sent > 60, "some batches are in")
        before = sent
        url = f"http://127.0.0.1:{loaded.http}"
        done = aurorad("backup", str(loaded.data), str(tmp_path / "backup"), "--url", url)
        stop.set()
        feeder.join()
        assert done.returncode == 0, done.stderr
        assert "checked" in done.stdout
        assert list((loaded.data / "savepoints").iterdir()) == [], "the savepoint behind it is removed"
        name = aurorad("savepoint", "later", "--url", url)
        assert name.stdout.strip() == str(loaded.data / "savepoints" / "later"), name.stderr
        assert "already" in aurorad("savepoint", "later", "--url", url).stderr
        assert aurorad("savepoint", "../out", "--url", url).returncode == 2
    restored = aurorad("restore", str(tmp_path / "backup"), str(tmp_path / "again"))
    assert restored.returncode == 0, restored.stderr
    loaded.goes_on(tmp_path / "again", before)
    assert aurorad("restore", str(loaded.data / "savepoints" / "later"), str(tmp_path / "third")).returncode == 0
    loaded.goes_on(tmp_path / "third", sent)
    assert aurorad("restore", str(tmp_path / "backup"), str(tmp_path / "fourth")).returncode == 0, "it is unchanged"


def test_a_stopped_folder_is_backed_up_and_a_changed_backup_is_refused(loaded: Loaded, tmp_path: Path) -> None:
    with running(loaded.path, loaded.text(loaded.data), loaded.http) as daemon:
        loaded.begin_histories()
        with Sender("127.0.0.1", loaded.source, "till", epoch=1) as sender:
            for batch in range(1, 21):
                sender.send(rows(batch))
        assert daemon.end() == 0
    backup = tmp_path / "backup"
    assert aurorad("backup", str(loaded.data), str(backup)).returncode == 0
    assert "is not empty" in aurorad("backup", str(loaded.data), str(backup)).stderr
    shutil.copytree(backup, tmp_path / "bad")
    [segment] = (tmp_path / "bad" / "log").iterdir()
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 1
    segment.write_bytes(content)
    refused = aurorad("restore", str(tmp_path / "bad"), str(tmp_path / "nothing"))
    assert refused.returncode == 1 and "is not as it was saved" in refused.stderr
    assert not (tmp_path / "nothing").exists()
    assert "no savepoint" in aurorad("restore", str(tmp_path), str(tmp_path / "nothing")).stderr
    assert aurorad("restore", str(backup), str(tmp_path / "again")).returncode == 0
    assert loaded.goes_on(tmp_path / "again", 20) == 20


def test_names_are_listed_and_dropped_for_good(loaded: Loaded) -> None:
    url = f"http://127.0.0.1:{loaded.http}"
    with running(loaded.path, loaded.text(loaded.data), loaded.http) as daemon:
        loaded.begin_histories()
        with Sender("127.0.0.1", loaded.source, "till", epoch=1) as sender:
            sender.send(rows(1))
            sender.flush()
            refused = aurorad("names", "drop", "source", "s", "till", "--url", url)
            assert refused.returncode == 2 and "is connected" in refused.stderr
        found = json.loads(aurorad("names", "list", "--json", "--url", url).stdout)["names"]
        assert [(n["kind"], n["at"], n["name"]) for n in found] == [
            ("reader", "o", "oracle"),
            ("reader", "w", "oracle"),
            ("source", "s", "till"),
        ]
        assert (found[0]["unread"], found[2]["sequence"]) == (BATCH, 1)
        assert "reader oracle at o: has 0, 50 unread" in aurorad("names", "list", "--url", url).stdout
        for words in (("source", "s", "till"), ("reader", "o", "oracle")):
            # Until the daemon has seen that the client is gone.
            wait_for(lambda w=words: aurorad("names", "drop", *w, "--url", url).returncode == 0, "it is dropped")
        assert aurorad("names", "drop", "reader", "o", "oracle", "--url", url).returncode == 2
        daemon.process.kill()
        daemon.process.wait()
    with running(loaded.path, loaded.text(loaded.data), loaded.http):
        found = json.loads(aurorad("names", "list", "--json", "--url", url).stdout)["names"]
        assert [(n["kind"], n["at"], n["name"]) for n in found] == [("reader", "w", "oracle")]
