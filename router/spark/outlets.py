"""A sink on Spark: trains off the workers, onto disk, and from there to Spark a segment at a time.

    worker -> queue (bounded, in memory) -> writer thread -> segments (bounded, on disk) -> commit thread -> Spark

- A worker only appends to a queue. Encoding and disk are the writer's, Spark is the committer's: a slow Spark fills
  the disk buffer, a full or slow disk fills the queue, and a full queue makes the output wait (``blocked``). What the
  streams do then is theirs to say (``overload``): nothing is dropped here.
- Short trains are joined before they are written: Spark makes a partition of every Arrow batch.
- A commit is ``every`` so long, or later when Spark is behind, or earlier when a segment is large. It is tried until
  it is published, with growing pauses; a name that was published before is not published again.
- ``flush`` seals and commits what there is. What cannot be committed in time stays on disk: with a data_dir the next
  start goes on with it.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from threading import Condition, Event, Thread
from typing import Any

from catalog.config.models import SparkSink
from catalog.network import Output
from catalog.readings import SinkReading
from router.codecs.arrow import ArrowEncoder
from router.spark.errors import SparkError, SparkLostError
from router.spark.host import SparkHost
from router.spark.jobs import fields_of
from router.spark.segments import Segment, Segments
from storage.train import Train

log = logging.getLogger("aurorad.spark")

QUEUE_BYTES = 16 * 1024**2
SEGMENT_BYTES = 128 * 1024**2
BATCH_ROWS = 32_768
BATCH_SECONDS = 0.2
COMMIT_SECONDS = 600.0
PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 30.0
DISK_PAUSE_SECONDS = 1.0


class SinkOutlet:
    """``deliver`` on any worker; ``on_blocked`` hears that the output must wait, or may go on."""

    def __init__(
        self,
        output: Output,
        sink: SparkSink,
        folder: Path,
        host: SparkHost,
        on_blocked: Callable[[int, bool], None],
    ) -> None:
        self.output = output
        self._sink = sink
        self._host = host
        self._on_blocked = on_blocked
        self._encoder = ArrowEncoder(output.schema, "us")
        self.segments = Segments(folder, self._encoder.begin())
        self._queue: deque[Train] = deque()
        self._queued_bytes = 0
        self._queued_rows = 0
        self._change = Condition()
        self._is_blocked = False
        self._stopping = False
        self._flushing = False
        self._work = Event()  # there may be something to commit
        self._state = "idle"
        self._error = ""
        self._disk_full = False
        self.offered = 0
        self.recovered = self.segments.sealed_rows
        self.committed = 0
        self.commits = 0
        self.retries = 0
        self._threads = [
            Thread(target=target, name=f"aurorad-sink-{output.name}", daemon=True)
            for target in (self._write_all, self._commit_all)
        ]

    # -- any worker ---------------------------------------------------------------------------------------------------

    def deliver(self, train: Train) -> None:
        newly_blocked = False
        with self._change:
            self.offered += train.count
            self._queue.append(train)
            self._queued_bytes += train.nbytes
            self._queued_rows += train.count
            if self._queued_bytes > QUEUE_BYTES and not self._is_blocked:
                self._is_blocked = newly_blocked = True
            self._change.notify()
        if newly_blocked:
            self._on_blocked(self.output.number, True)

    @property
    def is_blocked(self) -> bool:
        return self._is_blocked

    # -- the writer ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        for thread in self._threads:
            thread.start()
        self._work.set()

    def _write_all(self) -> None:
        deadline = 0.0  # when the open segment is sealed
        while True:
            trains, rows = self._take(deadline)
            try:
                if trains:
                    if not self.segments.open_rows:
                        deadline = time.monotonic() + self._sink.every_ns / 1e9
                    self._append(trains)
                    self._took(trains, rows)
                if self._is_due(deadline):
                    self._retrying(self.segments.seal)
                    self._work.set()
            except _Stopped:
                return
            if self._stopping and not self._queue:
                return

    def _is_due(self, deadline: float) -> bool:
        """Whether to seal. Not while another one waits: when Spark is behind, a larger one is better than one more."""
        segments = self.segments
        if not segments.open_rows or segments.open_bytes >= SEGMENT_BYTES:
            return bool(segments.open_rows)
        return segments.oldest() is None and (self._flushing or time.monotonic() >= deadline)

    def _take(self, deadline: float) -> tuple[list[Train], int]:
        """Trains for about one batch; waits a moment for more, so that short ones are joined."""
        with self._change:
            begun = time.monotonic()
            while not self._stopping:
                now = time.monotonic()
                if self._queued_rows >= BATCH_ROWS or (self._queue and now - begun >= BATCH_SECONDS):
                    break
                if self._is_due(deadline) or (self._flushing and self._queue):
                    break
                if not self._queue:
                    begun = now
                self._change.wait(BATCH_SECONDS)
            trains, rows = [], 0
            for train in self._queue:
                if rows and rows + train.count > BATCH_ROWS:
                    break
                trains.append(train)
                rows += train.count
            return trains, rows

    def _append(self, trains: list[Train]) -> None:
        data = self._encoder.encode(Train.concat(trains))
        rows = sum(t.count for t in trains)
        while self.segments.nbytes > self._sink.buffer_bytes:  # Spark is behind: wait for room on disk
            self._state_is("blocked")
            if self._stopping and not self._flushing:
                raise _Stopped
            if not self.segments.oldest() and self.segments.open_rows:
                self._retrying(self.segments.seal)
                self._work.set()
            with self._change:
                self._change.wait(BATCH_SECONDS)
        self._retrying(lambda: self.segments.append(data, rows))

    def _retrying(self, deed: Callable[[], Any]) -> None:
        """A full disk is waited out: nothing is lost, the output waits."""
        while True:
            try:
                deed()
                if self._disk_full:
                    log.info("output %s: the disk takes tuples again", self.output.name)
                    self._disk_full = False
                return
            except OSError as error:
                if not self._disk_full:
                    log.error("output %s: %s: %s", self.output.name, self.segments.folder, error.strerror)
                self._disk_full = True
                self._error = str(error)
                if self._stopping:
                    raise _Stopped from None
                with self._change:
                    self._change.wait(DISK_PAUSE_SECONDS)

    def _took(self, trains: list[Train], rows: int) -> None:
        freed = False
        with self._change:
            for train in trains:
                self._queue.popleft()
                self._queued_bytes -= train.nbytes
            self._queued_rows -= rows
            if self._is_blocked and self._queued_bytes <= QUEUE_BYTES // 2:
                self._is_blocked, freed = False, True
        if freed:
            self._on_blocked(self.output.number, False)

    # -- the committer ------------------------------------------------------------------------------------------------

    def _commit_all(self) -> None:
        failures = 0
        while True:
            segment = self.segments.oldest()
            if segment is None:
                self._state_is("idle")
                if self._stopping and not self._threads[0].is_alive():
                    return
                self._work.wait(BATCH_SECONDS)
                self._work.clear()
                continue
            try:
                self._commit(segment)
                failures = 0
            except SparkError as error:
                failures += 1
                self.retries += 1
                self._error = str(error)
                self._state_is("retrying")
                log.warning("output %s: commit %d failed: %s", self.output.name, segment.number, error)
                pause_s = min(PAUSE_SECONDS * 2 ** (failures - 1), LONGEST_PAUSE_SECONDS)
                if isinstance(error, SparkLostError) and failures == 1:
                    pause_s = 0.0
                if self._stopping:
                    return
                self._pause(pause_s)

    def _pause(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not self._stopping and (left := deadline - time.monotonic()) > 0:
            self._work.wait(min(left, BATCH_SECONDS))
            self._work.clear()

    def _commit(self, segment: Segment) -> None:
        self._state_is("committing")
        sink = self._sink
        self._host.call(
            "commit",
            COMMIT_SECONDS,
            commit=self.segments.commit_name(segment),
            file=str(segment.path),
            rows=segment.rows,
            fields=fields_of(self.output.schema),
            sink={
                "spark": sink.spark,
                "path": sink.path,
                "options": dict(sink.options),
                "partition_by": sink.partition_by,
                "files": sink.files,
                "output": self.output.name,
                "number": segment.number,
                "epoch": self.segments.epoch,
            },
        )
        self.segments.remove(segment)
        self.committed += segment.rows
        self.commits += 1
        with self._change:
            self._change.notify_all()

    def _state_is(self, state: str) -> None:
        self._state = state

    # -- the end ------------------------------------------------------------------------------------------------------

    def flush(self, timeout_s: float) -> bool:
        """Commit everything that was delivered. False when time ran out."""
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
                    self._change.wait(0.02)
            return True
        finally:
            self._flushing = False

    @property
    def pending(self) -> int:
        """Tuples that are not committed."""
        return self._queued_rows + self.segments.open_rows + self.segments.sealed_rows

    def close(self) -> None:
        """Ends the threads. What is not committed stays in its folder."""
        with self._change:
            self._stopping = True
            self._change.notify_all()
        self._work.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(COMMIT_SECONDS if thread is self._threads[0] else PAUSE_SECONDS)
        self.segments.close()

    def reading(self) -> SinkReading:
        return SinkReading(
            output=self.output.name,
            state="blocked" if self._is_blocked or self._disk_full else self._state,
            offered=self.offered,
            committed=self.committed,
            buffered=self.pending,
            commits=self.commits,
            retries=self.retries,
            buffered_bytes=self.segments.nbytes + self._queued_bytes,
            error=self._error,
        )


class _Stopped(Exception):
    """The daemon stops while the disk is full."""
