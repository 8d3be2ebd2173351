"""A sink on Spark: write the trains of an output to disk, and commit them to Spark segment by segment.

    worker -> feed (feeds.py) -> writer thread -> segments (bounded, on disk) -> commit thread (committer.py) -> Spark

- A worker only appends to a queue. The writer encodes and writes; the committer talks to Spark. A slow Spark fills the
  disk buffer, a slow or full disk fills the feed, and a full feed makes the output wait (``blocked``). The streams'
  ``overload`` decides what happens then: the sink drops nothing.
- The writer joins short trains: Spark makes a partition of every Arrow batch.
- A segment is sealed ``every`` interval; later while Spark is behind, earlier when the segment is large.
- ``flush`` seals and commits everything. Tuples that cannot be committed in time stay on disk; with a data_dir the next
  start commits them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Condition, Event, Thread
from typing import Any

from catalog.config.models import SparkSink
from catalog.network import Output
from catalog.readings import SinkReading
from router.boundary import OutputGate, OutputHistory
from router.codecs.arrow import ArrowEncoder
from router.feeds import Feed, HistoryFeed, QueueFeed
from router.spark.daemon.committer import SinkCommitter
from router.spark.daemon.host import SparkHost
from router.spark.daemon.segments import SinkSegment, SinkSegments
from router.spark.wire.pipe import FILE_SINKS, fields_of
from storage.train import Train

log = logging.getLogger("aurorad.spark")

SEGMENT_BYTES = (
    64 * 1024**2
)  # of Arrow for each GiB of the JVM's heap: writing a segment takes about five times its size
LARGEST_SEGMENT_BYTES = 256 * 1024**2
SEALED_WHEN_FLUSHING = 2  # one to commit, one to prepare
BATCH_ROWS = 65_536
BATCH_SECONDS = 0.2
END_SECONDS = 5.0
DISK_PAUSE_SECONDS = 1.0
FLUSH_POLL_SECONDS = 0.02
NAME = "spark sink"  # of this reader in the history


class SinkOutlet:
    """``gate`` is called when the output must wait, and when it may go on. Opened when the data_dir is locked."""

    def __init__(
        self,
        output: Output,
        sink: SparkSink,
        folder: Path,
        host: SparkHost,
        gate: OutputGate,
        history: OutputHistory | None = None,
    ) -> None:
        self.output = output
        self._sink = sink
        self._folder = folder
        self._host = host
        self._gate = gate
        self._encoder = ArrowEncoder(output.schema, "us")
        self._segments: SinkSegments | None = None
        self._segment_bytes = min(SEGMENT_BYTES * host.heap_bytes // 1024**3, LARGEST_SEGMENT_BYTES)
        self._change = Condition()
        self.queue = None if history is not None else QueueFeed(self._change, self._block)
        self._feed: Feed = HistoryFeed(history, NAME) if history is not None else self._queue_feed()
        self._blocks = 0  # how many reasons to wait there are: a full queue, a full disk
        self._stopping = False
        self._flushing = False
        self._work = Event()  # there may be something to commit
        self._disk_error = ""
        self._writer = Thread(target=self._write_all, name=f"aurorad-sink-{output.name}", daemon=True)
        self._committer = SinkCommitter(
            output.name, host, self._request, self._change, self._work, prepares=sink.spark in FILE_SINKS
        )

    def _queue_feed(self) -> QueueFeed:
        assert self.queue is not None
        return self.queue

    def open(self) -> None:
        """Find the segments that an earlier run left, and begin to take tuples. Raises OSError."""
        segments = self._segments = SinkSegments(self._folder, self._encoder.begin())
        self._feed.begin(segments.next_sequence)
        if segments.sealed:
            log.info("output %s: %d tuples of an earlier run wait for Spark", self.output.name, segments.sealed_rows)
        self._writer.start()
        self._committer.start(segments)
        self._work.set()

    @property
    def segments(self) -> SinkSegments:
        assert self._segments is not None, "not open"
        return self._segments

    @property
    def committed(self) -> int:
        """Tuples committed since the start."""
        return self._committer.committed

    @property
    def commits(self) -> int:
        return self._committer.commits

    @property
    def retries(self) -> int:
        return self._committer.retries

    @property
    def is_blocked(self) -> bool:
        return self._blocks > 0

    def _block(self, blocked: bool) -> None:
        with self._change:
            before, self._blocks = self._blocks, self._blocks + (1 if blocked else -1)
            after = self._blocks
        if bool(before) != bool(after):
            self._gate(self.output.number, bool(after))

    # -- the writer ---------------------------------------------------------------------------------------------------

    def _write_all(self) -> None:
        deadline = 0.0  # when the open segment is sealed
        try:
            while True:
                trains = self._next_trains(deadline)
                if trains:
                    if not self.segments.open_rows:
                        deadline = time.monotonic() + self._sink.every_ns / 1e9
                    self._append(trains)
                    self._feed.drop(trains)
                if self._is_due(deadline):
                    self._seal()
                if self._stopping and not trains:
                    return
        except _Stopped:
            return

    def _next_trains(self, deadline: float) -> list[Train]:
        """Return trains for about one batch. Wait a moment for more, so that short ones are joined."""
        with self._change:
            begun = time.monotonic()
            while not self._stopping and not self._is_due(deadline):
                rows, now = self._feed.rows, time.monotonic()
                if rows >= BATCH_ROWS or (rows and (self._flushing or now - begun >= BATCH_SECONDS)):
                    break
                if not rows:
                    begun = now
                self._change.wait(BATCH_SECONDS)
        return self._feed.peek(BATCH_ROWS)

    def _is_due(self, deadline: float) -> bool:
        """Tell whether to seal. Not while a sealed one waits: when Spark is behind, one large segment beats two."""
        segments = self.segments
        if not segments.open_rows or segments.open_bytes >= self._segment_bytes:
            return bool(segments.open_rows)
        if self._flushing and not self._feed.rows:  # no more comes: prepare it while another is committed
            return len(segments.sealed) < SEALED_WHEN_FLUSHING
        return segments.oldest() is None and time.monotonic() >= deadline

    def _append(self, trains: list[Train]) -> None:
        self._wait_for_room()
        for joined in _joined(trains):
            self._retry_disk(partial(self.segments.append, self._encoder.encode(joined), joined.count))

    def _seal(self) -> None:
        self._retry_disk(self.segments.seal)
        self._feed.release(self.segments.next_sequence)
        self._work.set()

    def _wait_for_room(self) -> None:
        """Wait while Spark is behind by more than the buffer."""
        if self.segments.nbytes <= self._sink.buffer_bytes:
            return
        self._block(True)
        try:
            while self.segments.nbytes > self._sink.buffer_bytes:
                if self._stopping:
                    raise _Stopped
                if self.segments.oldest() is None:
                    self._seal()
                with self._change:
                    self._change.wait(BATCH_SECONDS)
        finally:
            self._block(False)

    def _retry_disk(self, write: Callable[[], Any]) -> None:
        """Repeat a write until the disk takes it. Nothing is lost; the output waits."""
        while True:
            try:
                write()
            except OSError as error:
                if not self._disk_error:
                    log.error("output %s: %s: %s", self.output.name, self._folder, error.strerror)
                    self._block(True)
                self._disk_error = str(error)
                if self._stopping:
                    raise _Stopped from None
                with self._change:
                    self._change.wait(DISK_PAUSE_SECONDS)
                continue
            if self._disk_error:
                log.info("output %s: the disk takes writes again", self.output.name)
                self._disk_error = ""
                self._block(False)
            return

    def _request(self, segment: SinkSegment) -> dict[str, Any]:
        """Build the request to commit or to prepare a segment."""
        sink = self._sink
        return {
            "commit": self.segments.commit_name(segment),
            "file": str(segment.path),
            "rows": segment.rows,
            "fields": fields_of(self.output.schema),
            "sink": {
                "spark": sink.spark,
                "path": sink.path,
                "options": dict(sink.options),
                "partition_by": sink.partition_by,
                "files": sink.files,
                "output": self.output.name,
                "number": segment.number,
                "epoch": self.segments.epoch,
            },
        }

    # -- the end ------------------------------------------------------------------------------------------------------

    def flush(self, timeout_s: float) -> bool:
        """Commit every tuple that was emitted. False when time ran out."""
        deadline = time.monotonic() + timeout_s
        with self._change:
            self._flushing = True
            self._change.notify_all()
        self._work.set()
        try:
            while self.pending:
                if time.monotonic() >= deadline:
                    return False
                with self._change:
                    self._change.wait(FLUSH_POLL_SECONDS)
            return True
        finally:
            self._flushing = False

    @property
    def pending(self) -> int:
        """Tuples that are not committed."""
        segments = self._segments
        held = segments.open_rows + segments.sealed_rows if segments is not None else 0
        return held + self._feed.rows

    @property
    def kept(self) -> bool:
        """Whether the log keeps tuples until they are on the sink's disk."""
        return self.queue is None

    def close(self) -> None:
        """End the threads. Tuples that are not committed stay in the sink's folder."""
        with self._change:
            self._stopping = True
            self._change.notify_all()
        self._committer.stop()
        if self._writer.ident is not None:
            self._writer.join(END_SECONDS)
        self._committer.join(END_SECONDS)
        if self._segments is not None:
            self._segments.close()

    def reading(self) -> SinkReading:
        segments, committer, pending = self._segments, self._committer, self.pending
        return SinkReading(
            output=self.output.name,
            state="blocked" if self.is_blocked else committer.state,
            offered=committer.committed + pending + self._feed.dropped,
            committed=committer.committed,
            buffered=pending,
            dropped=self._feed.dropped,
            commits=committer.commits,
            retries=committer.retries,
            buffered_bytes=self._feed.nbytes + (segments.nbytes if segments is not None else 0),
            error=self._disk_error or committer.error,
        )


def _joined(trains: list[Train]) -> list[Train]:
    """Join trains to about a batch each."""
    out: list[list[Train]] = []
    rows = BATCH_ROWS
    for train in trains:
        if rows + train.count > BATCH_ROWS:
            out.append([])
            rows = 0
        out[-1].append(train)
        rows += train.count
    return [Train.concat(group) for group in out]


class _Stopped(Exception):
    """The daemon stops while the disk is full or Spark is behind."""
