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


class SourceWatcher(Protocol):
    """Is called on the source's own thread."""

    def source_is_read(self, stream: int) -> None:
        """All rows of this stream's source have entered, now or before a restart."""

    def source_has_ended(self) -> None:
        """A source has come to its end or has failed. This is the last call of its thread."""


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
        self.token = door.token
        self._tls = door.tls
        self.error = ""
        self.is_ended = False
        self._port = port
        self._intake = intake
        self._watcher = watcher
        self._pace = source.pace
        self._progress: JobProgress | None = None
        self._memory = JobMemory()  # what to remember when the job is done
        self._stopped = False
        asked = source.order_by if "order_by" in source.model_fields_set else None
        order = order_for(network, stream, asked, source.pace)
        self._job = BulkJob(
            host,
            f"source-{stream.name}",
            _as_request(source, order),
            stream.schema,
            self,
            staging=staging,
            batch_limit=batch_limit(network),
        )
        self.thread = Thread(target=self._run, name=f"aurorad-bulk-{stream.name}", daemon=True)

    def _run(self) -> None:
        try:
            rows = self._job.run()
        except SparkError as error:
            self.error = str(error)
            if not self._stopped:
                log.error("stream %s: Spark stopped after %d rows: %s", self.stream.name, self.rows(), error)
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

    # -- the target of the job ----------------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        return self._port.address if self._tls is None else f"tls://{self._port.address}"

    @property
    def trust(self) -> str:
        return "" if self._tls is None else f"pin:{self._tls.trusted_by()}"

    def has_read(self, files: str) -> bool:
        found = self._intake.has_read(self._job.name, files)
        if found:
            log.info("stream %s: Spark has read this input before, and does not start for it", self.stream.name)
        return found

    def mark(self) -> str:
        return self._intake.mark(self._job.name)

    def note(self, memory: JobMemory) -> None:
        self._memory = memory

    def begin(self, fingerprint: str, parts: int, rows: int) -> bool:
        self._progress = self._intake.begin(
            self._job.name, self.stream.name, pace=self._pace, fingerprint=fingerprint, parts=parts, rows=rows
        )
        if self._progress.state == "done":
            log.info("stream %s: Spark has read this input before", self.stream.name)
            return False
        log.info("stream %s: Spark reads%s", self.stream.name, f" {rows:,} rows" if rows else "")
        return True

    def expect(self, parts: int, rows: int) -> None:
        assert self._progress is not None
        self._progress.expected_parts, self._progress.expected_rows = parts, rows

    def rows(self) -> int:
        return self._progress.rows if self._progress is not None else 0

    def end(self, error: str) -> None:
        if self._progress is not None:
            self._intake.end(self._progress, error, self._memory)


def _as_request(source: SparkSource, order: list[str]) -> dict[str, Any]:
    return {
        "spark": source.spark,
        "path": source.path,
        "options": dict(source.options),
        "sql": source.sql,
        "order_by": order,
        "increasing": source.increasing,
    }
