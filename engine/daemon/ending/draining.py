"""Draining: everything that was read goes out before the process ends.

The order is that of a tuple's way: bytes that are being decoded, the log, the engine, the readers' sockets, files,
Spark's sinks. Each step waits until its part is empty. Nothing new comes behind it, because the daemon has stopped
reading. All steps share one deadline. ``drain_watch`` ends a drain that waits for readers that take nothing.

Some tuples wait in boxes, not in queues: in open windows, joins and sorts. ``engine.stop`` in the network file says
what happens to them. With ``close`` the event time of every stream ends when the engine is at rest, and the results go
the same way out. The end is in the log like every train, so a crash in the middle of it computes the same results
again. With ``keep`` the last checkpoint has them. ``drop`` drops and counts them.
"""

from __future__ import annotations

import logging
from time import sleep
from typing import TYPE_CHECKING

from engine.daemon.ending.drain_watch import LOOK_EVERY_SECONDS, DrainWatch
from engine.daemon.process.io_loop import IoLoop
from engine.run.core import Engine
from engine.run.open_state import HeldTuples, drop_held, held_tuples
from router.event_time import EventTime
from router.files.pipeline import FilePipeline
from router.server import Server
from router.spark.daemon.pipeline import SparkPipeline

if TYPE_CHECKING:
    from engine.daemon.durable.keeper import Keeper

log = logging.getLogger("aurorad")

POLL_SECONDS = 0.002
NAMED_BOXES = 20
_FATES = {
    "close": "its results go out now",
    "keep": "the next start goes on with them",
    "drop": "they are dropped",
}


class Draining:
    """The end of one daemon. ``stop`` is close, keep or drop. Owner: the thread that stops the daemon."""

    def __init__(
        self,
        io: IoLoop,
        server: Server,
        keeper: Keeper | None,
        engine: Engine,
        event_time: EventTime,
        files: FilePipeline,
        spark: SparkPipeline,
        stop: str,
        deadline: float,
    ) -> None:
        self._io = io
        self._server = server
        self._keeper = keeper
        self._engine = engine
        self._event_time = event_time
        self._files = files
        self._spark = spark
        self._stop = stop
        self._watch = DrainWatch(engine, server, deadline)
        self.kept: list[HeldTuples] = []
        self.dropped: list[HeldTuples] = []

    def drain(self) -> bool:
        """Wait until every tuple that was read is out. False when some are left (``drain_watch``)."""
        if not self._settle():
            return False
        held = held_tuples(self._engine.runtimes)
        _log_held(held, self._stop)
        if self._stop == "close":
            for stream, clock in enumerate(self._event_time.clocks):
                if clock is not None:
                    self._engine.ingress.end(stream)
            if not self._settle():
                return False
        while not self._io.run(self._server.flush(min(LOOK_EVERY_SECONDS, self._watch.left_s))):
            if self._watch.is_over():
                return False
        return self._files.flush(self._watch.left_s) and self._spark.flush(self._watch.left_s)

    def leave_no_tuple_in_boxes(self) -> None:
        """Drop and count what is still inside boxes, unless it is kept. The engine is at rest, or has stopped."""
        if self._stop == "keep":
            self.kept = held_tuples(self._engine.runtimes)
            return
        self.dropped = drop_held(self._engine.runtimes)
        if self._stop == "close":  # else the log has said so already
            for held in self.dropped:
                log.warning("box %s (%s): %s without a result dropped", held.box, held.kind, _count(held.tuples))

    def _settle(self) -> bool:
        """Wait until all that was read has been through the engine."""
        while not self._is_settled:
            if self._watch.is_over():
                return False
            sleep(POLL_SECONDS)
        return True

    @property
    def _is_settled(self) -> bool:
        if self._files.is_reading or self._server.is_decoding:
            return False
        return (self._keeper is None or self._keeper.is_settled) and self._engine.is_quiet()


def _log_held(held: list[HeldTuples], stop: str) -> None:
    """Say what is inside the boxes, the most first, and what happens to it."""
    level = logging.WARNING if stop == "drop" else logging.INFO
    for box in sorted(held, key=lambda box: -box.tuples)[:NAMED_BOXES]:
        log.log(level, "box %s (%s) holds %s: %s", box.box, box.kind, _count(box.tuples), _FATES[stop])
    if len(held) > NAMED_BOXES:
        rest = sum(sorted(box.tuples for box in held)[: len(held) - NAMED_BOXES])
        log.log(level, "%d more boxes hold %s: %s", len(held) - NAMED_BOXES, _count(rest), _FATES[stop])


def describe_inside(draining: Draining | None) -> str:
    """Say what became of the tuples that were still in boxes at the end. A tuple in two boxes counts twice."""
    if draining is None:
        return ""
    parts = [("dropped", draining.dropped), ("kept", draining.kept)]
    return "".join(
        f", {sum(box.tuples for box in held)} {fate} in open windows of {len(held)} box{'es' * (len(held) > 1)}"
        for fate, held in parts
        if held
    )


def _count(tuples: int) -> str:
    return f"{tuples} tuple{'s' * (tuples != 1)}"


def describe_backlog(engine: Engine, server: Server, files: FilePipeline) -> str:
    """Say how many tuples are not out yet, and where they wait."""
    waiting = sum(queue.tuples for queue in engine.storage.queues)
    readers = [(outlet.name, r) for outlet in server.outlets for r in outlet.readings() if r.pending]
    pending = sum(r.pending for _, r in readers) + files.pending
    slow = ", ".join(f"{r.name} of output {output}" for output, r in readers[:5])
    return f"{waiting} tuples wait in queues, {pending} for slow readers" + (f" ({slow})" if slow else "")
