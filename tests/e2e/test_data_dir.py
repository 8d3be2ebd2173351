"""A data_dir of another network, one that cannot be used, and a start that is interrupted: nothing is lost."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from aurorad_client import ClientError, Reader, Sender

from engine.daemon.daemon import Daemon
from engine.daemon.durable import recovery
from engine.lab.processes import command
from engine.run.network_file import read_network
from storage.files import StorageError
from storage.log import LogDamageError
from tests.e2e.daemon import free_ports, running

NETWORK = """
engine: {{data_dir: {data}, checkpoint: 1h}}
http: {{listen: off}}
streams:
  {stream}: {{schema: {schema}, source: {{tcp: 127.0.0.1:0}}}}
outputs:
  o: {{from: {stream}, sink: {{tcp: 127.0.0.1:0}}}}
"""
ROWS = [{"a": n} for n in range(100)]


def make(data: Path, stream: str = "t", schema: str = "{a: bigint}", **options: Any) -> Daemon:
    return Daemon(read_network(NETWORK.format(data=data, stream=stream, schema=schema), {}), **options)


def fill(data: Path, *, crash: bool) -> None:
    """Fill a data_dir with a hundred tuples. ``crash``: end without the checkpoint of a proper stop."""
    daemon = make(data)
    daemon.start()
    with Sender("127.0.0.1", daemon.server.address("stream t")[1], "x", epoch=1) as sender:
        for row in ROWS:
            sender.send([row])
    daemon.failed = crash
    daemon.stop(5.0)


def recovered(data: Path) -> tuple[int, int]:
    """Start with the right network; return the replayed tuples, and the number of known batches."""
    daemon = make(data)
    daemon.start()
    assert daemon.keeper is not None
    try:
        with Sender("127.0.0.1", daemon.server.address("stream t")[1], "x", epoch=1) as sender:
            return daemon.keeper.recovered.tuples, sender.resumed_at
    finally:
        daemon.stop(5.0)


def test_a_replay_that_is_broken_off_leaves_everything_for_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "data", crash=True)
    monkeypatch.setattr(recovery, "PROGRESS_EVERY_SECONDS", -1.0)

    def stop(progress: recovery.Progress) -> None:
        raise KeyboardInterrupt

    daemon = make(tmp_path / "data", on_progress=stop)
    with pytest.raises(KeyboardInterrupt):
        daemon.start()
    assert recovered(tmp_path / "data") == (100, 100)


@pytest.mark.parametrize(
    ("stream", "schema"), [("u", "{a: bigint}"), ("t", "{a: double}"), ("t", "{a: bigint, b: int}")]
)
def test_tuples_in_the_log_that_the_network_cannot_take_refuse_to_start_and_stay(
    tmp_path: Path, stream: str, schema: str
) -> None:
    fill(tmp_path / "data", crash=True)
    with pytest.raises(LogDamageError, match="acknowledged tuples of stream t"):
        make(tmp_path / "data", stream, schema).start()
    assert recovered(tmp_path / "data") == (100, 100)


def test_the_folder_of_another_network_is_refused_and_not_touched(tmp_path: Path) -> None:
    fill(tmp_path / "data", crash=False)
    with pytest.raises(StorageError, match="another network, with the streams t"):
        make(tmp_path / "data", "u").start()
    assert recovered(tmp_path / "data") == (0, 100)


def test_a_folder_that_cannot_be_written_is_refused_with_the_reason(tmp_path: Path) -> None:
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "ro,size=1m", "tmpfs", str(place)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        for data in (place, place / "data"):
            with pytest.raises(StorageError, match="the data_dir cannot be used"):
                make(data).start()
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="the data_dir cannot be used"):
        make(tmp_path / "file").start()


def test_a_folder_that_vanishes_under_a_running_daemon_acknowledges_nothing_more(tmp_path: Path) -> None:
    """The kernel accepts writes and syncs of removed files, and no start will ever find them."""
    daemon = make(tmp_path / "data")
    daemon.start()
    sender = Sender("127.0.0.1", daemon.server.address("stream t")[1], "x", epoch=1, timeout_s=0.5)
    try:
        sender.send(ROWS)
        sender.flush()
        shutil.rmtree(tmp_path / "data")
        sender.send(ROWS)
        with pytest.raises(ClientError, match="the file was removed"):
            sender.flush()
        assert sender.acknowledged == 1
        assert daemon.keeper is not None
        assert not daemon.keeper.checkpointer.make()
    finally:
        daemon.stop(5.0)
    assert not (tmp_path / "data").exists(), "nor is it made anew"


def test_a_folder_that_is_renamed_under_a_running_daemon_goes_on_under_its_new_name(tmp_path: Path) -> None:
    daemon = make(tmp_path / "data")
    daemon.start()
    assert daemon.keeper is not None
    daemon.keeper.log.segment_bytes = 1_000
    with Sender("127.0.0.1", daemon.server.address("stream t")[1], "x", epoch=1) as sender:
        for n, row in enumerate(ROWS):
            sender.send([row])
            if n == 50:
                sender.flush()
                (tmp_path / "data").rename(tmp_path / "moved")
    daemon.failed = True
    daemon.stop(5.0)
    assert not (tmp_path / "data").exists()
    assert recovered(tmp_path / "moved") == (100, 100)


def test_what_else_lies_in_the_folder_is_left_alone(tmp_path: Path) -> None:
    data = tmp_path / "data"
    fill(data, crash=True)
    strangers = [data / "log/copy.log", data / "spill/x.spill", data / "checkpoint/1 (copy).json", data / "notes"]
    for stranger in strangers:
        stranger.parent.mkdir(exist_ok=True)
        stranger.write_text("mine")
    assert recovered(data) == (100, 100)
    assert recovered(data) == (0, 100)
    assert all(s.read_text() == "mine" for s in strangers)


def test_what_the_kernel_refuses_of_a_start_is_told_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "data/log/00000000000000000000.log").mkdir(parents=True)
    with pytest.raises(StorageError, match="cannot start: Is a directory"):
        make(tmp_path / "data").start()
    shutil.rmtree(tmp_path / "data")
    fill(tmp_path / "data", crash=True)
    assert recovered(tmp_path / "data") == (100, 100), "the folder was let go of"


def test_sigterm_at_any_moment_of_a_start_ends_it_and_loses_nothing(tmp_path: Path) -> None:
    http, source, sink = free_ports(3)
    text = f"""
