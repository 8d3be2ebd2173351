"""Put the daemon's part of Spark together: the port, the bulk sources, the sinks, and the driver that they share.

The pipeline knows the engine only by the protocols of ``router/boundary.py``. Every daemon has a pipeline, because
Spark can read and write any daemon. The parts that cost something, a driver and a JVM, start on first use.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event, Thread
from typing import Protocol

from catalog.config.models import FileSink, FileSource, SparkSink, SparkSource
from catalog.errors import ListenError
from catalog.network import Network, Output, Stream
from catalog.readings import BulkReading, SinkReading, SparkReading, WatchReading
from router.access.access import Access
from router.access.spark_door import SparkDoor
from router.boundary import OutputGate, OutputHistory, StreamEntrance
from router.ports import why_not
from router.spark.daemon.asked_jobs import AskedJobs
from router.spark.daemon.exchange import Exchange
from router.spark.daemon.host import LOW_PRIORITY, SparkHost
from router.spark.daemon.intake import DeadLetterBox, StreamIntake
from router.spark.daemon.ledger import JobLedger
from router.spark.daemon.outlets import SinkOutlet
from router.spark.daemon.port import CONNECTIONS, SparkPort
from router.spark.daemon.remote import RemoteJobs
from router.spark.daemon.source_job import SourceJob, SourceTarget
from router.spark.daemon.watched_source import WatchedSource

log = logging.getLogger("aurorad.spark")

STOP_SECONDS = 5.0
PROGRESS_SECONDS = 10.0


def is_live(network: Network) -> bool:
    """Tell whether somebody waits for the tuples of a network: then Spark yields the processor to them. Where nobody
    does, a low priority protects nobody, and beside busy neighbours Spark needs minutes to start."""
    ends = [*(s.source for s in network.streams), *(o.sink for o in network.outputs)]
    return any(not isinstance(end, SparkSource | SparkSink | FileSource | FileSink) for end in ends)


class BatchEnd(Protocol):
    def __call__(self) -> None:
        """Every source of the network file has come to its end or has failed. Called on a source's thread."""


