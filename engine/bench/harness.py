"""Taking turns, and the processes that a benchmark needs.

Children are ended by their own handle when their block is left, whatever happens in it. They are started with their
standard input as a lifeline and answer in JSON lines on standard output.
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
from engine.processes import end, spawn

T = TypeVar("T")

START_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Options:
    """What a user may say of any benchmark."""

    quick: bool = False  # a look, not a figure: fewer and shorter rounds

    @property
    def rounds(self) -> int:
        return 2 if self.quick else 5


def interleave(contenders: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Let each contender run once per round, in turn; what each returned, by round."""
    outcomes: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, contender in contenders.items():
            outcomes[name].append(contender())
    return outcomes


class BenchError(AuroraError):
    """A benchmark that could not be taken: a process died, rows are missing, or what was kept cannot be read."""


def make_folder(folder: Path) -> None:
    """Before minutes are spent on what could not be kept."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BenchError(f"{folder} cannot be made a folder: {error.strerror}") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise BenchError(f"{folder}: nothing may be written there")


def kept(path: Path, of: Callable[[Any], T], what: str) -> T:
    """What an earlier run has left there as JSON; a file that is something else is named."""
    try:
        return of(orjson.loads(path.read_bytes()))
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise BenchError(f"{path} is not what {what} ({error!r}): delete it to do it again") from error


class Child:
    """A process that speaks JSON lines."""

    def __init__(self, process: subprocess.Popen[bytes], name: str) -> None:
        self.process = process
        self.name = name

    def say(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(word.encode() + b"\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """Its next line; blocks until it speaks or dies."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise BenchError(f"{self.name} ended with code {self.process.wait()} before it answered")
        record: dict[str, Any] = orjson.loads(line)
        return record


@contextmanager
def child(module: str, *arguments: object) -> Iterator[Child]:
    """``python -m module arguments``; ended when the block is left."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    process = spawn(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield Child(process, " ".join([module, *map(str, arguments[:1])]))
    finally:
        end(process)


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody listens on now. Someone else may be quicker; a benchmark can live with it."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in sockets]
    finally:
        for s in sockets:
            s.close()


def wait_listening(port: int, process: subprocess.Popen[bytes], seconds: float = START_SECONDS) -> None:
    """Until somebody listens on the port. Raises when the process dies first."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise BenchError(f"the process ended with code {process.returncode} before it listened on {port}")
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.005)
    raise BenchError(f"nobody listens on {port} after {seconds:g} s")
