"""The daemon's end of the driver: start it on first use, ask it with a deadline, notice when it is gone, start another.

Rules
- Every question has a deadline, or is a long one (a bulk job, which may take hours). For those the heartbeat speaks:
  every few seconds the driver is asked to reach into its JVM and back, and one that stays silent is ended.
- Ending is SIGKILL to the driver's process group: a frozen JVM hears nothing gentler. What it left on disk is removed.
- A driver that is gone fails every open question with SparkLostError; the next question starts another one. Whether
  to ask again is the caller's to decide: only it knows its cursor.
- A start that takes too long is a loss like any other, and the next one is given twice the time: a machine that is busy
  is no reason to give up. A start that fails (no Java, nobody at the master's address) is: someone has to do something.
- An idle host costs nothing: no process, no thread.

Any thread may call; nothing here runs on the I/O thread or holds a lock of the engine.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from pathlib import Path
from typing import IO, Any

from catalog.readings import SparkReading
from router.spark.errors import KINDS, SparkError, SparkFailedError, SparkLostError, SparkUnavailableError
from router.spark.launch import heap_bytes

log = logging.getLogger("aurorad.spark")

START_SECONDS = 120.0
LONGEST_START_SECONDS = 600.0
SILENCE_SECONDS = 30.0
PING_SECONDS = 5.0
LAST_WORDS_SECONDS = 1.0
STOP_SECONDS = 5.0
LOW_PRIORITY = 10
TOLD_LINES = 40
_ROOT = Path(__file__).resolve().parents[2]
_PROGRAM = f"import sys; sys.path.insert(0, {str(_ROOT)!r}); from router.spark.driver import main; main()"


class _Process:
    """One driver, from its start to its end."""

    def __init__(self, nice: int, silence_s: float) -> None:
        self.scratch = Path(tempfile.mkdtemp(prefix="aurorad-spark-"))
        self.facts: dict[str, Any] = {}  # what "start" answered
        self.ended = threading.Event()  # and cleaned up behind
        self.gone = False  # asking it makes no sense any more
        self.why = "the driver ended"
        self._silence_s = silence_s
        self._next = 0
        self._open: dict[int, Future[dict[str, Any]]] = {}
        self._lock = threading.Lock()
        self._last_lines: deque[str] = deque(maxlen=TOLD_LINES)
        # It ends with the pipe to it, however we end. (Refused: the kernel's death signal, which comes when the
        # *thread* that started a child ends.)
        self._process = subprocess.Popen(  # noqa: S603  ourselves
            [sys.executable, "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=lambda: os.nice(nice),
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        yield_session(self._process.pid, nice)
        assert self._process.stdin and self._process.stdout and self._process.stderr
        self._stdin: IO[bytes] = self._process.stdin
        answers, words = self._process.stdout, self._process.stderr
        self._listener = threading.Thread(target=self._read_log, args=(words,), name="spark-driver", daemon=True)
        self._listener.start()
        threading.Thread(target=self._read_answers, args=(answers,), name="spark-driver", daemon=True).start()

    def ask(self, do: str, arguments: Mapping[str, Any]) -> Future[dict[str, Any]]:
        future: Future[dict[str, Any]] = Future()
        with self._lock:
            if self.gone:
                future.set_exception(SparkLostError(self.why))
                return future
            self._next += 1
            number = self._next
            self._open[number] = future
        line = json.dumps({**arguments, "id": number, "do": do}).encode() + b"\n"
        try:
            with self._lock:
                self._stdin.write(line)
                self._stdin.flush()
        except (OSError, ValueError):
            self.kill("the driver is gone")
        return future

    def _read_answers(self, stream: IO[bytes]) -> None:
        for line in stream:
            answer = json.loads(line)
            with self._lock:
                future = self._open.pop(answer["id"], None)
            if future is None:
                continue
            if "error" in answer:
                future.set_exception(KINDS.get(answer["kind"], SparkFailedError)(answer["error"]))
            else:
                future.set_result(answer["ok"])
        self._end()

    def _read_log(self, stream: IO[bytes]) -> None:
        for line in stream:
            text = line.decode(errors="replace").rstrip()
            self._last_lines.append(text)
            log.debug("driver: %s", text)

    def _end(self) -> None:
        """On the thread that reads the answers: nothing more will come."""
        self.kill(self.why)
        code = self._process.wait()
        self._listener.join(LAST_WORDS_SECONDS)  # they say why, and come by another pipe
        died = next((line for line in reversed(self._last_lines) if line.startswith("the JVM ended")), "")
        if self.why == "the driver ended":
            self.why = died or f"the driver ended with code {code}"
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
                    pass  # what was still to be written has no reader
        shutil.rmtree(self.scratch, ignore_errors=True)
        self.ended.set()

    def kill(self, why: str) -> None:
        """The whole group: driver and JVM. The workers of Python end with the JVM's pipes."""
        self.why = why
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass  # gone already

    def watch(self) -> None:
        """The heartbeat, on a thread of its own."""
        while not self.ended.wait(PING_SECONDS):
            try:
                self.ask("ping", {}).result(self._silence_s)
            except FutureTimeoutError:
                log.error("Spark has not answered for %.0f s and is ended", self._silence_s)
                self.kill(f"the JVM did not answer for {self._silence_s:g} s")
            except SparkError:
                return

    def stop(self, seconds: float) -> None:
        """In order where it can be, within so many seconds."""
        try:
            self.ask("stop", {}).result(seconds)
        except (SparkError, FutureTimeoutError):
            pass  # it is ended all the same
        self.kill("the driver was stopped")
        self.ended.wait(STOP_SECONDS)

    @property
    def complaints(self) -> list[str]:
        """What it said last that sounds like a reason."""
        lines = [line for line in self._last_lines if ("rror" in line or "xception" in line) and "\tat " not in line]
        return list(dict.fromkeys(line.strip()[:300] for line in lines[-2:]))


