"""The server between the clients of a benchmark: the daemon, or a bare loop. Both listen on two ports of loopback."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from engine.lab.bench import workload
from engine.lab.bench.harness import child, free_ports, wait_listening
from engine.lab.processes import command, end, spawn


@dataclass(frozen=True, slots=True)
class BenchServer:
    source: int  # the port to send to
    sink: int  # the port to read from


@contextmanager
def bare_loop(loop: str) -> Iterator[BenchServer]:
    source, sink = free_ports(2)
    with child("engine.lab.bench.sockets.bare_loops", loop, source, sink) as process:
        process.answer()
        yield BenchServer(source, sink)


@contextmanager
def daemon(format: str, *, workers: int = 1, data_dir: str = "", keep: str = "") -> Iterator[BenchServer]:
    """Run ``aurorad run`` on a network of five filters until the block is left."""
    http, source, sink = free_ports(3)
    with tempfile.TemporaryDirectory(prefix="aurorad-bench-") as folder:
        file = Path(folder) / "network.yaml"
        file.write_text(
            workload.socket_network(format, (http, source, sink), workers=workers, data_dir=data_dir, keep=keep)
        )
        process = spawn(command("run", str(file)), stdout=subprocess.DEVNULL)
        try:
            for port in (source, sink, http):
                wait_listening(port, process)
            yield BenchServer(source, sink)
        finally:
            end(process)
