"""The storage manager: every arc's queue under one lock and one byte budget.

The budget counts each train once, however many arcs it waits on. It is soft towards boxes (what a box has computed is
always accepted: refusing it would lose it) and hard towards the edge: ``has_room`` turns false at the budget and true
again at ``LOW_WATER`` of it, and the router stops reading its sockets in between, so TCP pushes back on the senders.

Threads: anyone may enqueue; only the scheduler thread takes. No I/O under the lock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock

from catalog.readings import NOTHING, ArcReading
from storage.queue import ArcQueue, Lease, coalesce
from storage.train import Train

LOW_WATER = 0.75


class StorageManager:
    def __init__(self, arcs: int, budget_bytes: int) -> None:
        self._lock = Lock()
        self.queues = [ArcQueue() for _ in range(arcs)]
        self.budget_bytes = budget_bytes
        self.used_bytes = 0
        self.peak_bytes = 0
        self._has_room = True
        self._on_room: Callable[[], None] | None = None

    @property
    def has_room(self) -> bool:
        """Whether the edge may admit more. Read without the lock: a flag that is late by one train does no harm."""
        return self._has_room

    def readings(self, names: Sequence[str]) -> list[ArcReading]:
        """Every arc at one moment: under the lock, so that the arcs' law holds in it."""
        with self._lock:
            return [
                ArcReading(name, q.tuples, q.nbytes, q.enqueued, q.dequeued, {"shed": q.shed} if q.shed else NOTHING)
                for name, q in zip(names, self.queues, strict=True)
            ]

    def is_empty(self) -> bool:
        """Nothing waits on any arc, punctuations included."""
        with self._lock:
            return not any(queue.entries for queue in self.queues)

    def when_room(self, callback: Callable[[], None]) -> None:
        """``callback`` is called, outside the lock and from the taking thread, when room comes back."""
        self._on_room = callback

    def enqueue(self, arcs: Sequence[int], train: Train) -> int:
        """Put a train on every one of these arcs (a box's fan-out); how many bytes it takes."""
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

    def take(self, arc: int, tuples: int, trains: int) -> tuple[list[Train], int, int]:
        """Up to ``tuples`` tuples of an arc's first ``trains`` trains. Scheduler thread only.

        Gives the trains with short ones joined, how many tuples they hold, and how many trains left the queue whole.
        """
        with self._lock:
            queue = self.queues[arc]
            before = queue.tuples
            taken, freed = queue.take(tuples, trains)
            count = before - queue.tuples
            for lease in freed:
                lease.holders -= 1
                if lease.holders == 0:
                    self.used_bytes -= lease.nbytes
            room_again = not self._has_room and self.used_bytes <= self.budget_bytes * LOW_WATER
            if room_again:
                self._has_room = True
        if room_again and self._on_room is not None:
            self._on_room()
        return coalesce(taken), count, len(freed)
