"""Commit the segments of a sink through Spark, one after another, each until it is published.

A commit takes longer than writing its rows. Spark sets up a job before it; files are synced, named and moved behind it.
That is a fifth of a second in which the cores are nearly idle. So while one segment is committed, the next one is
*prepared*: its files are written and wait in the staging folder. Commits are still published in the order of their
segments. Only the manifest makes a commit: a prepared segment that is lost with its driver is written again.

Refused: to publish two segments side by side. A reader could see the later one first, and a sink that keeps only the
last number (Delta does) would take the earlier one for a repeat.

- A commit is retried until it is published, with growing pauses. A name that was published is not published again.
- A preparation that fails is not reported: the commit of that segment fails for the same reason and reports it.
- At most one segment is prepared ahead. The driver bounds how much memory this takes (``driver/work.CommitMemory``).

Owner: the committer's own thread. The writer sets ``work`` when it has sealed a segment.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from threading import Condition, Event, Thread
from typing import Any

from router.spark.daemon.driver_process import PendingRequest
from router.spark.daemon.host import SparkHost
from router.spark.daemon.segments import SinkSegment, SinkSegments
from router.spark.wire.errors import SparkError, SparkLostError

log = logging.getLogger("aurorad.spark")

COMMIT_SECONDS = 600.0
POLL_SECONDS = 0.2
PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 30.0


class SinkCommitter:
    """``request`` builds the request for a segment; ``changed`` is notified when a segment is committed."""

    def __init__(
        self,
        output: str,
        host: SparkHost,
        request: Callable[[SinkSegment], dict[str, Any]],
        changed: Condition,
        work: Event,
        *,
        prepares: bool,
    ) -> None:
        self._output = output
        self._host = host
        self._request = request
        self._changed = changed
        self._work = work
        self._prepares = prepares
        self._prepared: tuple[int, PendingRequest] | None = None  # a segment's number, and the request to prepare it
        self._segments: SinkSegments | None = None
        self._stopping = False
        self._is_last_sealed = False  # no more segments will come
        self.state = "idle"
        self.error = ""
        self.committed = 0
        self.commits = 0
        self.retries = 0
        self._thread = Thread(target=self._commit_all, name=f"aurorad-commit-{output}", daemon=True)

    def start(self, segments: SinkSegments) -> None:
        self._segments = segments
        self._thread.start()

    def stop(self) -> None:
        """End when nothing is left to commit, or when a commit fails."""
        self._stopping = True
        self._work.set()

    def join(self, seconds: float) -> None:
        """Wait for the end. Call it when no more segments will be sealed."""
        self._is_last_sealed = True
        self._work.set()
        if self._thread.ident is not None:
            self._thread.join(seconds)

    @property
    def segments(self) -> SinkSegments:
        assert self._segments is not None, "not started"
        return self._segments

    def _commit_all(self) -> None:
        failures = 0
        while True:
            segment = self.segments.oldest()
            if segment is None:
                self.state = "idle"
                self.segments.sweep()
                if self._stopping and self._is_last_sealed:
                    return
                self._work.wait(POLL_SECONDS)
                self._work.clear()
                continue
            try:
                self._commit(segment)
                failures = 0
            except (SparkError, OSError) as error:  # OSError: the disk is full when the commit is recorded; repeat it
                if self._stopping:
                    return
                failures += 1
                self._failed(segment, error)
                at_once = isinstance(error, SparkLostError) and failures == 1
                self._pause(0.0 if at_once else min(PAUSE_SECONDS * 2 ** (failures - 1), LONGEST_PAUSE_SECONDS))

    def _commit(self, segment: SinkSegment) -> None:
        self.state = "committing"
        self._await_preparation(segment)
        asked = self._host.ask("commit", **self._request(segment))
        asked.when_done(self._work.set)
        self.segments.sweep()
        deadline = time.monotonic() + COMMIT_SECONDS
        while not asked.is_done and time.monotonic() < deadline:
            self._prepare_next(segment)
            self._work.wait(POLL_SECONDS)
            self._work.clear()
        asked.result(COMMIT_SECONDS)
        self.segments.remove(segment)
        self.committed += segment.rows
        self.commits += 1
        self.error = ""
        with self._changed:
            self._changed.notify_all()

    def _prepare_next(self, segment: SinkSegment) -> None:
        """Ask for the preparation of the next segment, if there is one by now."""
        following = self.segments.after(segment) if self._prepares and self._prepared is None else None
        if following is not None:
            self._prepared = (following.number, self._host.ask("prepare", **self._request(following)))

    def _await_preparation(self, segment: SinkSegment) -> None:
        """Wait for the preparation of this segment: two attempts must not write to one staging folder."""
        prepared = self._prepared
        if (
            prepared is None or prepared[0] != segment.number
        ):  # none, or that of the next segment while this one is retried
            return
        self._prepared = None
        try:
            prepared[1].result(2 * COMMIT_SECONDS)  # it may have waited for the memory of the segment before it
        except SparkError as error:
            log.debug("output %s: commit %d could not be prepared: %s", self._output, segment.number, error)

    def _failed(self, segment: SinkSegment, error: SparkError | OSError) -> None:
        self.retries += 1
        self.state = "retrying"
        if str(error) != self.error:  # log it once, not every thirty seconds
            log.warning("output %s: commit %d failed: %s", self._output, segment.number, error)
        self.error = str(error)

    def _pause(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not self._stopping and (left := deadline - time.monotonic()) > 0:
            self._work.wait(min(left, POLL_SECONDS))
            self._work.clear()
