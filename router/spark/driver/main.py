"""The driver process: reads requests from standard input, drives the JVM, writes answers to standard output.

``wire/pipe.py`` describes the lines. Requests run side by side, one thread each. Two events end the driver while
requests are open: standard input closes (the daemon is gone), or the JVM ends (nothing is left to drive). In the second
case the driver sends its last word, and the daemon sees the pipe close.

Standard output carries answers only. So file descriptor 1 becomes a copy of standard error before anything can print.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote

from router.spark.driver.launch import Launched, first_line, launch
from router.spark.wire.errors import SparkError, SparkFailedError, SparkLostError, SparkRefusedError
from router.spark.wire.pipe import LAST_WORD, Answer, Request, answer_line, read_request

REQUESTS_AT_ONCE = 64
EXIT_JVM_DIED = 3
EXIT_OUT_OF_MEMORY = 3  # of the JVM, with ExitOnOutOfMemoryError
KILLED_SECONDS = 0.05  # until the kernel reports that a JVM was killed
SHIPPED = ("wire/aurorad_wire.py", "executor/aurorad_push.py")
"""Files that the Python workers of the executors import, under their bare names."""
WORK = (
    "infer",
    "inspect",
    "stage",
    "staged",
    "unstage",
    "push",
    "cancel",
    "commit",
    "prepare",
    "compact",
    "to_arrow",
    "plain_write",
)
"""Requests that need a session: functions of ``work.py``."""


class Driver:
    def __init__(self, replies: BinaryIO) -> None:
        self._replies = replies
        self._lock = threading.Lock()  # one answer at a time
        self._launched: Launched | None = None
        self._scratch: Path | None = None
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
        """Answer requests until the input ends. The daemon is gone then: nobody else removes the scratch folder."""
        for line in requests:
            self._pool.submit(self._answer, read_request(line))
        self._kill_jvm()
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
        self.end(0)

    def _answer(self, request: Request) -> None:
        try:
            answer: Answer | SparkError = self._handlers[request["do"]](request)
        except Exception as error:  # noqa: BLE001  every error becomes the answer
            sys.stderr.write(f"{request['do']} failed: {str(error)[:20_000]}\n")
            answer = explain(error) if self._is_alive else SparkLostError("the JVM is gone")
        self._reply(request["id"], answer)

    def _reply(self, number: int, answer: Answer | SparkError) -> None:
        with self._lock:
            self._replies.write(answer_line(number, answer))
            self._replies.flush()

    @property
    def _is_alive(self) -> bool:
        """Tell whether the error can be the JVM's own, or only says that the JVM has just been killed."""
        if self._launched is None:
            return True
        try:
            self._launched.jvm.wait(KILLED_SECONDS)
        except subprocess.TimeoutExpired:
            return True
        return False

    # -- requests without a session -----------------------------------------------------------------------------------

    def _start(self, request: Request) -> Answer:
        self._scratch = Path(request["scratch"])
        launched = self._launched = launch(request["master"], request["config"], self._scratch)
        threading.Thread(target=self._watch, args=(launched,), name="watch", daemon=True).start()
        context = launched.session.sparkContext
        for file in SHIPPED:
            context.addPyFile(str(Path(__file__).parents[1] / file))
        return {
            "spark": launched.session.version,
            "java": launched.java.version,
            "java_path": str(launched.java.path),
            "master": context.master,
            "application": context.applicationId,
            "pid": launched.jvm.pid,
        }

    def _ping(self, _: Request) -> Answer:
        """Call into the JVM: a hung one does not answer, and no error can come from one that runs."""
        if self._launched is not None:
            try:
                self.session.sparkContext._jvm.System.nanoTime()
            except Exception as error:
                raise SparkLostError("the JVM does not answer") from error
        return {}

    def _stop(self, _: Request) -> Answer:
        self._ending = True
        if self._launched is not None:
            self.session.stop()
        return {}

    def _with_session(self, name: str) -> Callable[[Request], Answer]:
        def handle(request: Request) -> Answer:
            import importlib

            module = importlib.import_module("router.spark.driver.work")  # late: of no use before there is a session
            answer: Answer = getattr(module, name)(self.session, request)
            return answer

        return handle

    # -- the end ------------------------------------------------------------------------------------------------------

    def _watch(self, launched: Launched) -> None:
        """Wait for the end of the JVM, on a thread of its own, and end the driver with it."""
        code = launched.jvm.wait()
        if not self._ending:
            heap = launched.heap
            memory = f": its heap of {heap} is full (spark: {{config: {{spark.driver.memory: ...}}}} makes it larger)"
            why = f"the JVM ended with code {code}{memory if code == EXIT_OUT_OF_MEMORY else ''}"
            self._reply(LAST_WORD, SparkLostError(why))
            self.end(EXIT_JVM_DIED)

    def end(self, code: int) -> None:
        """Exit at once. An orderly exit would wait for ever for threads that wait for the JVM."""
        self._kill_jvm()
        sys.stderr.flush()
        os._exit(code)

    def _kill_jvm(self) -> None:
        self._ending = True
        if self._launched is not None:
            self._launched.jvm.kill()
            self._launched.jvm.wait()


def explain(error: Exception) -> SparkError:
    """Convert any error to a SparkError with a message that needs no knowledge of Java."""
    if isinstance(error, SparkError):
        return error
    if isinstance(error, ConnectionError | EOFError) or type(error).__name__ == "Py4JNetworkError":
        return SparkLostError("the JVM does not answer")
    from pyspark.errors import AnalysisException, ParseException

    if isinstance(error, AnalysisException | ParseException):
        return SparkRefusedError(first_line(error))
    return SparkFailedError(_cause(error))


def _cause(error: Exception) -> str:
    """Return the innermost cause that the error names. Spark wraps it three times and begins with "Job aborted"."""
    lines = [line.strip() for line in str(error).splitlines()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    ours = [line.split("aurorad: ", 1)[1] for line in lines if "aurorad: " in line]
    if ours:
        return ours[0][:500]
    places = re.findall(r"while reading file (\S+?)[.,]?(?:\s|$)", str(error))
    found = [*[f"while reading {unquote(place)}" for place in places[:1]], *causes[-1:]]
    return ": ".join(found)[:800] if found else first_line(error)


def main() -> None:
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    driver = Driver(replies)
    driver.serve(sys.stdin.buffer)


if __name__ == "__main__":
    main()
