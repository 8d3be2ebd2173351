"""The driver: the process beside the daemon that owns the JVM. JSON lines in on standard input, answers out.

A request is ``{"id": 7, "do": "plan", ...}``; its answer ``{"id": 7, "ok": {...}}`` or ``{"id": 7, "error": message,
"kind": kind}`` with a kind of ``errors.py``. Requests run side by side, each on a thread. Two things end the driver
without a word: its input ending (the daemon is gone), and the JVM ending (there is nothing left to drive); whoever
waits for an answer hears the pipe close.

Standard output is for answers alone, so file descriptor 1 is given to standard error before anything else can print.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote

from router.spark.errors import SparkError, SparkFailedError, SparkLostError, SparkRefusedError
from router.spark.launch import Launched, first_line, launch

REQUESTS_AT_ONCE = 64
EXIT_JVM_DIED = 3
EXIT_OUT_OF_MEMORY = 3  # of the JVM, with ExitOnOutOfMemoryError
WORK = ("plan", "stage", "unstage", "push", "cancel", "commit", "prepare", "compact", "to_arrow", "plain_write")

Request = dict[str, Any]
Answer = dict[str, Any]


class Driver:
    def __init__(self, replies: BinaryIO) -> None:
        self._replies = replies
        self._lock = threading.Lock()  # one answer at a time
        self._launched: Launched | None = None
        self._ending = False
        self._pool = ThreadPoolExecutor(REQUESTS_AT_ONCE, "request")
        self._handlers: dict[str, Callable[[Request], Answer]] = {
            "start": self._start,
            "ping": self._ping,
            "stop": self._stop,
            **{name: self._with_session(name) for name in WORK},
        }

    @property
    def session(self) -> Any:
        if self._launched is None:
            raise SparkLostError("the session is not up")
        return self._launched.session

    def serve(self, requests: BinaryIO) -> None:
        """Until the input ends."""
        for line in requests:
            request = json.loads(line)
            self._pool.submit(self._answer, request)
        self.end(0)

    def _answer(self, request: Request) -> None:
        try:
            answer: Answer = {"id": request["id"], "ok": self._handlers[request["do"]](request)}
        except Exception as error:  # noqa: BLE001  whatever it is, whoever asked hears of it
            sys.stderr.write(f"{request['do']} failed: {str(error)[:20_000]}\n")
            found = explain(error) if self._is_alive else SparkLostError("the JVM is gone")
            answer = {"id": request["id"], "error": str(found), "kind": found.kind}
        with self._lock:
            self._replies.write(json.dumps(answer).encode() + b"\n")
            self._replies.flush()

    @property
    def _is_alive(self) -> bool:
        """Whether there is a JVM that the error can be about. One that was just killed is given a moment to be seen."""
        if self._launched is None:
            return True
        try:
            self._launched.jvm.wait(0.05)
        except subprocess.TimeoutExpired:
            return True
        return False

    # -- what can be asked --------------------------------------------------------------------------------------------

    def _start(self, request: Request) -> Answer:
        launched = self._launched = launch(request["master"], request["config"], Path(request["scratch"]))
        threading.Thread(target=self._watch, args=(launched,), name="watch", daemon=True).start()
        context = launched.session.sparkContext
        context.addPyFile(str(Path(__file__).with_name("aurorad_wire.py")))
        return {
            "spark": launched.session.version,
            "java": launched.java.version,
            "java_path": str(launched.java.path),
            "master": context.master,
            "application": context.applicationId,
            "pid": launched.jvm.pid,
        }

    def _ping(self, _: Request) -> Answer:
        """Through to the JVM and back: a frozen one does not answer."""
        if self._launched is not None:
            self.session.sparkContext._jvm.System.nanoTime()
        return {}

    def _stop(self, _: Request) -> Answer:
        self._ending = True
        if self._launched is not None:
            self.session.stop()
        return {}

    def _with_session(self, name: str) -> Callable[[Request], Answer]:
        def handle(request: Request) -> Answer:
            import importlib

            module = importlib.import_module("router.spark.work")  # late: it is of no use before there is a session
            answer: Answer = getattr(module, name)(self.session, request)
            return answer

        return handle

    # -- the end ------------------------------------------------------------------------------------------------------

    def _watch(self, launched: Launched) -> None:
        code = launched.jvm.wait()
        if not self._ending:
            heap = launched.heap
            memory = f": it ran out of its {heap} (spark: {{config: {{spark.driver.memory: ...}}}} gives it more)"
            sys.stderr.write(f"the JVM ended with code {code}{memory if code == EXIT_OUT_OF_MEMORY else ''}\n")
            self.end(EXIT_JVM_DIED)

    def end(self, code: int) -> None:
        """At once. Threads that wait for a JVM would hold an orderly exit up for ever."""
        self._ending = True
        if self._launched is not None:
            self._launched.jvm.kill()
            self._launched.jvm.wait()
        sys.stderr.flush()
        os._exit(code)


def explain(error: Exception) -> SparkError:
    """Any error as one of ours, in words that someone who does not know Java can use."""
    if isinstance(error, SparkError):
        return error
    if isinstance(error, ConnectionError | EOFError) or type(error).__name__ == "Py4JNetworkError":
        return SparkLostError("the JVM does not answer")
    from pyspark.errors import AnalysisException, ParseException

    if isinstance(error, AnalysisException | ParseException):
        return SparkRefusedError(first_line(error))
    return SparkFailedError(_cause(error))


def _cause(error: Exception) -> str:
    """The innermost cause that the error names; Spark wraps it three times and says "Job aborted" first."""
    lines = [line.strip() for line in str(error).splitlines()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    ours = [line.split("aurorad: ", 1)[1] for line in lines if "aurorad: " in line]
    if ours:
        return ours[0][:500]
    places = re.findall(r"while reading file (\S+?)[.,]?(?:\s|$)", str(error))
    told = [*[f"while reading {unquote(place)}" for place in places[:1]], *causes[-1:]]
    return ": ".join(told)[:800] if told else first_line(error)


def main() -> None:
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    driver = Driver(replies)
    driver.serve(sys.stdin.buffer)


if __name__ == "__main__":
    main()