engine: {{data_dir: {tmp_path / "data"}, checkpoint: 1h}}
streams:
  t: {{schema: {{a: bigint}}, source: {{tcp: 127.0.0.1:{source}}}}}
boxes:
  odd: {{filter: t, where: "a % 2 = 1"}}
outputs:
  o: {{from: odd, sink: {{tcp: 127.0.0.1:{sink}}}}}
"""
    batches, size = 40, 2_000
    with running(tmp_path, text, http) as daemon:
        reader = Reader("127.0.0.1", sink, "r", after=0)
        with Sender("127.0.0.1", source, "x", epoch=1) as sender:
            for n in range(batches):
                sender.send([{"a": a} for a in range(n * size, (n + 1) * size)])
        reader.close()
        daemon.process.kill()
        daemon.process.wait()
    for pause_s in (0.5, 0.8, 1.1):
        process = subprocess.Popen(command("run", str(tmp_path / "network.yaml")), stderr=subprocess.DEVNULL)
        time.sleep(pause_s)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) in (0, -signal.SIGTERM)  # the second one: before it listened to signals
    with running(tmp_path, text, http):
        got: list[int] = []
        for batch in Reader("127.0.0.1", sink, "r", after=0, idle_s=30):
            assert batch.first == len(got) + 1 and not batch.is_repeat
            got += [row["a"] for row in batch.rows]
            if len(got) == batches * size // 2:
                break
    assert got == list(range(1, batches * size, 2))
