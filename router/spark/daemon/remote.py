"""Bulk jobs that another process drives: ``aurorad ingest``. Both ends of what it asks a running daemon.

``aurorad ingest`` starts a driver of its own; the executors push to the port of the running daemon. The daemon's end is
four requests beside ``push``: begin, expect, progress, end. The other end is a ``Target`` of ``jobs.py`` that sends
them.
"""

from __future__ import annotations

from typing import Any

from router.spark.daemon.intake import StreamIntake
from router.spark.daemon.ledger import JobMemory
from router.spark.daemon.port import Handler
from router.spark.daemon.request import PortRequest
from router.spark.wire.aurorad_wire import Connection, WireError
from router.spark.wire.errors import SparkRefusedError
from router.spark.wire.peer import Peer

ERROR_CHARACTERS = 100_000  # a driver may report a whole traceback of Java


class RemoteJobs:
    """The daemon's end."""

    def __init__(self, intake: StreamIntake) -> None:
        self._intake = intake
        self.handlers: dict[str, Handler] = {
            "begin": self._begin,
            "expect": self._expect,
            "progress": self._progress,
            "end": self._end,
        }

    def _begin(self, peer: Peer, request: PortRequest) -> None:
        progress = self._intake.begin(
            request.text("job", characters=200),
            request.text("stream"),
            pace=request.text("pace", "as_fast"),
            fingerprint=request.text("fingerprint", ""),
            parts=request.number("parts", 0),
            rows=request.number("rows", 0),
        )
        peer.say(ok=True, done=progress.state == "done", rows=progress.rows)

    def _expect(self, peer: Peer, request: PortRequest) -> None:
        progress = self._intake.jobs.get(request.text("job"))
        progress.expected_parts, progress.expected_rows = request.number("parts"), request.number("rows")
        peer.say(ok=True)

    def _progress(self, peer: Peer, request: PortRequest) -> None:
        reading = self._intake.jobs.get(request.text("job")).reading()._asdict()
        peer.say(ok=True, failure=reading.pop("error"), **reading)

    def _end(self, peer: Peer, request: PortRequest) -> None:
        progress = self._intake.jobs.get(request.text("job"))
        self._intake.end(progress, request.text("error", "", ERROR_CHARACTERS)[:1000])
        peer.say(ok=True, rows=progress.rows)


class RemoteTarget:
    """The other end: a daemon at an address, as the target of a job. Raises SparkRefusedError when it refuses."""

    def __init__(self, address: str, token: str, job: str, stream: str, pace: str, trust: str = "") -> None:
        self.address = address
        self.token = token
        self.trust = trust
        self._job = job
        self._stream = stream
        self._pace = pace
        self.begun = False

    def has_read(self, files: str) -> bool:
        return False  # the daemon's ledger knows jobs by the fingerprint of Spark

    def mark(self) -> str:
        return ""

    def note(self, memory: JobMemory) -> None:
        """Keep nothing: ``increasing`` is a key of a source, not of this command."""

    def quarantine(self, rows: int, file: str) -> None:
        """Count nothing: ``bad_rows`` is a key of a source, not of this command."""

    def begin(self, fingerprint: str, parts: int, rows: int) -> bool:
        answer = self._ask(
            "begin", stream=self._stream, pace=self._pace, fingerprint=fingerprint, parts=parts, rows=rows
        )
        self.begun = True
        return not answer["done"]

    def expect(self, parts: int, rows: int) -> None:
        self._ask("expect", parts=parts, rows=rows)

    def rows(self) -> int:
        return int(self.progress()["rows"]) if self.begun else 0

    def progress(self) -> dict[str, Any]:
        return self._ask("progress")

    def end(self, error: str) -> None:
        if self.begun:
            self._ask("end", error=error)

    def _ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        try:
            with Connection(self.address, self.token, self.trust) as connection:
                return connection.ask(do, job=self._job, **arguments)
        except WireError as error:
            raise SparkRefusedError(str(error).removeprefix("aurorad: ")) from None
        except OSError as error:
            raise SparkRefusedError(f"no aurorad answers at {self.address}: {error}") from error
