"""The fault matrix: one fault at a time against a real daemon under load, and a table of what it cost.

``python -m tests.crash.faults`` (``--only kill``, ``--seconds 6``). A sender numbers its batches and waits for disk
acknowledgements, a named reader reads everything afterwards. Whatever the fault does, each acknowledged tuple must come
out once and in order. ``longest`` is the longest time without an acknowledgement. The clock jumps by hours to and fro,
for the daemon alone: ``jumping_daemon.py`` starts it with a clock of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from aurorad_client import Reader, Sender

from engine.lab.processes import command
from tests.crash.jumping_daemon import JUMPS_S, jumping_command
from tests.e2e.daemon import RunningDaemon, free_ports, is_ready, wait_for

NETWORK = """
http: {{listen: 127.0.0.1:{http}}}
log: {{format: json}}
engine: {{data_dir: {data}, memory: 8MiB, checkpoint: 500ms}}
streams: {{s: {{schema: {{n: bigint, pad: string}}, overload: spill, source: {{tcp: 127.0.0.1:{source}}}}}}}
boxes: {{f: {{filter: s, where: "n >= 0"}}}}
outputs: {{o: {{from: f, sink: {{tcp: 127.0.0.1:{sink}}}}}}}
"""
ROOT = Path(__file__).parents[2]
BATCH = 200
PAD = "x" * 40


class FaultRun:
    """A daemon under load. ``fault`` may end, stop or starve it, and must leave it able to go on."""

    def __init__(self, folder: Path, seconds: float, descriptors: int = 0, has_clock: bool = False) -> None:
        self.folder = folder
        self._command = jumping_command if has_clock else command
        self.seconds = seconds
        self._descriptors = descriptors
        self.ports = dict(zip(("http", "source", "sink"), free_ports(3), strict=True))
        self.data = folder / "data"
        self.longest_s = 0.0
        self.batches = 0
        self.error = ""
        self._end = threading.Event()

    def start(self) -> RunningDaemon:
        (self.folder / "network.yaml").write_text(NETWORK.format(data=self.data, **self.ports))
        log = (self.folder / "log.json").open("ab")
        words = self._command("run", str(self.folder / "network.yaml"))
        process = subprocess.Popen(words, stdout=log, stderr=log, preexec_fn=self._limit, cwd=ROOT)
        log.close()
        self.daemon = RunningDaemon(process, self.folder / "log.json", self.ports["http"])
        wait_for(lambda: process.poll() is not None or is_ready(self.daemon), "the daemon is ready", 60)
        assert process.poll() is None, self.daemon.log_path.read_text()[-2_000:]
        return self.daemon

    def _limit(self) -> None:
        if self._descriptors:
            resource.setrlimit(resource.RLIMIT_NOFILE, (self._descriptors, self._descriptors))

    def _feed(self) -> None:
        try:
            with Sender("127.0.0.1", self.ports["source"], "till", epoch=1, timeout_s=60) as sender:
                last = time.monotonic()
                while not self._end.is_set():
                    first = self.batches * BATCH
                    sender.send([{"n": n, "pad": PAD} for n in range(first, first + BATCH)])
                    sender.flush()
                    now = time.monotonic()
                    self.longest_s, last = max(self.longest_s, now - last), now
                    self.batches += 1
                    time.sleep(0.005)
        except Exception as error:  # noqa: BLE001 - any end of the sender is a finding of this run
            self.error = f"{type(error).__name__}: {error}"

    def go(self, fault: Callable[[FaultRun], None]) -> tuple[int, int]:
        """Run the fault under load. Return how many acknowledged tuples are missing, and how many came twice."""
        self.start()
        Reader("127.0.0.1", self.ports["sink"], "oracle", after=0).close()
        feeder = threading.Thread(target=self._feed)
        feeder.start()
        try:
            time.sleep(self.seconds / 3)
            fault(self)
            time.sleep(self.seconds / 3)
        finally:
            self._end.set()
            feeder.join(90)
        wanted = self.batches * BATCH
        got: list[int] = []
        with Reader("127.0.0.1", self.ports["sink"], "oracle", after=0, idle_s=15) as reader:
            for batch in reader:
                got += [row["n"] for row in batch.rows]
                if len(got) >= wanted:
                    break
        return wanted - len(set(got) & set(range(wanted))), len(got) - len(set(got))

    def crowd(self, stack: ExitStack, count: int, words: bytes = b"") -> None:
        """Connect many peers to every port. A refused one is no error."""
        for number in range(count):
            port = list(self.ports.values())[number % len(self.ports)]
            with contextlib.suppress(OSError):
                sock = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=2))
                sock.sendall(words)


def few_descriptors(run: FaultRun) -> None:
    with ExitStack() as stack:
        run.crowd(stack, 900)
        time.sleep(run.seconds / 3)


def half_open(run: FaultRun) -> None:
    with ExitStack() as stack:
        for words in (b'{"n": 1', b'{"_hello": {"sou', b"GET /metrics HT", b"AUTH Bea"):
            run.crowd(stack, 150, words)
        time.sleep(run.seconds / 3)


def slow(run: FaultRun) -> None:
    end = time.monotonic() + run.seconds / 3
    with contextlib.suppress(OSError), ExitStack() as stack:
        dead = [stack.enter_context(_connect(run.ports["sink"])) for _ in range(5)]
        senders = [stack.enter_context(_connect(run.ports["source"])) for _ in range(20)]
        while time.monotonic() < end:
            for sock in senders:
                sock.sendall(b" ")
            dead[0].recv(1)
            time.sleep(0.01)


def _connect(port: int) -> socket.socket:
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    sock.settimeout(5)
    sock.connect(("127.0.0.1", port))
    return sock


def kill(run: FaultRun) -> None:
    for _ in range(3):
        run.daemon.process.send_signal(signal.SIGKILL)
        run.daemon.process.wait()
        run.start()
        time.sleep(run.seconds / 9)


def stop_and_continue(run: FaultRun) -> None:
    for _ in range(3):
        run.daemon.process.send_signal(signal.SIGSTOP)
        time.sleep(run.seconds / 9)
        run.daemon.process.send_signal(signal.SIGCONT)
        time.sleep(0.1)


def clock(run: FaultRun) -> None:
    """Move the daemon's clock under load, and start it again once while it is wrong."""
    for turn in range(2 * len(JUMPS_S)):
        run.daemon.process.send_signal(signal.SIGUSR1)
        time.sleep(run.seconds / 60)
        if turn == 2:  # twelve days ahead
            run.daemon.process.send_signal(signal.SIGKILL)
            run.daemon.process.wait()
            run.start()


