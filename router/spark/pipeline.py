"""Everything Spark of one daemon, put together: the port, the bulk sources, the sinks, the driver they share.

The engine hands callables over and asks for readings; nothing here knows it. Made for every network, because any daemon
can be read and written by Spark; what costs something (a driver, a JVM) begins with its first use.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Thread
from typing import Any

from catalog.config.models import SparkSource
from catalog.network import Network, Stream
from catalog.readings import BulkReading, SparkReading
from router.codecs.base import Reject
from router.server import ListenError
from router.spark.errors import SparkError
from router.spark.host import LOW_PRIORITY, SparkHost
from router.spark.intake import StreamIntake
from router.spark.jobs import BulkJob, order_for
from router.spark.loads import Load
from router.spark.port import SparkPort
from storage.train import Train

log = logging.getLogger("aurorad.spark")

STOP_SECONDS = 5.0
PROGRESS_SECONDS = 10.0


@dataclass(frozen=True)
class Engine:
    """What the pipeline needs of the engine. All may be called from any thread."""

    admit: Callable[[int, Train], None]  # a stream's number and a train
    end: Callable[[int], None]  # the source of a stream is at its end
    may_enter: Callable[[], bool]  # queues are short enough for bulk rows
    letters: Callable[[str, str, Sequence[Reject]], None]
    now_ns: Callable[[], int]


class SparkPipeline:
    def __init__(self, network: Network, engine: Engine, *, host: SparkHost | None = None) -> None:
        config = network.config.spark
        self._network = network
        self._engine = engine
        self._config = config
        self._own_host = host is None
        nice = LOW_PRIORITY if config.priority == "low" else 0
        self.host = host if host is not None else SparkHost(config.master, config.config, nice=nice)
        self.intake = StreamIntake(network, engine.admit, engine.may_enter, engine.letters, engine.now_ns)
        self.port = SparkPort({"push": self.intake.push}, token=config.token or "")
        self._jobs: list[_SourceJob] = []

    def open(self) -> None:
        """The port. Raises ListenError."""
        at = self._config.listen
        if at is None:
            return
        try:
            self.port.open(at.host, at.port)
        except OSError as error:
            raise ListenError(f"spark: cannot listen on {at}: {error.strerror or error}") from error

    def start(self) -> None:
        """The sources, each in a thread of its own."""
        for stream in self._network.streams:
            if isinstance(stream.source, SparkSource):
                job = _SourceJob(self, stream, stream.source)
                self._jobs.append(job)
                job.thread.start()

    def stop_reading(self) -> None:
        """No bulk row enters any more."""
        for job in self._jobs:
            job.stop()
        self.intake.loads.stop()

    def close(self) -> None:
        self.stop_reading()
        self.port.close()
        if self._own_host:
            self.host.stop(STOP_SECONDS)
        for job in self._jobs:
            job.thread.join(STOP_SECONDS)

    @property
    def is_reading(self) -> bool:
        """A source of the network file is not at its end yet."""
        return any(job.thread.is_alive() for job in self._jobs)

    @property
    def failures(self) -> list[str]:
        """Why sources failed."""
        return [f"stream {job.stream.name}: {job.error}" for job in self._jobs if job.error]

    def begin_source(self, job: str, stream: str, pace: str, fingerprint: str, parts: int, rows: int) -> Load:
        return self.intake.begin(job, stream, pace=pace, fingerprint=fingerprint, parts=parts, rows=rows)

    def end_stream(self, stream: int) -> None:
        self._engine.end(stream)

    # -- looking in ---------------------------------------------------------------------------------------------------

    def spark_reading(self) -> SparkReading:
        return self.host.reading()._replace(port=self.port.address)

    def bulk_readings(self) -> list[BulkReading]:
        known = self.intake.loads.readings()
        begun = {reading.stream for reading in known}
        waiting = [job.reading() for job in self._jobs if job.stream.name not in begun]
        return [*known, *waiting]


class _SourceJob:
    """A Spark source of the network file. It is its own target: the port is in this process."""

    def __init__(self, pipeline: SparkPipeline, stream: Stream, source: SparkSource) -> None:
        self.stream = stream
        self.error = ""
        self.token = pipeline._config.token or ""
        self._pipeline = pipeline
        self._pace = source.pace
        self._load: Load | None = None
        self._stopped = False
        asked = source.order_by if "order_by" in source.model_fields_set else None
        order = order_for(pipeline._network, stream, asked, source.pace)
        self._job = BulkJob(
            pipeline.host,
            f"source-{stream.name}",
            _as_request(source, order),
            stream.schema,
            self,
            staging=pipeline._config.staging,
        )
        self.thread = Thread(target=self._run, name=f"aurorad-bulk-{stream.name}", daemon=True)

    @property
    def address(self) -> str:
        return self._pipeline.port.address

    def begin(self, fingerprint: str, parts: int, rows: int) -> None:
        job = self._job.name
        self._load = self._pipeline.begin_source(job, self.stream.name, self._pace, fingerprint, parts, rows)
        log.info("stream %s: Spark reads %s rows in %d parts", self.stream.name, f"{rows:,}" if rows else "its", parts)

    def rows(self) -> int:
        return self._load.rows if self._load is not None else 0

    def end(self, error: str) -> None:
        if self._load is not None:
            self._load.end(error)

    def _run(self) -> None:
        try:
            rows = self._job.run()
        except SparkError as error:
            self.error = str(error)
            if not self._stopped:
                log.error("stream %s: Spark stopped after %d rows: %s", self.stream.name, self.rows(), error)
            return
        self._pipeline.end_stream(self.stream.number)
        log.info("stream %s: all %d rows have come", self.stream.name, rows)

    def stop(self) -> None:
        if self.thread.is_alive() and not self._stopped:
            self._stopped = True
            self._job.stop()

    def reading(self) -> BulkReading:
        return BulkReading(self.stream.name, self._job.name, "failed" if self.error else "waiting", error=self.error)


def _as_request(source: SparkSource, order: list[str]) -> dict[str, Any]:
    return {
        "spark": source.spark,
        "path": source.path,
        "options": dict(source.options),
        "sql": source.sql,
        "order_by": order,
    }
