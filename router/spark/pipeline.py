"""Everything Spark of one daemon, put together: the port, the bulk sources, the sinks, the driver they share.

The engine hands callables over and asks for readings; nothing here knows it. Made for every network, because any daemon
can be read and written by Spark; what costs something (a driver, a JVM) begins with its first use.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Any

from catalog.config.models import SparkSink, SparkSource
from catalog.network import Network, Output, Stream
from catalog.readings import BulkReading, SinkReading, SparkReading
from router.codecs.base import Reject
from router.server import ListenError
from router.spark.errors import SparkError
from router.spark.exchange import Exchange
from router.spark.feeds import History
from router.spark.host import LOW_PRIORITY, SparkHost
from router.spark.intake import StreamIntake
from router.spark.jobs import BulkJob, batch_limit, order_for
from router.spark.ledger import Ledger
from router.spark.loads import Load, Numbered
from router.spark.outlets import SinkOutlet
from router.spark.port import SparkPort
from router.spark.remote import RemoteJobs
from storage.train import Train

log = logging.getLogger("aurorad.spark")

STOP_SECONDS = 5.0
PROGRESS_SECONDS = 10.0


@dataclass(frozen=True)
class Engine:
    """What the pipeline needs of the engine. All may be called from any thread."""

    admit: Callable[[int, Train], None]  # a stream's number and a train
    end: Callable[[int], None]  # nothing will ever come to a stream again
    rest: Callable[[int], None]  # the source of a stream is at its end; more may be brought to it some day
    may_enter: Callable[[], bool]  # queues are short enough for bulk rows
    letters: Callable[[str, str, Sequence[Reject]], None]
    now_ns: Callable[[], int]
    block_output: Callable[[int, bool], None]  # an output must wait, or may go on
    room_again: Callable[[], None]  # sockets may be read again
    data_dir: str | None = None
    numbered: Numbered | None = None  # with a data_dir: trains that are known again after a restart
    history: Callable[[int], History | None] = lambda output: None  # with a data_dir: of an output, by its number


class SparkPipeline:
    def __init__(self, network: Network, engine: Engine, *, host: SparkHost | None = None) -> None:
        config = network.config.spark
        self._network = network
        self._engine = engine
        self._config = config
        self._own_host = host is None
        nice = LOW_PRIORITY if config.priority == "low" else 0
        self.host = host if host is not None else SparkHost(config.master, config.config, nice=nice)
        self._temporary: str | None = None
        self.intake = StreamIntake(
            network,
            engine.admit,
            engine.may_enter,
            engine.letters,
            engine.now_ns,
            ledger=Ledger(None if engine.data_dir is None else self._folder("jobs")),
            numbered=engine.numbered,
        )
        self.exchange = Exchange(
            network,
            self.intake,
            lambda: self._folder("exchange"),
            engine.may_enter,
            engine.now_ns,
            numbered=engine.numbered,
            history=engine.history,
        )
        handlers = {"push": self.intake.push, **RemoteJobs(self.intake).handlers, **self.exchange.handlers}
        self.port = SparkPort(handlers, token=config.token or "")
        self._jobs: list[_SourceJob] = []
        self._ended = Event()
        self._progress = Thread(target=self._log_progress, name="aurorad-bulk-progress", daemon=True)
        self.on_done: Callable[[], None] = lambda: None  # every source of the network file is at its end, or failed
        self.is_batch = False  # what the sources bring is all there will ever be
        self.sinks = {
            output.number: self._make_sink(output, output.sink)
            for output in network.outputs
            if isinstance(output.sink, SparkSink)
        }
        self._direct = [s for s in self.sinks.values() if network.arcs[s.output.arc].source.stream is not None]

    def _make_sink(self, output: Output, sink: SparkSink) -> SinkOutlet:
        history = self._engine.history(output.number)
        return SinkOutlet(output, sink, self._folder("sinks", output.name), self.host, self._block, history)

    def _folder(self, *parts: str) -> Path:
        """Where tuples wait on disk; without a data_dir a temporary folder, which does not outlive the daemon."""
        root = self._engine.data_dir
        if root is None:
            root = self._temporary = self._temporary or tempfile.mkdtemp(prefix="aurorad-")
        return Path(root, "spark", *parts)

    def staging(self) -> str | None:
        """Where sources are staged; None: each job in a temporary folder of its own."""
        if self._config.staging is not None:
            return str(self._config.staging)
        return None if self._engine.data_dir is None else str(self._folder("staged"))

    def _block(self, output: int, blocked: bool) -> None:
        self._engine.block_output(output, blocked)
        if not blocked:
            self._engine.room_again()

    @property
    def has_room(self) -> bool:
        """Whether streams may be read: an output that is a stream itself has no box that could wait."""
        return not any(sink.is_blocked for sink in self._direct)

    def open(self) -> None:
        """The sinks, before anything can be emitted, and the port. Raises ListenError and OSError."""
        for sink in self.sinks.values():
            sink.open()
        at = self._config.listen
        if at is None:
            return
        try:
            self.port.open(at.host, at.port)
        except OSError as error:
            raise ListenError(f"spark: cannot listen on {at}: {error.strerror or error}") from error

    def start(self) -> None:
        """The sources, each in a thread of its own; what was decided before a crash is finished first."""
        if self._engine.data_dir is not None:
            self.exchange.recover()
        for stream in self._network.streams:
            if isinstance(stream.source, SparkSource):
                self._jobs.append(_SourceJob(self, stream, stream.source))
        for job in self._jobs:
            job.thread.start()
        if self._jobs:
            self._progress.start()

    def stop_reading(self) -> None:
        """No bulk row enters any more."""
        for job in self._jobs:
            job.stop()
        self._ended.set()
        self.intake.loads.stop()
        self.exchange.stop()

    def flush(self, timeout_s: float) -> bool:
        """Commit what the sinks have. False when time ran out."""
        deadline = time.monotonic() + timeout_s
        flushed = [sink.flush(max(0.0, deadline - time.monotonic())) for sink in self.sinks.values()]
        return all(flushed)

    def close(self) -> None:
        self.stop_reading()
        self.port.close()
        for sink in self.sinks.values():
            sink.close()
        if self._own_host:
            self.host.stop(STOP_SECONDS)
        for job in self._jobs:
            if job.thread.is_alive():
                job.thread.join(STOP_SECONDS)
        if self._progress.ident is not None:
            self._progress.join(STOP_SECONDS)
        self._clear()

    def _clear(self) -> None:
        """A temporary folder goes, unless there are tuples in it that nobody has."""
        if self._temporary is None:
            return
        if left := sum(sink.pending for sink in self.sinks.values()):
            log.error("%d tuples could not be committed; they are in %s", left, self._temporary)
        else:
            shutil.rmtree(self._temporary, ignore_errors=True)

    @property
    def is_reading(self) -> bool:
        """A source of the network file is not at its end yet."""
        return any(job.thread.is_alive() for job in self._jobs)

    @property
    def failures(self) -> list[str]:
        """Why sources failed."""
        return [f"stream {job.stream.name}: {job.error}" for job in self._jobs if job.error]

    def _log_progress(self) -> None:
        """A line now and then, as long as there is something to tell."""
        while not self._ended.wait(PROGRESS_SECONDS) and self.is_reading:
            for b in self.bulk_readings():
                if b.state == "reading" and b.rows:
                    left = f", {(b.rows_expected - b.rows) / b.rate_per_s:.0f} s left" if b.left else ""
                    log.info("stream %s: %s rows, %.0f/s%s", b.stream, f"{b.rows:,}", b.rate_per_s, left)

    def ended(self) -> None:
        """A source is at its end; called on its own thread, its last deed."""
        if all(job.is_ended for job in self._jobs):
            self.on_done()

    def begin_source(self, job: str, stream: str, pace: str, fingerprint: str, parts: int, rows: int) -> Load:
        return self.intake.begin(job, stream, pace=pace, fingerprint=fingerprint, parts=parts, rows=rows)

    def end_stream(self, stream: int) -> None:
        """Its source is at its end, now or before a restart."""
        (self._engine.end if self.is_batch else self._engine.rest)(stream)

    # -- looking in ---------------------------------------------------------------------------------------------------

    def spark_reading(self) -> SparkReading:
        return self.host.reading()._replace(port=self.port.address)

    def sink_readings(self) -> list[SinkReading]:
        return [sink.reading() for sink in self.sinks.values()]

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
        self.is_ended = False
        asked = source.order_by if "order_by" in source.model_fields_set else None
        order = order_for(pipeline._network, stream, asked, source.pace)
        self._job = BulkJob(
            pipeline.host,
            f"source-{stream.name}",
            _as_request(source, order),
            stream.schema,
            self,
            staging=pipeline.staging(),
            batch_limit=batch_limit(pipeline._network),
        )
        self.thread = Thread(target=self._run, name=f"aurorad-bulk-{stream.name}", daemon=True)

    @property
    def address(self) -> str:
        return self._pipeline.port.address

    def begin(self, fingerprint: str, parts: int, rows: int) -> bool:
        job = self._job.name
        self._load = self._pipeline.begin_source(job, self.stream.name, self._pace, fingerprint, parts, rows)
        if self._load.state == "done":
            log.info("stream %s: Spark has read this input before", self.stream.name)
            return False
        log.info("stream %s: Spark reads%s", self.stream.name, f" {rows:,} rows" if rows else "")
        return True

    def expect(self, parts: int, rows: int) -> None:
        assert self._load is not None
        self._load.expected_parts, self._load.expected_rows = parts, rows

    def rows(self) -> int:
        return self._load.rows if self._load is not None else 0

    def end(self, error: str) -> None:
        if self._load is not None:
            self._pipeline.intake.end(self._load, error)

    def _run(self) -> None:
        try:
            rows = self._job.run()
        except SparkError as error:
            self.error = str(error)
            if not self._stopped:
                log.error("stream %s: Spark stopped after %d rows: %s", self.stream.name, self.rows(), error)
        else:
            self._pipeline.end_stream(self.stream.number)
            if not self._job.was_done:
                log.info("stream %s: all %d rows have come", self.stream.name, rows)
        self.is_ended = True
        self._pipeline.ended()

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
