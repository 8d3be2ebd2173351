"""A full disk under a daemon of its own, without the right to mount: the disk is in a user namespace."""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from aurorad_client import Sender

from engine.lab.processes import command
from tests.e2e.daemon import RunningDaemon, free_ports, is_ready, wait_for

NETWORK = """
http: {{listen: 127.0.0.1:{http}}}
log: {{format: json}}
engine: {{data_dir: {disk}/data, checkpoint: 1h}}
streams: {{s: {{schema: {{n: bigint}}, overload: block, source: {{tcp: 127.0.0.1:{source}}}}}}}
outputs: {{o: {{from: s}}}}
"""
MOUNT = 'mount -t tmpfs -o size=16m tmpfs "$0" && exec "$@"'


@pytest.fixture
def crammed(tmp_path: Path) -> Iterator[tuple[RunningDaemon, int, Path]]:
    """A daemon whose data_dir is on a disk of 16 MiB, the port of its source, and the disk."""
    disk = tmp_path / "disk"
    disk.mkdir()
    alone = ["unshare", "--user", "--map-root-user", "--mount"]
    if subprocess.run([*alone, "sh", "-c", MOUNT, str(disk), "true"], check=False, capture_output=True).returncode:
        pytest.skip("a namespace of one's own is not allowed here")
    http, source = free_ports(2)
    file = tmp_path / "network.yaml"
    file.write_text(NETWORK.format(http=http, source=source, disk=disk))
    with (tmp_path / "log.json").open("wb") as log:
        words = [*alone, "sh", "-c", MOUNT, str(disk), *command("run", str(file))]
        process = subprocess.Popen(words, stdout=log, stderr=log)
    daemon = RunningDaemon(process, tmp_path / "log.json", http)
    try:
        wait_for(lambda: process.poll() is not None or is_ready(daemon), "the daemon is ready", 90)
        assert process.poll() is None, daemon.log_path.read_text()
        yield daemon, source, Path(f"/proc/{process.pid}/root{disk}")
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def ready(daemon: RunningDaemon) -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{daemon.http_port}/ready", timeout=10) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_ready_names_the_full_disk_batches_are_refused_and_all_goes_on_when_there_is_room(
    crammed: tuple[RunningDaemon, int, Path],
) -> None:
    daemon, source, disk = crammed
    with Sender("127.0.0.1", source, "till", epoch=1, timeout_s=60) as sender:
        sender.send([{"n": n} for n in range(100)])
        sender.flush()
        ballast = disk / "ballast"
        with ballast.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(4_096))
        wait_for(lambda: ready(daemon)[0] == 503, "it is not ready")
        said = ready(daemon)[1]
        assert "full" in said["checks"]["disk"] and {c for c, why in said["checks"].items() if why != "ok"} == {"disk"}
        assert json.loads(daemon.get("/health"))["status"] == "ok", "it lives: an orchestrator must not restart it"
        assert b'aurorad_ready{check="disk"} 0.0' in daemon.get("/metrics")
        sender.send([{"n": n} for n in range(100, 200)])
        wait_for(lambda: sender.poll() or "disk is full" in sender.refusal, "the batch is refused with the reason")
        ballast.unlink()
        wait_for(lambda: ready(daemon)[0] == 200, "it is ready again by itself")
        sender.flush()
        assert sender.acknowledged == 2
    wait_for(lambda: daemon.stream("s")["admitted"] == 200, "both batches are in")
    assert not [entry for entry in daemon.log if "exception" in entry]
