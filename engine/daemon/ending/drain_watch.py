"""When a drain has to end: at its deadline, or when only readers are left that take nothing.

A reader that takes nothing must not hold up a stop until the deadline. So draining also ends when readers have tuples
to take, no box runs, and no tuple has moved for five seconds. With a data_dir the queues are in the last checkpoint,
and the next start goes on with them.
"""

from __future__ import annotations

from time import monotonic

from engine.run.core import Engine
from router.server import Server

LOOK_EVERY_SECONDS = 0.1
STALLED_SECONDS = 5.0
PATIENT_SECONDS = 3600.0
"""A drain with more time than this is the end of a batch, which is to be finished: it waits for every reader."""


class DrainWatch:
    """``deadline`` is on the monotonic clock. Owner: the thread that drains."""

    def __init__(self, engine: Engine, server: Server, deadline: float) -> None:
        self._engine = engine
        self._server = server
        self._deadline = deadline
        self._is_patient = deadline - monotonic() > PATIENT_SECONDS
        self._seen: object = None
        self._moved_at = self._looked_at = monotonic()

    @property
    def left_s(self) -> float:
        return max(0.0, self._deadline - monotonic())

    def is_over(self) -> bool:
        """Whether the deadline has come, the engine has failed, or only readers that take nothing are left."""
        now = monotonic()
        if now > self._deadline or self._engine.loop.failure is not None:
            return True
        if now - self._looked_at < LOOK_EVERY_SECONDS:
            return False
        self._looked_at = now
        if (seen := self._progress()) != self._seen or self._engine.state.outstanding or not self._waits_for_readers():
            self._seen, self._moved_at = seen, now
        return now - self._moved_at > STALLED_SECONDS and not self._is_patient

    def _progress(self) -> object:
        """Return counts that change whenever a tuple leaves a queue or a reader takes a byte."""
        taken = [(r.delivered, r.dropped, r.pending_bytes) for o in self._server.outlets for r in o.readings()]
        return sum(queue.dequeued for queue in self._engine.storage.queues), taken

    def _waits_for_readers(self) -> bool:
        return any(outlet.blocked or not outlet.is_drained for outlet in self._server.outlets)
