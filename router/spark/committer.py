"""Segments of a sink into Spark, one after another, each until it is published.

A commit is more than its rows: a Spark job is planned and set up before it, and files are synced, named and moved
behind it, a fifth of a second in which the cores have little to do. So while a segment is committed the next one is
*prepared*: its files are written, and wait in the staging folder until it is its turn. Commits are published in the
order of their segments all the same, and what makes one a commit is its manifest, as ever: a prepared one that is lost
with its driver is written again.

Refused: to publish two segments side by side. A reader could see the later one first, and whoever keeps only the last
number (Delta does) would take the earlier one for a repeat.

- A commit is tried until it is published, with growing pauses; a name that was published before is not published again.
- What cannot be prepared is not complained of: the commit that follows meets the same obstacle and tells.
- At most one segment is prepared ahead. How much Spark holds at a time is the driver's to bound (``work.Room``).

Owner: the committer's own thread; ``work`` is set by whoever has something new for it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from threading import Condition, Event, Thread
from typing import Any

from router.spark.errors import SparkError, SparkLostError
from router.spark.host import Asked, SparkHost
from router.spark.segments import Segment, Segments

log = logging.getLogger("aurorad.spark")

COMMIT_SECONDS = 600.0
LOOK_SECONDS = 0.2
PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 30.0


class Committer:
    """``request`` is what Spark is asked for a segment; ``changed`` is notified when one is committed."""

    def __init__(
        self,
        output: str,
        host: SparkHost,
        request: Callable[[Segment], dict[str, Any]],
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
        self._prepared: tuple[int, Asked] | None = None  # a segment's number, and what becomes of it
        self._segments: Segments | None = None
        self._stopping = False
        self._last = False  # nothing more will be sealed
        self.state = "idle"
        self.error = ""
        self.committed = 0
        self.commits = 0
        self.retries = 0
        self._thread = Thread(target=self._commit_all, name=f"aurorad-commit-{output}", daemon=True)

    def start(self, segments: Segments) -> None:
        self._segments = segments
        self._thread.start()

    def stop(self) -> None:
        """It ends when there is nothing to commit, or with the commit that fails now."""
        self._stopping = True
        self._work.set()

    def join(self, seconds: float) -> None:
        """Called when nothing more will be sealed."""
        self._last = True
        self._work.set()
        if self._thread.ident is not None:
            self._thread.join(seconds)

    @property
    def segments(self) -> Segments:
        assert self._segments is not None, "not started"
        return self._segments

    def _commit_all(self) -> None:
        failures = 0
        while True:
            segment = self.segments.oldest()
            if segment is None:
                self.state = "idle"
                self.segments.sweep()
                if self._stopping and self._last:
                    return
                self._work.wait(LOOK_SECONDS)
                self._work.clear()
                continue
            try:
                self._commit(segment)
                failures = 0
            except (SparkError, OSError) as error:  # a full disk, too, when the commit is noted: it is then repeated
                if self._stopping:
                    return
                failures += 1
                self._failed(segment, error)
                at_once = isinstance(error, SparkLostError) and failures == 1
                self._pause(0.0 if at_once else min(PAUSE_SECONDS * 2 ** (failures - 1), LONGEST_PAUSE_SECONDS))

    def _commit(self, segment: Segment) -> None:
        self.state = "committing"
        self._end_preparation(segment)
        asked = self._host.ask("commit", **self._request(segment))
        asked.when_done(self._work.set)
        self.segments.sweep()
        deadline = time.monotonic() + COMMIT_SECONDS
        while not asked.is_done and time.monotonic() < deadline:
            self._look_ahead(segment)
            self._work.wait(LOOK_SECONDS)
            self._work.clear()
        asked.result(COMMIT_SECONDS)
        self.segments.remove(segment)
        self.committed += segment.rows
        self.commits += 1
        self.error = ""
        with self._changed:
            self._changed.notify_all()

    def _look_ahead(self, segment: Segment) -> None:
        """Have the one behind it prepared, if there is one by now."""
        following = self.segments.after(segment) if self._prepares and self._prepared is None else None
        if following is not None:
            self._prepared = (following.number, self._host.ask("prepare", **self._request(following)))

    def _end_preparation(self, segment: Segment) -> None:
        """Two attempts at one segment must not meet in its staging folder."""
        prepared = self._prepared
        if prepared is None or prepared[0] != segment.number:  # the one behind this, which is tried once more
            return
        self._prepared = None
        try:
            prepared[1].result(2 * COMMIT_SECONDS)  # it may have waited for the one before it
        except SparkError as error:
            log.debug("output %s: commit %d was not prepared: %s", self._output, segment.number, error)

    def _failed(self, segment: Segment, error: SparkError | OSError) -> None:
        self.retries += 1
        self.state = "retrying"
        if str(error) != self.error:  # once, and not every thirty seconds for a night
            log.warning("output %s: commit %d failed: %s", self._output, segment.number, error)
        self.error = str(error)

    def _pause(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not self._stopping and (left := deadline - time.monotonic()) > 0:
            self._work.wait(min(left, LOOK_SECONDS))
            self._work.clear()
