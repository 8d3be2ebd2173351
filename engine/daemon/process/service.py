"""The daemon as a process: start, signals, exit codes, with the usual conventions of Unix daemons.

On SIGTERM or SIGINT the daemon stops reading, drains, flushes and exits with 0; a second signal ends it at once. On
SIGHUP it applies the network file anew (``change.py``); a file with errors is logged and changes nothing. With a
network file that cannot be deployed it exits with 78.
"""

from __future__ import annotations

import logging
import os
import signal
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from select import select
from threading import Thread
from time import sleep
from types import FrameType
from typing import TYPE_CHECKING

from catalog.config import read_text
from catalog.config.overrides import Overrides
from catalog.errors import AuroraError, NetworkError
from catalog.network import Network
from catalog.printable import counted
from engine.daemon.daemon import Daemon
from engine.daemon.ending.draining import describe_inside
from engine.daemon.process.logs import set_up_logs
from engine.daemon.process.notify import READY, STOPPING, notify
from engine.daemon.process.start_network import read_start, say_what_runs
from engine.daemon.process.version import own_version
from engine.run.network_file import read_network
from engine.run.tuning import name_process, tune_process
from qos_monitor.conservation import residuals
from router.http.change import ChangeOrigin
from storage.compiled.compiler import KernelCompiler

if TYPE_CHECKING:
    from engine.daemon.durable.keeper import Keeper
    from engine.daemon.durable.recovery import Progress

log = logging.getLogger("aurorad")

STOPS = (signal.SIGTERM, signal.SIGINT)
FAILED = 0  # no signal's number: the engine has failed
DONE = 255  # no signal's number either: a finite run has nothing left to read, or nobody to write to
ONCE_DRAIN_SECONDS = 24 * 3600.0  # a batch is to be finished, however long that takes
STOP_SECONDS = 4.5
"""The time for what follows the draining: the last checkpoint, Spark's driver, the connections. A process that takes
longer ends at once: the log has everything that was acknowledged. systemd and Docker give 25 s altogether."""
EX_SOFTWARE = 70  # sysexits.h: an internal error; systemd restarts the daemon


class StoppedEarlyError(Exception):
    """Raised when a signal comes before the daemon has started."""


class Signals:
    """Signals as numbers in a pipe. The kernel may interrupt any thread with a signal, and a main thread that waits for
    a lock then sleeps on. The pipe wakes the main thread, whichever thread was interrupted."""

    def __init__(self, wanted: Sequence[signal.Signals]) -> None:
        self._read_end, self._write_end = os.pipe()
        self._unread: deque[int] = deque()  # taken from the pipe, and not yet returned by ``wait``
        os.set_blocking(self._write_end, False)
        signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
        for number in wanted:
            signal.signal(number, lambda _number, _frame: None)  # the number is in the pipe already

    def has_arrived(self, wanted: Sequence[int]) -> bool:
        """Tell whether one of these signals has come. ``wait`` still returns it."""
        while select([self._read_end], [], [], 0)[0]:
            self._unread.append(os.read(self._read_end, 1)[0])
        return any(number in wanted for number in self._unread)

    def send(self, number: int) -> None:
        """Wake ``wait`` with a number that is no signal's. Any thread."""
        os.write(self._write_end, bytes([number]))

    def wait(self) -> int:
        """Return the number of the next signal, or the next number that was sent."""
        return self._unread.popleft() if self._unread else os.read(self._read_end, 1)[0]


EMPTY_NETWORK = """# No network runs yet. Begin on the page of this daemon, or with: aurorad apply FILE
streams: {}
outputs: {}
"""


def serve(file: Path | None, overrides: Overrides, *, once: bool = False, from_file: bool = False) -> int:
    """Run the daemon until a signal ends it, and return the exit code. Raises NetworkError and ListenError.

    Without a ``file`` the daemon runs an empty network until one is deployed.

    A finite run (``run_end.py``) also ends when its sources are at their end and all results are out; the code is then
    1 if a source or a sink failed or draining did not finish. With ``once`` every run is finite. ``from_file``: run
    the file, also if another network was applied last.
    """
    network, text = read_start(file, EMPTY_NETWORK, overrides, from_file=from_file)
    set_up_logs(network.config.log.format, network.config.log.level)
    for warning in network.warnings:
        hint = f" ({warning.hint})" if warning.hint else ""
        log.warning("%s:%d: %s: %s%s", file, warning.line, warning.place, warning.message, hint)
    signals = Signals((*STOPS, signal.SIGHUP))
    name_process("aurorad")
    tune_process(network.config.engine.memory_bytes)
    if network.config.engine.compiles:
        KernelCompiler().start()
    daemon = Daemon(
        network,
        version=own_version(),
        on_failure=partial(signals.send, FAILED),
        on_progress=_progress_until_stopped(signals) if network.config.engine.data_dir is not None else None,
        on_end=partial(signals.send, DONE),
        once=once,
        read_text=partial(_read_following, file, overrides),
        text=text,
        is_file=partial(_is_text_of, file),
    )
    try:
        daemon.start()
    except StoppedEarlyError:
        log.info("stopped during recovery: nothing is lost, and the next start recovers from the same checkpoint")
        return 0
    _log_start(daemon, file)
    say_what_runs(daemon.changes.revisions, network.version, file)
    notify(READY)
    while (number := signals.wait()) not in (*STOPS, FAILED, DONE):
        _reload(file, overrides, daemon)
    if number == FAILED:
        _exit_after(STOP_SECONDS, EX_SOFTWARE)
        daemon.stop(0.0)
        return EX_SOFTWARE
    log.info("%s: draining", "the sources are at their end" if number == DONE else signal.Signals(number).name)
    notify(STOPPING)
    for again in STOPS:
        signal.signal(again, _exit_now)
    drain_s = ONCE_DRAIN_SECONDS if number == DONE else network.config.engine.drain_ns / 1e9
    _exit_after(drain_s + STOP_SECONDS, 1)
    drained = daemon.stop(drain_s)
    _log_stop(daemon, drained)
    failed = daemon.spark.failures or daemon.files.failures or not drained
    return 1 if number == DONE and failed else 0


