"""A file or standard output as the sink of an output: a thread that encodes trains and writes them.

    worker -> feed (router/feeds.py) -> this thread: encode, write -> the file, FIFO or pipe

Nothing is dropped. While the target takes nothing (a pipe whose reader is slow, a full disk), the feed fills up and the
output waits, which makes the sources wait. A run that ends with its input does not wait for a full disk: it fails.

A reader of standard output that closes its end (``| head -3``) has what it wanted: the run ends without an error. A
FIFO waits for its next reader, which gets the last chunk again.

With a data_dir the trains come from the output's history, and marks (``marks.py``) say what the file has.
"""

from __future__ import annotations

import logging
import time
from threading import Condition, Lock, Thread
from typing import Protocol

from catalog.network import Output
from catalog.readings import SinkReading
from router.boundary import OutputGate, OutputHistory
from router.codecs.base import Encoder
from router.feeds import Feed, HistoryFeed, QueueFeed
from router.files.marks import SinkMark, SinkMarks
from router.files.targets import FileTarget, StdoutTarget
from storage.train import Train

log = logging.getLogger("aurorad.files")

NAME = "file sink"  # of this reader in the history
CHUNK_ROWS = 65_536
WAIT_SECONDS = 0.05
RETRY_SECONDS = 1.0
MARK_SECONDS = 1.0
END_SECONDS = 5.0


class WriterWatcher(Protocol):
    """Is called on the writer's own thread."""

    def sink_has_ended(self) -> None:
        """The reader of standard output has gone, or a run that must end by itself cannot write. The run is over."""


