"""The daemon as a process: start, signals, stop. The conventions are those of the daemons that people know.

SIGTERM and SIGINT stop reading, drain, flush and exit 0; a second one exits at once. SIGHUP reads the network file
again and says what is wrong with it; a wrong one changes nothing. A network file that cannot be deployed exits 78.
"""

from __future__ import annotations

import logging
import os
import signal
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from select import select
from types import FrameType
from typing import TYPE_CHECKING

from catalog.config.read import Overrides
from catalog.errors import NetworkError
from catalog.network import Network
from engine.cli.version import own_version
from engine.daemon import Daemon
from engine.load import load_network
from engine.logs import set_up_logs
from engine.tuning import tune_process
from qos_monitor.conservation import residuals

if TYPE_CHECKING:
    from engine.durable.keeper import Keeper
    from engine.durable.recovery import Progress

log = logging.getLogger("aurorad")

STOPS = (signal.SIGTERM, signal.SIGINT)
FAILED = 0  # no signal: the engine says that it is broken
DONE = 255  # no signal either: with --once, there is nothing left to read
ONCE_DRAIN_SECONDS = 24 * 3600.0  # who asked for a batch wants all of it
EX_SOFTWARE = 70  # sysexits.h: a bug of ours; systemd restarts on it


class StoppedError(Exception):
    """A signal came before the daemon had started."""


class Signals:
    """Signals as numbers in a pipe. The kernel may give a signal to any thread, and a main thread that waits for a lock
    then sleeps on; the pipe wakes it whoever was interrupted."""

    def __init__(self, wanted: Sequence[signal.Signals]) -> None:
        self._read_end, self._write_end = os.pipe()
        self._kept: deque[int] = deque()
        os.set_blocking(self._write_end, False)
        signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
        for number in wanted:
            signal.signal(number, lambda _number, _frame: None)  # the pipe has it already

    def has_come(self, wanted: Sequence[int]) -> bool:
        """Whether one of these is there. What has come is kept for ``wait``."""
        while select([self._read_end], [], [], 0)[0]:
            self._kept.append(os.read(self._read_end, 1)[0])
        return any(number in wanted for number in self._kept)

    def tell(self, number: int) -> None:
        """A number of our own. Any thread."""
        os.write(self._write_end, bytes([number]))

    def wait(self) -> int:
        return self._kept.popleft() if self._kept else os.read(self._read_end, 1)[0]


def serve(file: Path, overrides: Overrides, *, once: bool = False) -> int:
    """Run until a signal ends it; the exit code. Raises NetworkError and ListenError before anything runs.

    ``once``: or until every Spark source is at its end and what came of it is out; 1 when one of them failed.
    """
    network = load_network(file, overrides=overrides)
    set_up_logs(network.config.log.format, network.config.log.level)
    for warning in network.warnings:
        log.warning("%s:%d: %s: %s", file, warning.line, warning.place, warning.message)
    signals = Signals((*STOPS, signal.SIGHUP))
    tune_process()
    daemon = Daemon(network, version=own_version())
    daemon.on_failure = lambda: signals.tell(FAILED)
    if once:
        daemon.spark.is_batch = True
        daemon.spark.on_done = lambda: signals.tell(DONE)
    if daemon.keeper is not None:
        from engine.durable.progress import ProgressBar

        daemon.on_progress = _until_stopped(ProgressBar(), signals)
    try:
        daemon.start()
    except StoppedError:
        log.info("stopped while it was recovering: nothing is lost, and the next start recovers from the same place")
        return 0
    _say_hello(daemon, file)
    while (number := signals.wait()) not in (*STOPS, FAILED, DONE):
        _reload(file, overrides, network)
    if number == FAILED:
        daemon.stop(0.0)
        return EX_SOFTWARE
    log.info("%s: draining", "the sources are at their end" if number == DONE else signal.Signals(number).name)
    for again in STOPS:
        signal.signal(again, _exit_now)
    drained = daemon.stop(ONCE_DRAIN_SECONDS) if number == DONE else daemon.stop()
    _say_goodbye(daemon, drained)
    return 1 if number == DONE and (daemon.spark.failures or not drained) else 0


def _until_stopped(show: Callable[[Progress], None], signals: Signals) -> Callable[[Progress], None]:
    """A recovery may take long, and who wants to stop the daemon need not wait for its end."""

    def progress(progress: Progress) -> None:
        show(progress)
        if signals.has_come(STOPS):
            raise StoppedError

    return progress


def _say_hello(daemon: Daemon, file: Path) -> None:
    network = daemon.network
    asked, policy = network.config.scheduler.policy, daemon.engine.choice.policy
    if daemon.keeper is not None:
        _say_recovered(daemon.keeper)
    for name, (host, port) in daemon.server.addresses.items():
        log.info("%s listens on %s:%d", name, host, port)
    if daemon.http is not None:
        log.info("metrics and the page are at %s", daemon.http.url)
    log.info(
        "aurorad %s runs %s: %d streams, %d boxes, %d outputs, policy %s, %d workers",
        daemon.version,
        file,
        len(network.streams),
        len(network.boxes),
        len(network.outputs),
        policy if asked == policy else f"{asked} (at first {policy})",
        network.config.engine.workers,
    )


def _say_recovered(keeper: Keeper) -> None:
    found = keeper.recovered
    log.info(
        "recovered from %s in %.2f s: %d tuples of %d bytes of log replayed",
        f"checkpoint {found.checkpoint}" if found.checkpoint else "an empty state",
        found.seconds,
        found.tuples,
        found.log_bytes,
    )


def _say_goodbye(daemon: Daemon, drained: bool) -> None:
    readings = daemon.readings()
    received = sum(stream.received for stream in readings.streams)
    admitted = sum(stream.admitted for stream in readings.streams)
    emitted = sum(output.emitted for output in readings.outputs)
    missing = sum(residuals(readings).values())
    log.info(
        "stopped%s: %d tuples received, %d admitted, %d emitted, %d unaccounted for",
        "" if drained else " with tuples left",
        received,
        admitted,
        emitted,
        missing,
    )


def _reload(file: Path, overrides: Overrides, running: Network) -> None:
    try:
        network = load_network(file, overrides=overrides, version=running.version + 1)
    except NetworkError as error:
        for problem in error.problems:
            log.error("%s:%d: %s: %s", file, problem.line, problem.place, problem.message)
        log.error("%s is wrong: the old network goes on", file)
        return
    if network.config == running.config:
        log.info("%s has not changed", file)
    else:
        log.warning("%s is right and differs from what runs: restart to deploy it", file)


def _exit_now(_number: int, _frame: FrameType | None) -> None:
    os._exit(1)
