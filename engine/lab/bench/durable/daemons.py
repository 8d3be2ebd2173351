"""The daemon under test, a client that sends to it, and the disk alone as the baseline."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engine.daemon.daemon import Daemon
from engine.lab.bench import workload
from engine.lab.bench.harness import BenchError, child
from engine.run.network_file import read_network

BATCH_TUPLES = 10_000
WINDOW = 64  # batches that the client sends ahead of their acknowledgements
MIB = 1024**2
SEQUENTIAL_BYTES = 4 * MIB


def network(format: str, data_dir: str | None) -> str:
    data = "" if data_dir is None else f", data_dir: {data_dir}, checkpoint: 1h"
    lines = [
        f"engine: {{workers: 1, memory: 512MiB{data}}}",
        'http: {listen: "off"}',
        "streams:",
        "  rows:",
        "    schema: {seq: bigint, symbol: string, price: double, size: int}",
        f"    source: {{tcp: 127.0.0.1:0, format: {format}}}",
        "    overload: block",
        "boxes:",
        *workload.chain_boxes("q0", "rows", workload.bounds(0)),
        "outputs:",
        f"  out: {{from: q0_{workload.FILTERS - 1}}}",
    ]
    return "\n".join(lines) + "\n"


@contextmanager
def running(text: str) -> Iterator[Daemon]:
    daemon = Daemon(read_network(text, {}))
    daemon.start()
    try:
        yield daemon
    finally:
        daemon.stop(10.0)


def send(daemon: Daemon, format: str, ack: str, tuples: int, count: int, window: int) -> dict[str, float]:
    """Send until all is acknowledged and has come out; return the sender's answer, with the rate up to that point."""
    port = daemon.server.address("stream rows")[1]
    with child("engine.lab.bench.sockets.batch_sender", port, format, ack, tuples, count, window) as sender:
        sender.answer()
        begun = time.perf_counter()
        sender.say("go")
        said: dict[str, float] = sender.answer()
    if not daemon.engine.drain(60):
        raise BenchError("the engine did not drain")
    said["tuples_per_s"] = said["tuples"] / (time.perf_counter() - begun)
    return said


def sequential(folder: Path, size: int, piece: int = SEQUENTIAL_BYTES) -> float:
    """Measure the disk: write ``size`` bytes, sync each piece; return bytes a second."""
    data = os.urandom(piece)
    path = folder / "plain"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        begun = time.perf_counter()
        for _ in range(size // piece):
            os.write(fd, data)
            os.fdatasync(fd)
        return size / (time.perf_counter() - begun)
    finally:
        os.close(fd)
        path.unlink()