class FileWriter:
    """The sink of one output. ``gate`` blocks the output and lets it go on. ``can_wait`` False: a full disk fails."""

    def __init__(
        self,
        output: Output,
        encoder: Encoder,
        target: FileTarget | StdoutTarget,
        gate: OutputGate,
        watcher: WriterWatcher,
        *,
        buffer_bytes: int,
        can_wait: bool,
        marks: SinkMarks,
        history: OutputHistory | None = None,
    ) -> None:
        self.output = output
        self.error = ""
        self._encoder = encoder
        self._target = target
        self._gate = gate
        self._watcher = watcher
        self._can_wait = can_wait
        self._marks = marks
        self._history = history
        self._change = Condition()
        self.queue = None if history is not None else QueueFeed(self._change, self._block, buffer_bytes)
        self._feed: Feed = self.queue if self.queue is not None else HistoryFeed(_given(history), NAME)
        self._gate_lock = Lock()
        self._blocks = 0  # how many reasons to wait there are: a full queue, a target that takes nothing
        self._is_open = False
        self._is_over = False  # nothing is written any more
        self._is_unwanted = False  # because the reader of standard output has gone: no row is lost for anybody
        self._stopping = False
        self.written = 0  # rows, since the start
        self.dropped = 0  # rows, after the target has failed
        self._held = 0  # rows of the output in the file, from the first one on: with a history
        self._marked = SinkMark(0, 0, 0)
        self._mark_at = 0.0
        self._thread = Thread(target=self._run, name=f"aurorad-file-{output.name}", daemon=True)

    def open(self) -> None:
        """Open the target and begin to take tuples. Raises OSError."""
        mark = self._marks.read()
        self._is_open = self._target.open(self._encoder.begin())
        if self._history is not None:
            self._held = mark.rows if mark is not None else self._history.newest
            self._feed.begin(self._held)
            self._mark()
        self._thread.start()

    # -- the writer's thread ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            trains = self._next_trains()
            if trains:
                is_written = self._write(trains)
                self._feed.drop(trains)
                if is_written and isinstance(self._feed, HistoryFeed):
                    self._held = self._feed.at  # not the sum of rows: the log may have dropped some before them
                with self._change:
                    self._change.notify_all()
            self._mark_if_due()
            if self._stopping and not trains:
                return

    def _next_trains(self) -> list[Train]:
        with self._change:
            if not self._stopping and not self._feed.rows:
                self._change.wait(WAIT_SECONDS)
        return self._feed.peek(CHUNK_ROWS)

    def _write(self, trains: list[Train]) -> bool:
        rows = sum([train.count for train in trains])
        data = b"".join([self._encoder.encode(train) for train in trains if train.count])
        if not self._is_over and self._append(data):
            self.written += rows
            return True
        if not self._is_unwanted:
            self.dropped += rows
        return False

    def _append(self, data: bytes) -> bool:
        """Write a chunk, however long the target makes it wait. False when it will never be written."""
        is_blocked = False
        try:
            while not self._is_over:
                try:
                    if self._is_open or self._opens():
                        self._target.append(data)
                        return True
                except BrokenPipeError:
                    self._lose_reader()
                except OSError as error:
                    self._fail(error, is_blocked)
                if not is_blocked:
                    is_blocked = True
                    self._block(True)
                self._is_over |= self._stopping
                with self._change:
                    self._change.wait(RETRY_SECONDS if self._is_open else WAIT_SECONDS)
            return False
        finally:
            if is_blocked:
                self._block(False)

    def _opens(self) -> bool:
        self._is_open = self._target.open(self._encoder.begin())
        return self._is_open

    def _lose_reader(self) -> None:
        if isinstance(self._target, StdoutTarget):
            log.debug("output %s: the reader of standard output has gone", self.output.name)
            self._is_over = self._is_unwanted = True
            self._watcher.sink_has_ended()
        else:
            log.warning(
                "output %s: the reader of %s has gone: waiting for the next", self.output.name, self._target.name
            )
            self._target.close()
            self._is_open = False

    def _fail(self, error: OSError, is_blocked: bool) -> None:
        why = f"{self._target.name}: {error.strerror or error}"
        if self._can_wait:
            if not is_blocked:
                log.error("output %s: %s: the output waits", self.output.name, why)
            return
        self.error = why
        log.error("output %s: %s", self.output.name, why)
        self._is_over = True
        self._watcher.sink_has_ended()

    def _block(self, blocked: bool) -> None:
        """Add or remove a reason to wait. Any thread."""
        with self._gate_lock:  # a release must not overtake a block on its way to the scheduler
            before, self._blocks = self._blocks, self._blocks + (1 if blocked else -1)
            if (before > 0) != (self._blocks > 0):
                self._gate(self.output.number, self._blocks > 0)

    # -- marks --------------------------------------------------------------------------------------------------------

    def _mark_if_due(self) -> None:
        if self._history is None or self._held == self._marked.rows:
            return
        now = time.monotonic()
        if now >= self._mark_at or self._stopping:
            self._mark_at = now + MARK_SECONDS
            try:
                self._mark()
            except OSError as error:
                log.error("output %s: cannot note the position: %s", self.output.name, error.strerror)

    def _mark(self) -> None:
        """Make what was written safe, note it, and let the log forget it. Raises OSError."""
        self._target.sync()
        self._marked = SinkMark(self._held, self._target.nbytes, self._target.inode)
        self._marks.write(self._marked)
        self._feed.release(self._held)

    # -- the end ------------------------------------------------------------------------------------------------------

    def flush(self, timeout_s: float) -> bool:
        """Wait until every tuple that was emitted is written. False when time ran out."""
        deadline = time.monotonic() + timeout_s
        with self._change:
            while self._feed.rows:
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._change.wait(min(left, WAIT_SECONDS))
        return True

    def close(self) -> None:
        """Write the format's end and close. A thread that hangs in a write to a pipe is left behind."""
        with self._change:
            self._stopping = True
            self._change.notify_all()
        if self._thread.ident is None:
            self._target.close()
            return
        self._thread.join(END_SECONDS if self._feed.rows == 0 else WAIT_SECONDS)
        if self._thread.is_alive():
            return
        if self._is_open and not self._is_over and (end := self._encoder.end()):
            try:
                self._target.append(end)
            except OSError as error:
                log.error("output %s: %s: %s", self.output.name, self._target.name, error.strerror)
        self._target.close()

    @property
    def pending(self) -> int:
        return self._feed.rows

    @property
    def not_finite(self) -> int:
        return self._encoder.not_finite

    def reading(self) -> SinkReading:
        pending, dropped = self.pending, self.dropped + self._feed.dropped
        return SinkReading(
            output=self.output.name,
            state="failed" if self.error else "ended" if self._is_over else "writing",
            offered=self.written + dropped + pending,
            committed=self.written,
            buffered=pending,
            dropped=dropped,
            commits=0,
            retries=0,
            buffered_bytes=self._feed.nbytes,
            error=self.error,
        )


def _given(history: OutputHistory | None) -> OutputHistory:
    assert history is not None
    return history
