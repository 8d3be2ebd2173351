"""The storage manager: every arc's queue under one lock, and one byte budget for queues and the state of boxes.

The budget counts each train once, however many arcs it waits on, the strings that trains refer to, and the bytes that
boxes remember (``note_state``). It is soft towards boxes: the manager always accepts the output of a box, because
refusing it would lose it. It is hard towards the edge: ``has_room`` becomes false at the budget, and true again at
``LOW_WATER`` of it. Between the two the router does not read its sockets, so TCP pushes back on the senders. A box
whose state is at its own limit closes the edge too, until it is below it.

Taken trains stay in the budget until their plan has ended. P3 ("Putting It All Together"): "in order to execute a box,
Aurora contacts the storage manager and asks that the queue of the box be pinned to the buffer throughout box's
execution." ``take`` pins, ``unpin`` frees. An arc has at most one plan at a time, so the pinned trains are kept by arc.
Trains that a checkpoint is writing stay in the budget as well (``hold``): a queue of the size of the budget would
otherwise be in memory twice, once in the checkpoint and once as what has arrived since.

Threads: any thread may enqueue; only the scheduler thread takes; the thread that ran a plan unpins. No I/O under the
lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from threading import Lock
from typing import Any, NamedTuple, Protocol

from catalog.readings import NOTHING, ArcReading
from storage.queue import ArcQueue, Lease
from storage.string_account import StringAccount, pools_of
from storage.train import NO_WATERMARK, Train

LOW_WATER = 0.75
STATE_SHARE = 0.5
"""The part of the budget that the state of boxes may use before it goes to disk. The rest is for queues."""

ANNOUNCED = -1
"""Returned by ``enqueue`` of a manager that spills, in place of bytes: it has announced the train to the scheduler."""


class ArcContent(NamedTuple):
    """The waiting trains of an arc at one moment, oldest first; ``blocks`` come after ``trains``."""

    trains: list[Train]
    blocks: list[Any]
    counts: tuple[int, int, int, int]  # enqueued, dequeued, shed, expired


class SavedBlock(NamedTuple):
    """A block in a checkpoint: on disk at ``ref``, or as its trains."""

    ref: Any
    trains: list[Train]
    nbytes: int
    tuples: int


SavedArc = tuple[list[Train], list[int], Sequence[int]]
"""The state of one arc in a checkpoint: its trains, the numbers of its blocks, and its counts."""


class Readmit(Protocol):
    def __call__(self, arcs: tuple[int, ...], train: Train, /) -> object:
        """Enqueue a restored train on these arcs, and announce it to the scheduler."""


class OnRoom(Protocol):
    def __call__(self) -> None:
        """Let the edge read again. Called outside the lock, on the thread that freed the memory."""


class OnExpired(Protocol):
    def __call__(self, arc: int, dropped: Sequence[Train], /) -> None:
        """Note the trains that expired on an arc. Called outside the lock, before any box behind the arc runs."""


class StorageManager:
    def __init__(self, arcs: int, budget_bytes: int, *, on_room: OnRoom, on_expired: OnExpired) -> None:
        self._lock = Lock()
        self.queues = [ArcQueue() for _ in range(arcs)]
        self.budget_bytes = budget_bytes
        self.room_bytes = budget_bytes  # at which the edge closes; the monitor lowers it while the process is too large
        self.used_bytes = 0  # of trains in queues, and of trains that a plan has taken and not ended
        self.pinned_bytes = 0  # of these, of the latter
        self._pinned: list[list[Lease]] = [[] for _ in range(arcs)]  # by arc
        self._strings = StringAccount()  # of these trains
        self.state_bytes = 0  # of the state of all boxes
        self.peak_bytes = 0  # the most of all together
        self._state_by_box: dict[int, int] = {}
        self._full_boxes: set[int] = set()  # whose state is at its limit, and which let the edge wait for that
        self._has_room = True
        self._on_room = on_room
        self._on_expired = on_expired
        self.spilled_arcs = 0  # arcs with a part of their queue on disk

    low_water = LOW_WATER
    wants_rank = False
    """Whether the manager uses ``rank``: only one that spills does (``storage/spilling.py``)."""

    def rank(self, arcs: Sequence[int]) -> None:
        """Take the scheduler's ranking: the arcs with tuples to process, the most urgent first."""

    def step(self) -> bool:
        """Move one block to or from disk. False when there was nothing to do."""
        return False

    def is_spilled(self, arc: int) -> bool:
        """Tell whether a part of this arc's queue is on disk: new trains must not overtake it."""
        return False

    @property
    def held_bytes(self) -> int:
        """The bytes of queues, their strings and state together. Read without the lock."""
        return self.used_bytes + self._strings.nbytes + self.state_bytes

    @property
    def has_room(self) -> bool:
        """Whether the edge may admit more. Read without the lock: a flag that is late by one train does no harm."""
        return self._has_room

    @property
    def waiting_bytes(self) -> int:
        """The bytes of trains that no plan has taken yet. Read without the lock, like ``has_room``."""
        return self.used_bytes - self.pinned_bytes

    def readings(self, names: Sequence[str]) -> list[ArcReading]:
        """Read every arc at one moment, under the lock, so that the arcs' law holds in the readings."""
        with self._lock:
            return [
                ArcReading(name, q.tuples, q.nbytes, q.enqueued, q.dequeued, dropped_of(q))
                for name, q in zip(names, self.queues, strict=True)
            ]

    def contents(self) -> list[ArcContent]:
        """Return the content of every arc at one moment, for a checkpoint."""
        with self._lock:
            return [
                ArcContent([t for t, _ in q.entries], [], (q.enqueued, q.dequeued, q.shed, q.expired))
                for q in self.queues
            ]

    def hold(self) -> list[Lease]:
        """Keep the trains that wait now in the budget until ``let_go``: a checkpoint refers to them, and their memory
        stays taken also when plans have ended with them."""
        with self._lock:
            leases = list({id(lease): lease for queue in self.queues for _, lease in queue.entries}.values())
            for lease in leases:
                lease.holders += 1
        return leases

    def let_go(self, leases: list[Lease]) -> None:
        """Free the trains of ``hold`` that nothing else holds. Any thread."""
        with self._lock:
            room_again = self._free(leases)
        if room_again:
            self._on_room()

    @property
    def can_spill(self) -> bool:
        """Whether queues may wait on disk."""
        return False

    def restore(self, arcs: Mapping[int, SavedArc], blocks: Sequence[SavedBlock], readmit: Readmit) -> None:
        """Put back what a checkpoint held, before anything else arrives. Blocks come back to memory."""
        for arc, (held, numbers, counts) in arcs.items():
            assert all(blocks[n].ref is None for n in numbers), "blocks on disk need the manager that spills"
            trains = [*held, *(t for n in numbers for t in blocks[n].trains)]
            self._recount(arc, trains, counts)
            for train in trains:
                readmit((arc,), train)

    def take_over(self, queues: Mapping[int, ArcQueue]) -> None:
        """Take these queues of another manager, by arc, with the trains in them. Nothing else has arrived yet, and the
        other manager is not used any more."""
        with self._lock:
            self.queues = [queues.get(arc, own) for arc, own in enumerate(self.queues)]
            leases = {id(lease): lease for queue in queues.values() for _, lease in queue.entries}
            for lease in leases.values():
                lease.queues = lease.holders = 0
            for queue in queues.values():
                for _, lease in queue.entries:
                    lease.queues += 1
                    lease.holders += 1
            for lease in leases.values():
                self.used_bytes += lease.nbytes
                self._strings.enter(lease.pools)
            self._note_use()

    def take_over_blocks(self, other: StorageManager, arcs: Mapping[int, int]) -> None:
        """Take the trains of another manager that wait behind those of ``take_over``, on disk or on their way to it.

        ``arcs`` leads from arcs here to arcs there.
        """
        assert not other.spilled_arcs, "blocks need the manager that spills"

    def waiting_behind(self, arc: int) -> int:
        """Return how many tuples wait on this arc behind those in memory."""
        return 0

    def _recount(self, arc: int, trains: Sequence[Train], counts: Sequence[int]) -> None:
        """Restore the counts of an arc, less the trains that will be counted again when they are readmitted."""
        queue = self.queues[arc]
        queue.enqueued, queue.dequeued, queue.shed, queue.expired = counts
        queue.enqueued -= sum([t.count for t in trains])

    def is_empty(self) -> bool:
        """Tell whether nothing waits on any arc, punctuations included."""
        with self._lock:
            return not any(queue.entries for queue in self.queues)

    @property
    def spill_bytes(self) -> int:
        """The bytes of spilled trains on disk."""
        return 0

    def enqueue(self, arcs: Sequence[int], train: Train) -> int:
        """Put a train on each of these arcs (a box's fan-out), and return its bytes. The caller announces the train."""
        train = train.at_rest()
        nbytes = train.nbytes
        lease = Lease(nbytes, len(arcs), pools_of(train))
        with self._lock:
            for arc in arcs:
                self.queues[arc].put(train, lease)
            self.used_bytes += nbytes
            self._strings.enter(lease.pools)
            self._note_use()
        return nbytes

    # -- the state of boxes -------------------------------------------------------------------------------------------

    def state_share(self, box: int) -> int:
        """Return how many bytes the state of this box may have: a fair share of ``STATE_SHARE`` of the budget.

        Boxes with less than an even share keep what they have; the others share the rest evenly. Without the lock.
        """
        left = int(min(self.budget_bytes, self.room_bytes) * STATE_SHARE)  # less room: more state goes to disk
        others = self.state_bytes - self._state_by_box.get(box, 0)
        if others <= left // 2:
            return left - others
        sizes = sorted([n for b, n in list(self._state_by_box.items()) if b != box and n])
        for n, size in enumerate(sizes):
            boxes = len(sizes) - n + 1
            if size > left // boxes:
                return left // boxes
            left -= size
        return left

    def waits_on(self, arc: int) -> bool:
        """Tell whether a train waits in memory on this arc. Without the lock."""
        return bool(self.queues[arc].entries)

    def note_state(self, box: int, nbytes: int, *, is_full: bool = False) -> None:
        """Count the state of a box, now that it has this many bytes. ``is_full``: the edge waits until it has fewer.

        Called by the worker that runs the box.
        """
        with self._lock:
            self.state_bytes += nbytes - self._state_by_box.get(box, 0)
            self._state_by_box[box] = nbytes
            (self._full_boxes.add if is_full else self._full_boxes.discard)(box)
            self._note_use()
            room_again = self._free([])
        if room_again:
            self._on_room()

    def _note_use(self) -> None:
        """Take note of the bytes in use, under the lock.

        State alone never closes the edge: only new tuples move event time on, and with it windows close.
        """
        held_bytes = self.held_bytes
        if (self.used_bytes and held_bytes >= self.room_bytes) or self._full_boxes:
            self._has_room = False
        if held_bytes > self.peak_bytes:
            self.peak_bytes = held_bytes

    # -- and out ------------------------------------------------------------------------------------------------------

    def pass_by(self, arcs: Sequence[int], tuples: int) -> None:
        """Count tuples that bypass the queue as enqueued and dequeued, so that the arcs' law holds."""
        with self._lock:
            for arc in arcs:
                queue = self.queues[arc]
                queue.enqueued += tuples
                queue.dequeued += tuples

    def take(self, arc: int, tuples: int, trains: int) -> tuple[list[Train], int, int]:
        """Take up to ``tuples`` tuples of an arc's first ``trains`` trains, and pin them. Scheduler thread only.

        Returns the trains, their number of tuples, and how many trains left the queue whole. The worker joins short
        trains: that copies, and would keep the scheduler's thread for as long as the boxes keep a worker.
        """
        with self._lock:
            queue = self.queues[arc]
            before = queue.tuples
            taken, leases = queue.take(tuples, trains)
            count = before - queue.tuples
            self._pin(leases)
            self._pinned[arc] += leases
        return taken, count, len(leases)

    def unpin(self, arcs: Iterable[int]) -> None:
        """Free the trains that were taken from these arcs: their plan has ended. The thread that ran the plan."""
        pinned = self._pinned
        held = [arc for arc in arcs if pinned[arc]]  # only this plan has taken from them
        if not held:
            return
        with self._lock:
            room_again = self._free([lease for arc in held for lease in pinned[arc]])
            for arc in held:
                pinned[arc].clear()
        if room_again:
            self._on_room()

    def expire(self, arc: int, tuples: int, trains: int) -> tuple[list[Train], int, int]:
        """Drop the first ``tuples`` tuples of an arc's first ``trains`` trains. Scheduler thread only.

        Returns a punctuation that must still reach the box (event time advances although tuples are dropped), how many
        tuples were dropped, and how many trains left the queue whole.
        """
        with self._lock:
            dropped, freed = self.queues[arc].expire(tuples, trains)
            self._pin(freed)
            room_again = self._free(freed)
        if room_again:
            self._on_room()
        self._on_expired(arc, dropped)
        watermark_ns = max([t.watermark_ns for t in dropped], default=NO_WATERMARK)
        left = [Train.empty(dropped[0].schema, watermark_ns)] if watermark_ns != NO_WATERMARK else []
        return left, sum([t.count for t in dropped]), len(freed)

    def _pin(self, leases: list[Lease]) -> None:
        """Note that these trains have left a queue, under the lock."""
        for lease in leases:
            lease.queues -= 1
            if lease.queues == 0:
                self.pinned_bytes += lease.nbytes

    def _free(self, leases: list[Lease]) -> bool:
        """Release leases of trains that have left a queue, under the lock. True when that makes room again."""
        for lease in leases:
            lease.holders -= 1
            if lease.holders == 0:
                self.used_bytes -= lease.nbytes
                self.pinned_bytes -= lease.nbytes
                self._strings.leave(lease.pools)
        is_high = self.used_bytes > 0 and self.held_bytes > self.room_bytes * self.low_water
        if self._has_room or self._full_boxes or is_high:
            return False
        self._has_room = True
        return True


def dropped_of(queue: ArcQueue) -> Mapping[str, int]:
    """Return the dropped tuples of a queue by reason."""
    if not queue.shed and not queue.expired:
        return NOTHING
    return {reason: n for reason, n in (("shed", queue.shed), ("expired", queue.expired)) if n}
