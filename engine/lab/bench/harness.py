"""What benchmarks share: contenders that take turns, child processes, folders of kept results.

A child process is ended by its handle when its block is left, also by an exception. It reads commands from standard
input, ends when that is closed, and answers in JSON lines on standard output.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import orjson

from catalog.errors import AuroraError
from engine.lab.processes import end, spawn

T = TypeVar("T")

START_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Options:
    """The options that every benchmark has."""

    quick: bool = False  # fewer and shorter rounds: a look, not a figure to quote

    @property
    def rounds(self) -> int:
        return 2 if self.quick else 5


def interleave(contenders: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Run each contender once per round, in turn; return what each returned, by round."""
    outcomes: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, contender in contenders.items():
            outcomes[name].append(contender())
    return outcomes


class BenchError(AuroraError):
    """The benchmark failed: a process died, rows are missing, or a kept result cannot be read."""


def make_folder(folder: Path) -> None:
    """Make the folder and check that it is writable, before minutes are spent on results that could not be kept."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BenchError(f"{folder} cannot be made a folder: {error.strerror}") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise BenchError(f"{folder} is not writable")


def read_kept(path: Path, of: Callable[[Any], T], what: str) -> T:
    """Read a result that an earlier run kept as JSON. Raise BenchError for any other file."""
    try:
        return of(orjson.loads(path.read_bytes()))
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise BenchError(f"{path} is not what {what} ({error!r}): delete it to do it again") from error


class ChildProcess:
    """A child process that answers in JSON lines."""

    def __init__(self, process: subprocess.Popen[bytes], name: str) -> None:
        self.process = process
        self.name = name

    def say(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(word.encode() + b"\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """Read the next answer. Raise BenchError if the process ends first."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise BenchError(f"{self.name} ended with code {self.process.wait()} before it answered")
        record: dict[str, Any] = orjson.loads(line)
        return record


@contextmanager
def child(module: str, *arguments: object) -> Iterator[ChildProcess]:
    """Run ``python -m module arguments`` until the block is left."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    process = spawn(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield ChildProcess(process, " ".join([module, *map(str, arguments[:1])]))
    finally:
        end(process)


def free_ports(count: int) -> list[int]:
    """Find free ports of loopback. Another process may take one before it is used; a benchmark can live with that."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in sockets]
    finally:
        for s in sockets:
            s.close()


def wait_listening(port: int, process: subprocess.Popen[bytes], seconds: float = START_SECONDS) -> None:
    """Wait until the process listens on the port. Raise BenchError if it ends first."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise BenchError(f"the process ended with code {process.returncode} before it listened on {port}")
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.005)
    raise BenchError(f"the process does not listen on {port} after {seconds:g} s")
