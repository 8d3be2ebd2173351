"""One driver process from its start to its end, and the requests that it works on. ``host.py`` starts the next one.

- The driver ends when its standard input closes, however the daemon ends. Refused: the kernel's parent-death signal,
  which arrives when the *thread* that started a child ends.
- Ending it means SIGKILL to its process group: a hung JVM reacts to nothing gentler. Its Python workers end when the
  JVM's pipes close. The scratch folder is removed afterwards.
- Every open request of a driver that has ended fails with SparkLostError.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from pathlib import Path
from typing import IO, Any

from router.spark.daemon.scratch import ScratchFolder
from router.spark.wire.errors import SparkError, SparkLostError
from router.spark.wire.pipe import LAST_WORD, Answer, read_answer, request_line

log = logging.getLogger("aurorad.spark")

PING_SECONDS = 5.0
LOG_DRAIN_SECONDS = 1.0
STOP_SECONDS = 5.0
KEPT_LINES = 40
PATIENCE = 10
STARVED_SHARE = 0.25
"""A JVM whose threads waited for a core for this share of the time, all together, is short of processor time."""
NO_REASON = "the driver ended"
_ROOT = Path(__file__).resolve().parents[3]
_PROGRAM = f"import sys; sys.path.insert(0, {str(_ROOT)!r}); from router.spark.driver.main import main; main()"


class DriverProcess:
    """Any thread may ask. Two threads of its own read the driver's answers and its log."""

    def __init__(self, nice: int, silence_s: float) -> None:
        self.scratch = ScratchFolder()
        self.facts: Answer = {}  # the answer to "start"
        self.ended = threading.Event()  # the process is gone, and so is its scratch folder
        self.gone = False  # requests fail from now on
        self.why = NO_REASON
        self._silence_s = silence_s
        self._next = 0
        self._open: dict[int, Future[Answer]] = {}
        self._lock = threading.Lock()
        self._last_lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._process = subprocess.Popen(  # noqa: S603  this Python with a program of ours
            [sys.executable, "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=lambda: os.nice(nice),
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        lower_session_priority(self._process.pid, nice)
        assert self._process.stdin and self._process.stdout and self._process.stderr
        self._stdin: IO[bytes] = self._process.stdin
        answers, lines = self._process.stdout, self._process.stderr
        self._log_reader = threading.Thread(target=self._read_log, args=(lines,), name="spark-driver", daemon=True)
        self._log_reader.start()
        threading.Thread(target=self._read_answers, args=(answers,), name="spark-driver", daemon=True).start()

    def ask(self, do: str, arguments: Mapping[str, Any]) -> Future[Answer]:
        """Send a request. The future gets its answer, or a SparkError."""
        future: Future[Answer] = Future()
        with self._lock:
            if self.gone:
                future.set_exception(SparkLostError(self.why))
                return future
            self._next += 1
            number = self._next
            self._open[number] = future
        line = request_line(number, do, arguments)
        try:
            with self._lock:
                self._stdin.write(line)
                self._stdin.flush()
        except (OSError, ValueError):
            self.kill("the driver is gone")
        return future

    def _read_answers(self, stream: IO[bytes]) -> None:
        for line in stream:
            number, answer = read_answer(line)
            if number == LAST_WORD and self.why == NO_REASON:
                self.why = str(answer)
            with self._lock:
                future = self._open.pop(number, None)
            if future is None:
                continue
            if isinstance(answer, SparkError):
                future.set_exception(answer)
            else:
                future.set_result(answer)
        self._end()

    def _read_log(self, stream: IO[bytes]) -> None:
        for line in stream:
            text = line.decode(errors="replace").rstrip()
            self._last_lines.append(text)
            log.debug("driver: %s", text)

    def _end(self) -> None:
        """Clean up after the driver has closed its answers. Runs on the thread that read them."""
        self.kill(self.why)
        code = self._process.wait()
        self._log_reader.join(LOG_DRAIN_SECONDS)  # ``complaints`` quotes the last lines of the log, on another pipe
        if self.why == NO_REASON:
            self.why = f"the driver ended with code {code}"
        with self._lock:
            self.gone = True
            lost, self._open = list(self._open.values()), {}
        for future in lost:
            future.set_exception(SparkLostError(self.why))
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:
                    pass  # bytes that were still to be written have no reader
        self.scratch.remove()
        self.ended.set()

    def kill(self, why: str) -> None:
        """Kill the process group: driver and JVM."""
        self.why = why
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass  # gone already

    def watch(self) -> None:
        """Send the heartbeat, on a thread of its own, and kill a driver whose JVM does not answer."""
        while not self.ended.wait(PING_SECONDS):
            try:
                self._await_ping(self.ask("ping", {}))
            except FutureTimeoutError:
                log.error("Spark has not answered for %.0f s and is killed", self._silence_s)
                self.kill(f"the JVM did not answer for {self._silence_s:g} s")
            except SparkError:
                return

    def _await_ping(self, answer: Future[Answer]) -> None:
        """Wait for the answer to a ping. A JVM that waited for a core most of the time is busy and not hung: on a full
        machine it gets up to ``PATIENCE`` times as long. Raises FutureTimeoutError, SparkError."""
        for _ in range(PATIENCE - 1):
            waited_before_s = core_wait_s(self.facts.get("pid"))
            try:
                answer.result(self._silence_s)
                return
            except FutureTimeoutError:
                waited_s = core_wait_s(self.facts.get("pid")) - waited_before_s
                if waited_s < STARVED_SHARE * self._silence_s:
                    raise
        answer.result(self._silence_s)

    def stop(self, seconds: float) -> None:
        """Ask the driver to stop its session within this time, then kill it."""
        try:
            self.ask("stop", {}).result(seconds)
        except (SparkError, FutureTimeoutError):
            pass  # it is killed anyway
        self.kill("the driver was stopped")
        self.ended.wait(STOP_SECONDS)

    @property
    def complaints(self) -> list[str]:
        """The last lines of the log that look like a reason."""
        lines = [line for line in self._last_lines if ("rror" in line or "xception" in line) and "\tat " not in line]
        return list(dict.fromkeys(line.strip()[:300] for line in lines[-2:]))


def core_wait_s(pid: int | None) -> float:
    """Return how long the threads of a process have been ready to run without a core, all together, in seconds."""
    waited_ns = 0
    for task in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        try:
            waited_ns += int(task.read_text().split()[1])
        except OSError:
            pass  # the thread has ended
    return waited_ns / 1e9


def lower_session_priority(pid: int, nice: int) -> None:
    """Lower the priority of the driver's process session.

    A kernel with autogroups shares the processor between sessions first, so ``nice`` counts only within a session, and
    the driver has a session of its own. Without this a JVM at nice 10 got as much of a core as the daemon, and a live
    tuple that woke a worker waited 2 ms for a core.
    """
    if nice <= 0:
        return
    try:
        Path(f"/proc/{pid}/autogroup").write_text(str(nice))
    except OSError as error:
        log.debug("this kernel has no autogroup for the driver's session: %s", error)


class PendingRequest:
    """A request that the driver works on. Owner: the thread that asked."""

    def __init__(
        self, do: str, process: DriverProcess, future: Future[Answer], on_error: Callable[[SparkError], None]
    ) -> None:
        self._do = do
        self._process = process
        self._future = future
        self._on_error = on_error
        self._begun = time.monotonic()

    @property
    def is_done(self) -> bool:
        return self._future.done()

    def when_done(self, callback: Callable[[], None]) -> None:
        """Call this when the answer is there: on another thread, or at once."""
        self._future.add_done_callback(lambda _: callback())

    def result(self, deadline_s: float | None) -> Answer:
        """Wait for the answer. Kill the driver if it comes later than this after the request. Raises SparkError."""
        left_s = None if deadline_s is None else max(0.0, self._begun + deadline_s - time.monotonic())
        try:
            return self._future.result(left_s)
        except FutureTimeoutError:
            why = f"Spark did not answer '{self._do}' within {deadline_s:g} s"
            self._process.kill(why)
            self._process.ended.wait(STOP_SECONDS)
            raise SparkLostError(why) from None
        except SparkError as error:
            self._on_error(error)
            raise