def full_disk(run: FaultRun) -> None:
    filler = run.data / "filler"
    free = os.statvfs(run.data).f_bavail * os.statvfs(run.data).f_frsize
    filler.write_bytes(b"\0" * max(0, free - 64 * 1024))
    time.sleep(run.seconds / 3)
    filler.unlink()


def memory(run: FaultRun) -> None:
    """Feed many tuples on plain connections into a budget of 8 MiB."""
    block = b"".join(b'{"n": -1, "pad": "%s"}\n' % (b"y" * 200) for _ in range(2_000))
    end = time.monotonic() + run.seconds / 3
    with contextlib.suppress(OSError), _connect(run.ports["source"]) as sock:
        while time.monotonic() < end:
            sock.sendall(block)
    resident = run.daemon.rss_bytes() / 1024**2
    assert resident < 1.25 * 8 + 250, f"{resident:.0f} MiB resident"


class FaultKind(NamedTuple):
    run: Callable[[FaultRun], None]
    descriptors: int = 0
    small_disk: bool = False
    has_clock: bool = False


FAULTS = {
    "few descriptors": FaultKind(few_descriptors, descriptors=420),
    "half-open": FaultKind(half_open),
    "slow": FaultKind(slow),
    "memory": FaultKind(memory),
    "full disk": FaultKind(full_disk, small_disk=True),
    "clock": FaultKind(clock, has_clock=True),
    "stop and continue": FaultKind(stop_and_continue),
    "kill": FaultKind(kill),
}


@contextmanager
def place(small_disk: bool) -> Iterator[Path | None]:
    """Yield a folder; on a disk of 24 MiB, or None where mounting one is not allowed."""
    with tempfile.TemporaryDirectory() as folder:
        if not small_disk:
            yield Path(folder)
            return
        data = Path(folder, "data")
        data.mkdir()
        words = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(data)]
        if subprocess.run(words, check=False, capture_output=True).returncode:
            yield None
            return
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", "-l", str(data)], check=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.faults", description=__doc__)
    parser.add_argument("--seconds", type=float, default=9.0, help="for each fault, with the load before and after")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    print(f"{'fault':20}{'tuples':>10}{'lost':>6}{'twice':>7}{'longest s':>11}  daemon")
    is_good = True
    for name, kind in FAULTS.items():
        if options.only not in name:
            continue
        with place(kind.small_disk) as folder:
            if folder is None:
                print(f"{name:20}{'':34}  not run: a small disk cannot be mounted here")
                continue
            run = FaultRun(folder, options.seconds, kind.descriptors, kind.has_clock)
            try:
                lost, twice = run.go(kind.run)
                exits = run.daemon.end()
                tracebacks = sum("exception" in entry for entry in run.daemon.log)
                is_good &= not (lost or twice or run.error or tracebacks) and exits == 0
                said = run.error or f"exit {exits}, {tracebacks} tracebacks"
                print(f"{name:20}{run.batches * BATCH:10,}{lost:6}{twice:7}{run.longest_s:11.2f}  {said}", flush=True)
            finally:
                run.daemon.process.kill()
                run.daemon.process.wait()
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
