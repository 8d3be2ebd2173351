"""kill -9 with drops in force: every window that ever comes out is exact, and no drop is counted twice."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from threading import Thread
from typing import Any

from aurorad_client import Reader, Sender
from aurorad_client.errors import ClientError

from engine.daemon.daemon import Daemon
from engine.run.network_file import read_network
from tests.e2e.daemon import wait_for

NETWORK = """
engine: {{data_dir: {data}, checkpoint: 100ms}}
http: {{listen: off}}
streams:
  t: {{schema: {{ts: timestamp, v: bigint}}, time: ts, source: {{tcp: 127.0.0.1:0, timestamps: s}}, overload: shed}}
boxes:
  sums: {{aggregate: t, window: {{tumbling: 10s}}, select: {{n: "count(*)", s: "sum(v)", least: "min(v)"}}}}
outputs:
  o: {{from: sums, sink: {{tcp: 127.0.0.1:0}}, qos: {{lossy: 90%}}}}
"""


LAST_WINDOW = 1_990


def rows(first: int, last: int) -> list[dict[str, int]]:
    return [{"ts": 1_600_000_000 + n, "v": n} for n in range(first, last)]


class Results:
    """What a named reader gets, through the crash."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.repeats = 0
        self.last = 0

    def read(self, port: int) -> Thread:
        """Read in a thread until the last window or the end of the daemon.

        The constructor of ``Reader`` returns when the server keeps the output for this name. It is called here and not
        in the thread: windows that close before that are not kept.
        """
        reader = Reader("127.0.0.1", port, "r", after=self.last, idle_s=20.0, timeout_s=3.0)
        thread = Thread(target=self._run, args=(reader,), daemon=True)
        thread.start()
        return thread

    def _run(self, reader: Reader) -> None:
        try:
            for batch in reader:
                self.rows += [] if batch.is_repeat else batch.rows
                self.repeats += len(batch.rows) if batch.is_repeat else 0
                self.last = batch.last
                if batch.rows[-1]["least"] == LAST_WINDOW:
                    return
        except (OSError, ClientError):
            return  # the daemon is gone


def test_killed_while_it_drops_windows(tmp_path: Path) -> None:
    file = tmp_path / "network.yaml"
    file.write_text(NETWORK.format(data=tmp_path / "data"))
    results = Results()
    command = [sys.executable, "-m", "tests.e2e.shed_child", str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdout is not None
        ports = {name: address[1] for name, address in json.loads(child.stdout.readline()).items()}
        reading = results.read(ports["output o"])
        with Sender("127.0.0.1", ports["stream t"], "x", epoch=1) as sender:
            for start in range(0, 1_500, 25):
                sender.send(rows(start, start + 25))
            sender.flush()
            wait_for(lambda: list((tmp_path / "data" / "checkpoint").glob("*.json")), "there is a checkpoint")
            wait_for(lambda: results.rows, "windows come out")
        child.kill()
        child.wait()
    reading.join(10)
    before = len(results.rows)
    daemon = Daemon(read_network(file))
    daemon.start()
    try:
        reading = results.read(daemon.server.address("output o")[1])
        with Sender("127.0.0.1", daemon.server.address("stream t")[1], "x", epoch=1) as sender:
            sender.send(rows(1_500, 2_001))
            sender.flush()
        reading.join(30)
        assert not reading.is_alive()
        readings = daemon.readings()
        assert readings.streams[0].admitted == 2_001
        assert sum(daemon.monitor.stats()["conservation_residual"].values()) == 0
        [arc] = [a for a in readings.arcs if a.name == "t->sums"]
        dropped = arc.shed.get("window", 0)
        assert dropped % 5 == 0
        assert arc.dequeued == 2_001 - dropped
    finally:
        daemon.stop(10.0)
    starts = [row["least"] for row in results.rows]
    assert before > 0
    assert len(results.rows) > before
    assert len(set(starts)) == len(starts), "a window came out twice, and was not flagged"
    assert all(row["n"] == 10 and row["s"] == 10 * row["least"] + 45 for row in results.rows)
    # What was dropped before the checkpoint is gone, and a window that lost a part by then is held back; what was
    # dropped after it has been replayed, and came out.
    assert len(starts) == 200 - -(-dropped // 10)