def yield_session(pid: int, nice: int) -> None:
    """A kernel that shares the processor between sessions first (autogroup) lets ``nice`` count within a session only,
    and the driver has one of its own: without this a JVM at nice 10 took as much of a core as the daemon, and a live
    tuple that woke a worker waited 2 ms for one."""
    if nice <= 0:
        return
    try:
        Path(f"/proc/{pid}/autogroup").write_text(str(nice))
    except OSError as error:
        log.debug("no autogroup to yield with: %s", error)


class Asked:
    """A question that the driver works on. Owner: whoever asked."""

    def __init__(
        self, do: str, process: _Process, future: Future[dict[str, Any]], on_error: Callable[[SparkError], None]
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
        """On another thread, or at once."""
        self._future.add_done_callback(lambda _: callback())

    def result(self, deadline_s: float | None) -> dict[str, Any]:
        """The answer. A driver that has not given it so long after it was asked is ended. Raises SparkError."""
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


class SparkHost:
    """``call`` is the whole of it."""

    def __init__(
        self,
        master: str = "local[*]",
        config: Mapping[str, Any] | None = None,
        *,
        nice: int = LOW_PRIORITY,
        start_s: float = START_SECONDS,
        silence_s: float = SILENCE_SECONDS,
    ) -> None:
        self._master = master
        self._config = {key: _text(value) for key, value in (config or {}).items()}
        self._nice = nice
        self._start_s = start_s
        self._silence_s = silence_s
        self._starting = threading.Lock()
        self._process: _Process | None = None
        self._stopped = False
        self._starts = 0
        self._lost = 0
        self._start_ns = 0
        self._last_error = ""

    def call(self, do: str, deadline_s: float | None = None, **arguments: Any) -> dict[str, Any]:
        """Ask the driver, starting it first where there is none. ``deadline_s`` None: as long as its heart beats."""
        return self.ask(do, **arguments).result(deadline_s)

    def ask(self, do: str, **arguments: Any) -> Asked:
        """As ``call``, for someone who has something else to do until the answer comes."""
        process = self._running()
        return Asked(do, process, process.ask(do, arguments), self._note)

    def _note(self, error: SparkError) -> None:
        self._last_error = str(error)

    def start(self) -> dict[str, Any]:
        """Facts about the session, started now if need be."""
        return dict(self._running().facts)

    def _running(self) -> _Process:
        with self._starting:
            if self._stopped:
                raise SparkLostError("Spark was stopped")
            process = self._process
            if process is not None and not process.gone:
                return process
            if process is not None:
                process.ended.wait(STOP_SECONDS)
                self._lost += 1
                log.warning("Spark is started again: %s", process.why)
            self._process = None
            self._process = self._start()
            return self._process

    def _start(self) -> _Process:
        begun = time.monotonic()
        process = _Process(self._nice, self._silence_s)
        self._starts += 1
        asked = process.ask("start", {"master": self._master, "config": self._config, "scratch": str(process.scratch)})
        try:
            process.facts = asked.result(self._start_s)
        except (SparkError, FutureTimeoutError) as error:
            process.kill("the start failed")
            process.ended.wait(STOP_SECONDS)
            raise self._no_start(process, error) from None
        self._start_ns = int((time.monotonic() - begun) * 1e9)
        facts = process.facts
        log.info(
            "Spark %s is up after %.1f s: %s, Java %d",
            facts["spark"],
            self._start_ns / 1e9,
            facts["master"],
            facts["java"],
        )
        threading.Thread(target=process.watch, name="spark-watch", daemon=True).start()
        return process

    def _no_start(self, process: _Process, error: Exception) -> SparkError:
        why = str(error) or f"it was not up within {self._start_s:g} s"
        self._last_error = f"no Spark on master {self._master}: {'; '.join([why, *process.complaints])}"
        if isinstance(error, FutureTimeoutError):
            self._start_s = min(2 * self._start_s, LONGEST_START_SECONDS)
        is_lost = isinstance(error, FutureTimeoutError | SparkLostError)
        return (SparkLostError if is_lost else SparkUnavailableError)(self._last_error)

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """Ends what runs; later calls fail."""
        self._stopped = True
        with self._starting:
            process, self._process = self._process, None
        if process is not None and not process.ended.is_set():
            process.stop(seconds)

    @property
    def heap_bytes(self) -> int:
        """That the JVM may fill."""
        return heap_bytes(self._config)

    @property
    def is_up(self) -> bool:
        process = self._process
        return process is not None and not process.ended.is_set()

    @property
    def jvm_pid(self) -> int | None:
        process = self._process
        return process.facts.get("pid") if process is not None and not process.ended.is_set() else None

    def reading(self) -> SparkReading:
        process = self._process
        up = process is not None and not process.ended.is_set()
        return SparkReading(
            up=up,
            starts=self._starts,
            lost=self._lost + (process is not None and not up),
            start_ns=self._start_ns,
            java=int(process.facts.get("java", 0)) if process is not None else 0,
            pid=int(process.facts.get("pid", 0)) if process is not None and up else 0,
            error=self._last_error,
        )


def _text(value: Any) -> str:
    """As Spark writes its settings."""
    return str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)
