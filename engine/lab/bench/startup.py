"""``bench startup``: the time until a command answers, against Python importing the four packages that it needs.

``run`` is measured until ``/ready`` answers, ``version`` and ``validate`` until they end. Every start is a new process
with a warm file cache, and the commands take turns. All use compiled bytecode, as an installed package does: a first
round fills a bytecode cache that they share. (With PYTHONDONTWRITEBYTECODE every start would compile the checkout again
but not numpy, which doubles the time.)
"""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from engine.lab.bench import workload
from engine.lab.bench.harness import START_SECONDS, BenchError, Options, free_ports, interleave
from engine.lab.bench.report import Result
from engine.lab.processes import command, end, spawn

Environment = dict[str, str]

IMPORTS = "import numpy, pyarrow, pydantic, uvloop"
RUN_AT_MOST = 3.0


def with_bytecode(folder: Path) -> Environment:
    """Make the environment of a process that keeps its bytecode in this folder."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": str(folder)}


def ended(arguments: list[str], environment: Environment) -> float:
    """Run a command; return the seconds until it has ended."""
    begun = time.perf_counter()
    code = spawn(arguments, stdout=subprocess.DEVNULL, environment=environment).wait()
    if code:
        raise BenchError(f"{arguments[-1]} ended with code {code}")
    return time.perf_counter() - begun


def ready(file: Path, port: int, environment: Environment) -> float:
    """Start the daemon; return the seconds until it is ready."""
    begun = time.perf_counter()
    process = spawn(command("run", str(file)), stdout=subprocess.DEVNULL, environment=environment)
    try:
        while not is_ready(port):
            if process.poll() is not None:
                raise BenchError(f"aurorad run ended with code {process.returncode}")
            if time.perf_counter() - begun > START_SECONDS:
                raise BenchError(f"not ready after {START_SECONDS:g} s")
            time.sleep(0.002)
        return time.perf_counter() - begun
    finally:
        end(process)


def is_ready(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", "/ready")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def run(options: Options) -> Iterator[Result]:
    with tempfile.TemporaryDirectory(prefix="aurorad-bench-") as folder:
        file = Path(folder) / "network.yaml"
        environment = with_bytecode(Path(folder) / "bytecode")
        ports = free_ports(3)
        file.write_text(workload.socket_network("ndjson", (ports[0], ports[1], ports[2])))
        contenders: dict[str, Callable[[], float]] = {
            "imports": lambda: ended([sys.executable, "-c", IMPORTS], environment),
            "run": lambda: ready(file, ports[0], environment),
            "version": lambda: ended(command("version"), environment),
            "validate": lambda: ended(command("validate", str(file)), environment),
        }
        interleave(contenders, 1)
        best = {name: min(values) for name, values in interleave(contenders, options.rounds).items()}
    imports = best.pop("imports")
    for name, seconds in best.items():
        yield Result("startup", name, "seconds", seconds, imports, at_most=RUN_AT_MOST if name == "run" else None)