def _progress_until_stopped(signals: Signals) -> Callable[[Progress], None]:
    """Return a callable that shows the progress of a recovery, and breaks it off on a signal: it may take long."""
    from engine.daemon.durable.progress import ProgressBar

    show = ProgressBar()

    def progress(progress: Progress) -> None:
        show(progress)
        if signals.has_arrived(STOPS):
            raise StoppedEarlyError

    return progress


def _log_start(daemon: Daemon, file: Path | None) -> None:
    network = daemon.network
    asked, policy = network.config.scheduler.policy, daemon.engine.choice.policy
    if daemon.keeper is not None:
        _log_recovery(daemon.keeper)
    for name, (host, port) in daemon.server.addresses.items():
        log.info("%s listens on %s:%d", name, host, port)
    if daemon.http is not None:
        log.info("metrics and the page are at %s", daemon.http.url)
    if file is None:
        log.info("aurorad %s runs no network yet: begin on the page, or with aurorad apply FILE", daemon.version)
        return
    log.info(
        "aurorad %s runs %s: %s, %s, %s, policy %s, %s",
        daemon.version,
        file,
        counted(len(network.streams), "stream"),
        counted(len(network.boxes), "box"),
        counted(len(network.outputs), "output"),
        policy if asked == policy else f"{asked} (at first {policy})",
        "auto workers" if network.config.engine.is_staffed else counted(network.config.engine.workers, "worker"),
    )


def _log_recovery(keeper: Keeper) -> None:
    found = keeper.recovered
    log.info(
        "recovered from %s in %.2f s: %d tuples of %d bytes of log replayed",
        f"checkpoint {found.checkpoint}" if found.checkpoint else "an empty state",
        found.seconds,
        found.tuples,
        found.log_bytes,
    )


def _log_stop(daemon: Daemon, drained: bool) -> None:
    readings = daemon.readings()
    received = sum(stream.received for stream in readings.streams)
    admitted = sum(stream.admitted for stream in readings.streams)
    emitted = sum(output.emitted for output in readings.outputs)
    missing = sum(residuals(readings).values())
    log.info(
        "stopped%s: %d tuples received, %d admitted, %d emitted%s, %d unaccounted for",
        "" if drained else " with tuples left",
        received,
        admitted,
        emitted,
        describe_inside(daemon.draining),
        missing,
    )


def _is_text_of(file: Path | None, text: str) -> bool:
    """Tell whether a file has this text now."""
    if file is None:
        return False
    try:
        return read_text(file)[0] == text
    except AuroraError:
        return False


def _read_following(file: Path | None, overrides: Overrides, text: str, running: Network) -> Network:
    """Read a network file that is to follow the running one; modules of users lie beside the file of the start."""
    named = "" if file is None else str(file)
    return read_network(text, overrides=overrides, version=running.version + 1, before=running, named=named)


def _reload(file: Path | None, overrides: Overrides, daemon: Daemon) -> None:
    """Apply the network file anew. A file with errors, or one that would drop state, changes nothing."""
    if file is None:
        log.warning("there is no network file to read again: aurorad was started without one")
        return
    _reload_users(file, overrides, daemon)
    try:
        origin = ChangeOrigin("reload")
        answer = daemon.changes.put(read_text(file)[0], dry_run=False, drop_state=False, origin=origin)
    except NetworkError as error:
        for problem in error.problems:
            log.error("%s:%d: %s: %s", file, problem.line, problem.place, problem.message)
        log.error("%s has errors: the running network goes on", file)
    except AuroraError as error:
        log.error("%s is not applied: %s", file, error)
    else:
        if not answer["applied"]:
            log.info("%s has not changed", file)


def _reload_users(file: Path, overrides: Overrides, daemon: Daemon) -> None:
    """Let the users and rights of a network file without errors apply from now on, whatever else has changed in it."""
    try:
        section = read_network(file, overrides=overrides).config.access
    except AuroraError:
        return  # reported when the network is applied
    if section.users != daemon.access.section.users and not daemon.access.is_open:
        daemon.access.use(section)
        log.info("the users and their rights are those of %s now", file)


def _exit_after(seconds: float, code: int) -> None:
    """End the process if it has not ended by then: a stop must not wait for a thread that never answers."""

    def end() -> None:
        sleep(seconds)
        log.critical("still not stopped after %.1f s: the process ends now; the next start reads the log", seconds)
        os._exit(code)

    Thread(target=end, name="aurorad-exit", daemon=True).start()


def _exit_now(_number: int, _frame: FrameType | None) -> None:
    os._exit(1)
