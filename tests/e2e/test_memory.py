"""Clause G under a load that lasts: three times as much comes in as goes out, and one reader is dead. Memory is flat.

``AURORAD_MEMORY_SECONDS=120`` takes longer than the few seconds of the suite; the figures are printed (``-s``).
"""

from __future__ import annotations

import os
import socket
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from tests.e2e.daemon import RunningDaemon, connect, free_ports, running, wait_for

SECONDS = float(os.environ.get("AURORAD_MEMORY_SECONDS", "6"))
MIB = 2**20
BUDGET = 4 * MIB
TRAIN = 5_000
TRAINS_A_SECOND = 60  # that come in; a third of it goes out
SCHEMA = pa.schema({"n": pa.int64(), "b": pa.int64(), "c": pa.float64()})


def network(data: Path, source: int, slow: int, dead: int) -> str:
    return f"""
engine: {{memory: {BUDGET // MIB}MiB, data_dir: {data}, checkpoint: 2s}}
streams:
  t:
    schema: {{n: bigint, b: bigint, c: double}}
    overload: spill
    source: {{tcp: 127.0.0.1:{source}, format: arrow}}
boxes:
  all: {{filter: t, where: "n >= 0"}}
outputs:
  slow: {{from: all, sink: {{tcp: 127.0.0.1:{slow}, format: arrow, buffer: 256KiB, when_slow: block}}}}
  dead: {{from: t, sink: {{tcp: 127.0.0.1:{dead}, format: arrow, buffer: 256KiB}}}}
"""


class SlowReader(threading.Thread):
    """Reads in order, a third as fast as is sent; then all the rest."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(daemon=True)
        self._sock = sock
        self.hurry = threading.Event()
        self.tuples = 0
        self.in_order = True

    def run(self) -> None:
        begun = time.monotonic()
        with pa.ipc.open_stream(self._sock.makefile("rb")) as stream:
            for batch in stream:
                n = batch.column(0).to_numpy()
                self.in_order &= bool(n[0] == self.tuples and (np.diff(n) == 1).all())
                self.tuples += len(n)
                due = begun + self.tuples / (TRAIN * TRAINS_A_SECOND / 3)
                self.hurry.wait(max(0.0, due - time.monotonic()))


def send(port: int, daemon: RunningDaemon, seconds: float) -> tuple[int, list[int]]:
    """At a steady pace for so long; the tuples, and resident bytes all along."""
    resident: list[int] = []
    sent = 0
    begun = time.monotonic()
    with connect(port) as s, pa.ipc.new_stream(s.makefile("wb"), SCHEMA) as writer:
        while (now := time.monotonic() - begun) < seconds:
            if sent / TRAIN < now * TRAINS_A_SECOND:
                n = np.arange(sent, sent + TRAIN)
                writer.write_batch(pa.record_batch([n, n, n * 0.5], schema=SCHEMA))
                sent += TRAIN
            else:
                time.sleep(0.005)
            resident.append(daemon.rss_bytes())
    return sent, resident


def test_memory_is_flat_at_three_times_the_load(tmp_path: Path) -> None:
    http, source, slow, dead = free_ports(4)
    text = network(tmp_path / "data", source, slow, dead)
    with running(tmp_path, text, http) as daemon, connect(slow) as reading, connect(dead):
        wait_for(lambda: daemon.output("slow")["readers"] and daemon.output("dead")["readers"], "both are there")
        idle = daemon.rss_bytes()
        reader = SlowReader(reading)
        reader.start()
        sent, resident = send(source, daemon, SECONDS)
        wait_for(lambda: daemon.stream("t")["admitted"] == sent, "all of it is in")
        spilled = sum(a["spilled_bytes"] for a in daemon.stats()["arcs"])
        third = len(resident) // 3
        middle, last = max(resident[third : 2 * third]), max(resident[2 * third :])
        reader.hurry.set()
        wait_for(lambda: reader.tuples == sent, "all of it is out", 60 + SECONDS)
        said = (
            f"{SECONDS:.0f} s, {sent:,} tuples, {spilled / BUDGET:.1f} budgets on disk in the end; resident "
            f"{idle / MIB:.0f} MiB idle, {middle / MIB:.0f} in the middle third, {last / MIB:.0f} in the last"
        )
        print(said)
        assert reader.in_order
        assert spilled > 2 * BUDGET * SECONDS / 6, said
        assert max(resident) <= 1.25 * BUDGET + 250 * MIB, said
        assert last - middle <= 16 * MIB, said
        assert daemon.stats()["conservation_residual"] == {"stream": 0, "arc": 0, "box": 0, "output": 0}
