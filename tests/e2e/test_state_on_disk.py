"""Clause P: more keys than memory. Answers stay right, memory stays at the budget, and a SIGKILL loses no key."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tests.e2e.daemon import RunningDaemon, connect, free_ports, running, wait_for

MIB = 2**20
BUDGET = 4 * MIB
KEYS = 200_000
TRAIN = 10_000
SCHEMA = pa.schema({"ts": pa.timestamp("ns"), "k": pa.int64(), "v": pa.int64()})
HOUR_NS = 3_600 * 10**9

NETWORK = """
engine: {{memory: 4MiB, data_dir: {data}, checkpoint: 500ms, workers: 1}}
streams:
  s:
    schema: {{ts: timestamp, k: bigint, v: bigint}}
    time: ts
    slack: 0s
    max_skew: 36500d
    idle: 1h
    overload: block
    source: {{tcp: 127.0.0.1:{source}, format: arrow}}
boxes:
  once: {{dedup: s, by: [k], within: 1h}}
  sums: {{aggregate: s, window: {{tumbling: 1h}}, by: [k], select: {{k: k, n: "count(*)", total: "sum(v)"}}}}
outputs:
  firsts: {{from: once}}
  totals: {{from: sums, sink: {{tcp: 127.0.0.1:{totals}, format: arrow, when_slow: block}}}}
"""


def send(daemon: RunningDaemon, port: int, numbers: np.ndarray[Any, Any], offset: int, before: int) -> int:
    """Send rows with these keys, and wait until the daemon has taken all of them. Returns the largest resident size."""
    most = 0
    with connect(port) as s, s.makefile("wb") as file, pa.ipc.new_stream(file, SCHEMA) as writer:
        for start in range(0, numbers.shape[0], TRAIN):
            k = numbers[start : start + TRAIN]
            ts = pa.array(np.arange(start, start + k.shape[0]) + offset, pa.int64()).cast(SCHEMA.field(0).type)
            writer.write_batch(pa.record_batch([ts, pa.array(k), pa.array(k)], schema=SCHEMA))
            most = max(most, daemon.rss_bytes())
    wait_for(lambda: daemon.stream("s")["admitted"] == before + numbers.shape[0], "all of it is in", 120)
    return max(most, daemon.rss_bytes())


def box(daemon: RunningDaemon, name: str) -> dict[str, Any]:
    return next(b for b in daemon.stats()["boxes"] if b["name"] == name)


def test_more_keys_than_memory_over_a_kill(tmp_path: Path) -> None:
    http, source, totals = free_ports(3)
    text = NETWORK.format(data=tmp_path / "data", source=source, totals=totals)
    keys = np.random.default_rng(7).permutation(KEYS)
    with running(tmp_path, text, http) as daemon:
        most = send(daemon, source, keys, 0, 0)
        for name in ("once", "sums"):
            wait_for(lambda name=name: box(daemon, name)["state_disk_bytes"], "state is on disk")  # type: ignore[misc]
        assert daemon.stats()["engine"]["memory_state"] < BUDGET
        daemon.end(signal.SIGKILL)
    with running(tmp_path, text, http) as daemon, connect(totals) as reader:
        wait_for(lambda: daemon.output("totals")["subscribers"], "the reader is there")
        most = max(most, send(daemon, source, keys[::-1], KEYS, KEYS))
        wait_for(lambda: box(daemon, "once")["waiting"] == 0, "no tuple waits for its state", 120)
        once = box(daemon, "once")
        assert (once["tuples_out"], once["filtered"]) == (KEYS, KEYS), "each key passes once, over the kill"
        send(daemon, source, np.array([KEYS]), 2 * HOUR_NS, 2 * KEYS)  # closes the window
        found: list[pa.RecordBatch] = []
        with pa.ipc.open_stream(reader.makefile("rb")) as stream:
            while sum(batch.num_rows for batch in found) < KEYS:
                found.append(stream.read_next_batch())
                most = max(most, daemon.rss_bytes())
        rows = pa.Table.from_batches(found)
        k = rows["k"].to_numpy()
        assert np.array_equal(np.sort(k), np.arange(KEYS))
        assert (rows["n"].to_numpy() == 2).all() and (rows["total"].to_numpy() == 2 * k).all()
        assert most <= 1.25 * BUDGET + 250e6, f"{most / MIB:.0f} MiB"
        assert not any(daemon.stats()["conservation_residual"].values())
        assert daemon.end() == 0
