"""A Spark source of the network file: a bulk job that this daemon drives, on a thread of its own.

It is the ``Target`` of its own job, because the port and the intake are in this process.
"""

from __future__ import annotations

import logging
from threading import Thread
from typing import Any, Protocol

from catalog.config.models import SparkSource
from catalog.network import Network, Stream
from catalog.readings import BulkReading
from router.access.spark_door import SparkDoor
from router.spark.daemon.host import SparkHost
from router.spark.daemon.intake import StreamIntake
from router.spark.daemon.jobs import BulkJob, batch_limit, order_for
from router.spark.daemon.ledger import JobMemory
from router.spark.daemon.port import SparkPort
from router.spark.daemon.progress import JobProgress
from router.spark.wire.errors import SparkError

log = logging.getLogger("aurorad.spark")

AGAIN = (
    "stream %s: the input has changed since it was read, so all of it is read again: rows that were read before come a "
    "second time, late for windows that have closed; `watch` takes new files only"
)


class SourceWatcher(Protocol):
    """Is called on the source's own thread."""

    def source_is_read(self, stream: int) -> None:
        """All rows of this stream's source have entered, now or before a restart."""

    def source_has_ended(self) -> None:
        """A source has come to its end or has failed. This is the last call of its thread."""


class SourceTarget:
    """The target of the jobs of one stream: the port and the intake of this process. Owner: the source's thread."""

    def __init__(
        self, stream: Stream, name: str, pace: str, port: SparkPort, intake: StreamIntake, door: SparkDoor, *,
        in_rounds: bool = False,
    ) -> None:  # fmt: skip
        self._stream = stream
        self._name = name
        self._pace = pace
        self._port = port
        self._intake = intake
        self._in_rounds = in_rounds  # each job brings other files than the one before
        self._tls = door.tls
        self.token = door.token
        self._progress: JobProgress | None = None
        self._memory = JobMemory()  # what to remember when the job is done

    @property
    def address(self) -> str:
        return self._port.address if self._tls is None else f"tls://{self._port.address}"

    @property
    def trust(self) -> str:
        return "" if self._tls is None else f"pin:{self._tls.trusted_by()}"

    def has_read(self, files: str) -> bool:
        found = self._intake.has_read(self._name, files)
        if found:
            log.info("stream %s: Spark has read this input before, and does not start for it", self._stream.name)
        return found

    def mark(self) -> str:
        return self._intake.mark(self._name)

    def note(self, memory: JobMemory) -> None:
        self._memory = memory

    def quarantine(self, rows: int, file: str) -> None:
        self._intake.quarantine(self._stream, rows, file)

    def begin(self, fingerprint: str, parts: int, rows: int) -> bool:
        had_other = self._intake.has_read_other(self._name, fingerprint)
        if self._in_rounds:
            self._intake.jobs.forget(self._name)
        self._progress = self._intake.begin(
            self._name, self._stream.name, pace=self._pace, fingerprint=fingerprint, parts=parts, rows=rows
        )
        if self._progress.state == "done":
            log.info("stream %s: Spark has read this input before", self._stream.name)
            return False
        if had_other and not self._in_rounds:
            log.warning(AGAIN, self._stream.name)
        log.info("stream %s: Spark reads%s", self._stream.name, f" {rows:,} rows" if rows else "")
        return True

    def expect(self, parts: int, rows: int) -> None:
        assert self._progress is not None
        self._progress.expected_parts, self._progress.expected_rows = parts, rows

    def rows(self) -> int:
        return self._progress.rows if self._progress is not None else 0

    def reading(self) -> BulkReading:
        return BulkReading(self._stream.name, self._name) if self._progress is None else self._progress.reading()

    def end(self, error: str) -> None:
        if self._progress is not None:
            self._intake.end(self._progress, error, self._memory)


class SourceJob:
    """``thread`` runs the job; ``stop`` may be called from any thread."""

    def __init__(
        self,
        network: Network,
        stream: Stream,
        source: SparkSource,
        host: SparkHost,
        port: SparkPort,
        intake: StreamIntake,
        watcher: SourceWatcher,
        *,
        door: SparkDoor,
        staging: str | None,
    ) -> None:
        self.stream = stream
        self.error = ""
        self.is_ended = False
        self._watcher = watcher
        self._stopped = False
        name = f"source-{stream.name}"
        self._target = SourceTarget(stream, name, source.pace, port, intake, door)
        self._job = BulkJob(
            host, name, as_request(network, stream, source), stream.schema, self._target,
            staging=staging, batch_limit=batch_limit(network),
        )  # fmt: skip
        self.thread = Thread(target=self._run, name=f"aurorad-bulk-{stream.name}", daemon=True)

    def _run(self) -> None:
        try:
            rows = self._job.run()
        except SparkError as error:
            self.error = str(error)
            if not self._stopped:
                log.error("stream %s: Spark stopped after %d rows: %s", self.stream.name, self._target.rows(), error)
        else:
            self._watcher.source_is_read(self.stream.number)
            if not self._job.was_done:
                log.info("stream %s: all %d rows have come", self.stream.name, rows)
        self.is_ended = True
        self._watcher.source_has_ended()

    def stop(self) -> None:
        if self.thread.is_alive() and not self._stopped:
            self._stopped = True
            self._job.stop()

    def reading(self) -> BulkReading:
        """Return the reading of a job that has not begun: Spark is starting, or has failed."""
        return BulkReading(self.stream.name, self._job.name, "failed" if self.error else "waiting", error=self.error)


def as_request(network: Network, stream: Stream, source: SparkSource) -> dict[str, Any]:
    """Return a source of the network file as the driver takes it."""
    asked = source.order_by if "order_by" in source.model_fields_set else None
    request = {
        "spark": source.spark,
        "path": source.path,
        "options": dict(source.options),
        "sql": source.sql,
        "order_by": order_for(network, stream, asked, source.pace),
        "increasing": source.increasing,
    }
    return {**request, "bad_rows": source.bad_rows} if source.bad_rows is not None else request
