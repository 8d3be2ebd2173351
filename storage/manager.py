"""The storage manager: every arc's queue under one lock and one byte budget.

The budget counts each train once, however many arcs it waits on. It is soft towards boxes (what a box has computed is
always accepted: refusing it would lose it) and hard towards the edge: ``has_room`` turns false at the budget and true
again at ``LOW_WATER`` of it, and the router stops reading its sockets in between, so TCP pushes back on the senders.

Threads: anyone may enqueue; only the scheduler thread takes. No I/O under the lock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any, NamedTuple

from catalog.readings import NOTHING, ArcReading
from storage.queue import ArcQueue, Lease, coalesce
from storage.train import NO_WATERMARK, Train

LOW_WATER = 0.75
TOLD = -1
"""What ``enqueue`` of a manager that spills gives in place of bytes: the scheduler has been told already."""


class ArcContent(NamedTuple):
    """What waits on an arc at one moment, oldest first; ``blocks`` come after the trains."""

    trains: list[Train]
    blocks: list[Any]
    counts: tuple[int, int, int, int]  # enqueued, dequeued, shed, expired


class SavedBlock(NamedTuple):
    """A block as a checkpoint has it: on disk at ``ref``, or the trains themselves."""

    ref: Any
    trains: list[Train]
    nbytes: int
    tuples: int


Saved = tuple[list[Train], list[int], Sequence[int]]
"""Of one arc: its trains, the numbers of its blocks, and its counts."""


class StorageManager:
    def __init__(self, arcs: int, budget_bytes: int) -> None:
        self._lock = Lock()
        self.queues = [ArcQueue() for _ in range(arcs)]
        self.budget_bytes = budget_bytes
        self.used_bytes = 0
        self.peak_bytes = 0
        self._has_room = True
        self._on_room: Callable[[], None] | None = None
        self.readmit: Callable[[tuple[int, ...], Train], None] = lambda arcs, train: None  # put and announce
        self.on_expired: Callable[[int, Sequence[Train]], None] | None = None  # before anything behind them runs
        self.cut_arcs = 0  # arcs of which a part is on disk

    low_water = LOW_WATER
    wants_rank = False
    """Whether ``rank`` is of use: only to a manager that spills (``storage/spilling.py``)."""

    def rank(self, arcs: Sequence[int]) -> None:
        """The arcs with something to do, the most urgent first."""

    def step(self) -> bool:
        """One block to or from disk; whether there was anything to do."""
        return False

    def is_cut(self, arc: int) -> bool:
        """Something older than what comes now waits on this arc and cannot be taken yet."""
        return False

    @property
    def has_room(self) -> bool:
        """Whether the edge may admit more. Read without the lock: a flag that is late by one train does no harm."""
        return self._has_room

    def readings(self, names: Sequence[str]) -> list[ArcReading]:
        """Every arc at one moment: under the lock, so that the arcs' law holds in it."""
        with self._lock:
            return [
                ArcReading(name, q.tuples, q.nbytes, q.enqueued, q.dequeued, dropped_of(q))
                for name, q in zip(names, self.queues, strict=True)
            ]

    def contents(self) -> list[ArcContent]:
        """Every arc at one moment: what a checkpoint holds."""
        with self._lock:
            return [
                ArcContent([t for t, _ in q.entries], [], (q.enqueued, q.dequeued, q.shed, q.expired))
                for q in self.queues
            ]

    def restore(self, arcs: Mapping[int, Saved], blocks: Sequence[SavedBlock]) -> None:
        """Put back what a checkpoint held, before anything else comes. What was on disk comes back to memory."""
        for arc, (held, numbers, counts) in arcs.items():
            assert all(blocks[n].ref is None for n in numbers), "blocks on disk need the manager that spills"
            trains = [*held, *(t for n in numbers for t in blocks[n].trains)]
            self._recount(arc, trains, counts)
            for train in trains:
                self.readmit((arc,), train)

    def _recount(self, arc: int, trains: Sequence[Train], counts: Sequence[int]) -> None:
        """The counts as they were, less the trains that are about to be counted once more."""
        queue = self.queues[arc]
        queue.enqueued, queue.dequeued, queue.shed, queue.expired = counts
        queue.enqueued -= sum([t.count for t in trains])

    def is_empty(self) -> bool:
        """Nothing waits on any arc, punctuations included."""
        with self._lock:
            return not any(queue.entries for queue in self.queues)

    @property
    def spill_bytes(self) -> int:
        """On disk because memory is short."""
        return 0

    def when_room(self, callback: Callable[[], None]) -> None:
        """``callback`` is called, outside the lock and from the taking thread, when room comes back."""
        self._on_room = callback

    def enqueue(self, arcs: Sequence[int], train: Train) -> int:
        """Put a train on every one of these arcs (a box's fan-out); how many bytes it takes."""
        train = train.at_rest()
        nbytes = train.nbytes
        lease = Lease(nbytes, len(arcs))
        with self._lock:
            for arc in arcs:
                self.queues[arc].put(train, lease)
            self.used_bytes += nbytes
            if self.used_bytes >= self.budget_bytes:
                self._has_room = False
            if self.used_bytes > self.peak_bytes:
                self.peak_bytes = self.used_bytes
        return nbytes

    def pass_by(self, arcs: Sequence[int], tuples: int) -> None:
        """Tuples that need no queue: in and out at once, so that the arcs' law holds."""
        with self._lock:
            for arc in arcs:
                queue = self.queues[arc]
                queue.enqueued += tuples
                queue.dequeued += tuples

    def take(self, arc: int, tuples: int, trains: int) -> tuple[list[Train], int, int]:
        """Up to ``tuples`` tuples of an arc's first ``trains`` trains. Scheduler thread only.

        Gives the trains with short ones joined, how many tuples they hold, and how many trains left the queue whole.
        """
        with self._lock:
            queue = self.queues[arc]
            before = queue.tuples
            taken, freed = queue.take(tuples, trains)
            count = before - queue.tuples
            room_again = self._free(freed)
        if room_again and self._on_room is not None:
            self._on_room()
        return coalesce(taken), count, len(freed)

    def expire(self, arc: int, tuples: int, trains: int) -> tuple[list[Train], int, int]:
        """Drop the first ``tuples`` tuples of an arc's first ``trains`` trains. Scheduler thread only.

        Gives what must still reach the box (time goes on also where tuples are dropped: a punctuation), how many tuples
        were dropped, and how many trains left the queue whole.
        """
        with self._lock:
            dropped, freed = self.queues[arc].expire(tuples, trains)
            room_again = self._free(freed)
        if room_again and self._on_room is not None:
            self._on_room()
        if self.on_expired is not None:
            self.on_expired(arc, dropped)
        watermark_ns = max([t.watermark_ns for t in dropped], default=NO_WATERMARK)
        left = [Train.empty(dropped[0].schema, watermark_ns)] if watermark_ns != NO_WATERMARK else []
        return left, sum([t.count for t in dropped]), len(freed)

    def _free(self, leases: list[Lease]) -> bool:
        """Under the lock: give bytes back. True when that makes room again."""
        for lease in leases:
            lease.holders -= 1
            if lease.holders == 0:
                self.used_bytes -= lease.nbytes
        if self._has_room or self.used_bytes > self.budget_bytes * self.low_water:
            return False
        self._has_room = True
        return True


def dropped_of(queue: ArcQueue) -> Mapping[str, int]:
    """Tuples dropped, by reason."""
    if not queue.shed and not queue.expired:
        return NOTHING
    return {reason: n for reason, n in (("shed", queue.shed), ("expired", queue.expired)) if n}
