"""Start the driver on first use, send it requests with deadlines, replace it when it is gone.

Rules
- A request has a deadline, or is a long one (a bulk job may take hours). For long ones there is the heartbeat: every
  few seconds the driver must call into its JVM and answer. A driver that stays silent is killed.
- A driver that is gone fails every open request with SparkLostError, and the next request starts another driver. The
  caller decides whether to ask again: only the caller knows how far its work has come.
- A start that takes too long counts as a loss, and the next start may take twice as long: a busy machine is no reason
  to give up. A start that fails (no Java, no master at the address) is final: the operator has to act.
- An idle host costs no process and no thread.

Any thread may call. Nothing here runs on the I/O thread or holds a lock of the engine.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

from catalog.readings import SparkReading
from router.spark.daemon.driver_process import STOP_SECONDS, DriverProcess, PendingRequest
from router.spark.wire.errors import SparkError, SparkLostError, SparkUnavailableError
from router.spark.wire.heap import heap_bytes

log = logging.getLogger("aurorad.spark")

START_SECONDS = 600.0  # a busy machine takes minutes, and a JVM that ends says so at once
LONGEST_START_SECONDS = 3_600.0
SILENCE_SECONDS = 30.0
LOW_PRIORITY = 10
TOLD_SECONDS = 5.0  # from one line about a start to the next


class SparkHost:
    """The daemon's access to Spark: ``call``, or ``ask`` and wait later."""

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
        self._process: DriverProcess | None = None
        self._stopped = False
        self._starts = 0
        self._lost = 0
        self._start_ns = 0
        self._last_error = ""

    def call(self, do: str, deadline_s: float | None = None, **arguments: Any) -> dict[str, Any]:
        """Send a request and wait for its answer; start a driver first if there is none.

        ``deadline_s`` None: wait as long as the heartbeat goes on. Raises SparkError.
        """
        return self.ask(do, **arguments).result(deadline_s)

    def ask(self, do: str, **arguments: Any) -> PendingRequest:
        """Send a request without waiting for its answer; start a driver first if there is none."""
        process = self._running()
        return PendingRequest(do, process, process.ask(do, arguments), self._keep_error)

    def _keep_error(self, error: SparkError) -> None:
        self._last_error = str(error)

    def start(self) -> dict[str, Any]:
        """Start a driver if there is none. Return facts about its session."""
        return dict(self._running().facts)

    def _running(self) -> DriverProcess:
        with self._starting:
            if self._stopped:
                raise SparkLostError("Spark was stopped")
            process = self._process
            if process is not None and not process.gone:
                return process
            if process is not None:
                process.ended.wait(STOP_SECONDS)
                self._lost += 1
                log.warning("Spark starts again: %s", process.why)
            self._process = None
            self._process = self._start()
            return self._process

    def _start(self) -> DriverProcess:
        begun = time.monotonic()
        process = DriverProcess(self._nice, self._silence_s)
        self._starts += 1
        asked = process.ask(
            "start", {"master": self._master, "config": self._config, "scratch": str(process.scratch.path)}
        )
        try:
            process.facts = self._await_start(asked, begun)
        except (SparkError, FutureTimeoutError) as error:
            process.kill("the start failed")
            process.ended.wait(STOP_SECONDS)
            raise self._start_failure(process, error) from None
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

    def _await_start(self, asked: Future[dict[str, Any]], begun: float) -> dict[str, Any]:
        """Wait for the start, and log from time to time that it goes on. Raises SparkError, FutureTimeoutError."""
        while True:
            waited_s = time.monotonic() - begun
            try:
                return asked.result(min(TOLD_SECONDS, max(0.0, self._start_s - waited_s)))
            except FutureTimeoutError:
                if waited_s >= self._start_s:
                    raise
            log.info("Spark starts: %.0f s so far", time.monotonic() - begun)

    def _start_failure(self, process: DriverProcess, error: Exception) -> SparkError:
        why = str(error) or f"it was not up within {self._start_s:g} s"
        self._last_error = f"no Spark on master {self._master}: {'; '.join([why, *process.complaints])}"
        if isinstance(error, FutureTimeoutError):
            self._start_s = min(2 * self._start_s, LONGEST_START_SECONDS)
        is_lost = isinstance(error, FutureTimeoutError | SparkLostError)
        return (SparkLostError if is_lost else SparkUnavailableError)(self._last_error)

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """End the driver, if one runs. Later requests fail."""
        self._stopped = True
        with self._starting:
            process, self._process = self._process, None
        if process is not None and not process.ended.is_set():
            process.stop(seconds)

    @property
    def heap_bytes(self) -> int:
        """The size of the JVM's heap."""
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
    """Write a setting as Spark does."""
    return str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)