class SparkPipeline:
    """``gate`` hears that an output must wait for its sink. ``histories`` and ``data_dir`` are there together.

    ``batch_end`` None: a daemon that runs until it is stopped, and its streams may get more tuples after their
    source has ended. With ``batch_end`` the sources bring all tuples that there will ever be (``aurorad run
    --once``)."""

    def __init__(
        self,
        network: Network,
        entrance: StreamEntrance,
        gate: OutputGate,
        dead_letters: DeadLetterBox,
        now_ns: Callable[[], int],
        *,
        batch_end: BatchEnd | None,
        histories: Sequence[OutputHistory] | None = None,
        data_dir: str | None = None,
        host: SparkHost | None = None,
        connections: int = CONNECTIONS,
        access: Access | None = None,
    ) -> None:
        config = network.config.spark
        self._network = network
        self._entrance = entrance
        self._gate = gate
        self._histories = histories
        self._data_dir = data_dir
        self._config = config
        self._own_host = host is None
        is_low = config.priority == "low" or (config.priority == "auto" and batch_end is None and is_live(network))
        nice = LOW_PRIORITY if is_low else 0
        self.host = host if host is not None else SparkHost(config.master, config.config, nice=nice)
        self._temporary: str | None = None
        self.intake = StreamIntake(
            network,
            entrance,
            dead_letters,
            now_ns,
            JobLedger(None if data_dir is None else self._folder("jobs")),
        )
        self.exchange = Exchange(
            network,
            self.intake,
            lambda: self._folder("exchange"),
            entrance,
            now_ns,
            histories=histories,
        )
        self.asked = AskedJobs(
            network, self.host,
            lambda stream, job, pace: SourceTarget(stream, job, pace, self.port, self.intake, self.door), self.staging,
        )  # fmt: skip
        remote = {**RemoteJobs(self.intake).handlers, **self.asked.handlers}
        handlers = {"push": self.intake.push, **remote, **self.exchange.handlers}
        token = "" if config.token is None else config.token.get_secret_value()
        self.door = SparkDoor(access, token, lambda job: self.intake.jobs.get(job).stream.name)
        tls = self.door.tls
        self.port = SparkPort(
            handlers, admit=self.door.admit, tls=None if tls is None else tls.current, connections=connections
        )
        self._jobs: list[SourceJob | WatchedSource] = []
        self._ended = Event()
        self._progress = Thread(target=self._log_progress, name="aurorad-bulk-progress", daemon=True)
        self._batch_end = batch_end
        self.sinks = {
            output.number: self._make_sink(output, output.sink)
            for output in network.outputs
            if isinstance(output.sink, SparkSink)
        }

    def _make_sink(self, output: Output, sink: SparkSink) -> SinkOutlet:
        history = None if self._histories is None else self._histories[output.number]
        return SinkOutlet(output, sink, self._folder("sinks", output.name), self.host, self._gate, history)

    def _make_job(self, stream: Stream, source: SparkSource) -> SourceJob | WatchedSource:
        if source.watch_ns is not None:
            return WatchedSource(
                self._network, stream, source, self.host, self.port, self.intake, self,
                door=self.door, staging=self.staging() or str(self._folder("staged")),
                folder=None if self._data_dir is None else self._folder("jobs"), ends=self._batch_end is not None,
            )  # fmt: skip
        return SourceJob(
            self._network, stream, source, self.host, self.port, self.intake, self,
            door=self.door, staging=self.staging(),
        )  # fmt: skip

    def _folder(self, *parts: str) -> Path:
        """Return a folder below the data_dir; without one, below a temporary folder that ends with the daemon."""
        root = self._data_dir
        if root is None:
            root = self._temporary = self._temporary or tempfile.mkdtemp(prefix="aurorad-")
        return Path(root, "spark", *parts)

    def staging(self) -> str | None:
        """Return the folder where sources are staged; None: each job makes a temporary folder of its own."""
        if self._config.staging is not None:
            return str(self._config.staging)
        return None if self._data_dir is None else str(self._folder("staged"))

    def open(self) -> None:
        """Open the sinks, before any tuple can be emitted, and the port. Raises ListenError and OSError."""
        for sink in self.sinks.values():
            sink.open()
        at = self._network.config.spark_port
        if at is None:
            return
        try:
            self.port.open(at.host, at.port)
        except OSError as error:
            raise ListenError(f"spark: cannot listen on {at}: {why_not(error, at.port)}") from error

    def start(self) -> None:
        """Finish batches that were decided before a crash, then start the sources, each on a thread of its own."""
        if self._data_dir is not None:
            self.exchange.recover()
        for stream in self._network.streams:
            if isinstance(stream.source, SparkSource):
                self._jobs.append(self._make_job(stream, stream.source))
        for job in self._jobs:
            job.thread.start()
        if self._jobs:
            self._progress.start()

    def stop_reading(self) -> None:
        """Let no more bulk rows in."""
        for job in self._jobs:
            job.stop()
        self.asked.stop()
        self._ended.set()
        self.intake.jobs.stop()
        self.exchange.stop()

    def flush(self, timeout_s: float) -> bool:
        """Commit the tuples of all sinks. False when time ran out."""
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
        self.asked.join()
        if self._progress.ident is not None:
            self._progress.join(STOP_SECONDS)
        self._clear()

    def _clear(self) -> None:
        """Remove the temporary folder, unless it has tuples that could not be committed."""
        if self._temporary is None:
            return
        if left := sum(sink.pending for sink in self.sinks.values()):
            log.error("%d tuples could not be committed; they are in %s", left, self._temporary)
        else:
            shutil.rmtree(self._temporary, ignore_errors=True)

    @property
    def is_reading(self) -> bool:
        """Whether a source of the network file has not ended yet."""
        return any(job.thread.is_alive() for job in self._jobs)

    @property
    def failures(self) -> list[str]:
        """Why sources failed, one line each."""
        return [f"stream {job.stream.name}: {job.error}" for job in self._jobs if job.error]

    def _log_progress(self) -> None:
        """Log a line for each job from time to time, as long as one reads."""
        while not self._ended.wait(PROGRESS_SECONDS) and self.is_reading:
            for b in self.bulk_readings():
                if b.state == "reading" and b.rows:
                    left = f", {(b.rows_expected - b.rows) / b.rate_per_s:.0f} s left" if b.left else ""
                    log.info("stream %s: %s rows, %.0f/s%s", b.stream, f"{b.rows:,}", b.rate_per_s, left)

    def source_is_read(self, stream: int) -> None:
        (self._entrance.source_exhausted if self._batch_end is None else self._entrance.end)(stream)

    def source_has_ended(self) -> None:
        if self._batch_end is not None and all(job.is_ended for job in self._jobs):
            self._batch_end()

    # -- readings -----------------------------------------------------------------------------------------------------

    def spark_reading(self) -> SparkReading:
        return self.host.reading()._replace(port=self.port.address)

    def sink_readings(self) -> list[SinkReading]:
        return [sink.reading() for sink in self.sinks.values()]

    def watch_readings(self) -> list[WatchReading]:
        return [job.watch_reading() for job in self._jobs if isinstance(job, WatchedSource)]

    def bulk_readings(self) -> list[BulkReading]:
        known = self.intake.jobs.readings()
        begun = {reading.stream for reading in known}
        waiting = [job.reading() for job in self._jobs if job.stream.name not in begun]
        return [*known, *waiting]
