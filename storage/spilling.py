"""The storage manager that spills: one byte budget, and trains beyond it wait on disk, in order.

An arc's queue then has three parts, oldest first: trains in memory, which the scheduler knows and may take; blocks on
disk or on their way to it (``storage/spill_blocks.py``), which the scheduler does not know; and the open block, which
takes new trains. New trains go to the end. So once an arc has a block, every new train waits behind it until the last
block is back in memory. A train is announced to the scheduler when it is in memory, not before: a plan never waits for
a read from disk.

Which trains spill
- The first ``pin_bytes`` of every arc stay in memory, because they run next.
- Otherwise an arc spills while memory use is above the arc's level (``storage/spill_levels.py``).
- An arc never spills if no stream with ``overload: spill`` leads to it.
Read ahead: when an arc with blocks holds less than ``ahead_bytes`` in memory, its next block is read back, for the most
urgent arc first. A block that was not written yet comes back without a disk operation.
When the disk is full, or slower than the senders, memory fills up to the budget and the edge stops reading, as it does
without spilling.

Order of events: the scheduler must get the announcements of an arc in the order of the arc's queue. So ``announce`` (an
append to the scheduler's mailbox) is called under the lock, and ``wake_scheduler`` after it. ``enqueue`` returns
ANNOUNCED, and its caller announces nothing.

Threads: as in the manager. ``step`` runs on the spill thread only, and only ``step`` takes blocks off an arc. No I/O
under the lock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from catalog.readings import ArcReading
from catalog.schema import Schema
from storage.block_ref import BlockRef
from storage.manager import (
    ANNOUNCED,
    ArcContent,
    OnExpired,
    OnRoom,
    Readmit,
    SavedArc,
    SavedBlock,
    StorageManager,
    dropped_of,
)
from storage.queue import ArcQueue, Lease
from storage.spill_blocks import Block, BlockQueues
from storage.spill_files import BLOCK_BYTES, SpillDamageError, SpillFiles
from storage.spill_levels import spill_levels
from storage.string_account import string_share
from storage.train import Train

log = logging.getLogger("aurorad.storage")

WRITE_ABOVE = 0.45
READ_BELOW = 0.95
PIN_BYTES = 256 * 1024
AHEAD_BYTES = 2 * BLOCK_BYTES


def _weight(train: Train) -> int:
    """Return the bytes of a train with its own strings: on disk, and back from it, it has no others."""
    return train.nbytes + string_share(train)


class AnnounceUnderLock(Protocol):
    def __call__(self, arcs: tuple[int, ...], train: Train, nbytes: int, /) -> None:
        """Note a train and its bytes on these arcs for the scheduler. Must not take a turn: the caller holds a lock."""


class SpillingStorage(StorageManager):
    """``wake_scheduler`` lets the scheduler act on announcements; ``wake_spiller`` lets the spill thread ``step``."""

    def __init__(
        self,
        schemas: Sequence[Schema],
        budget_bytes: int,
        spill: SpillFiles,
        spillable: Sequence[bool],
        *,
        announce: AnnounceUnderLock,
        wake_scheduler: Callable[[], None],
        wake_spiller: Callable[[], None],
        on_room: OnRoom,
        on_expired: OnExpired,
        block_bytes: int = BLOCK_BYTES,
    ) -> None:
        super().__init__(len(schemas), budget_bytes, on_room=on_room, on_expired=on_expired)
        self.spill = spill
        self._schemas = schemas
        self._spillable = spillable
        self._announce = announce
        self._wake_scheduler = wake_scheduler
        self._wake_spiller = wake_spiller
        share = budget_bytes // (4 * max(1, sum(spillable)))
        self.pin_bytes = min(PIN_BYTES, share)
        self.ahead_bytes = min(AHEAD_BYTES, 2 * share)
        self.blocks = BlockQueues(len(schemas), min(block_bytes, max(1, budget_bytes // 16)))
        self._levels = spill_levels(budget_bytes, len(schemas))
        self._hungry: dict[int, None] = {}  # arcs with blocks and less than ahead_bytes in memory
        self.damaged = [0] * len(schemas)  # tuples that could not be read back
        self.disk_full = False

    low_water = 0.95  # above FIRST_SPILLS_ABOVE: queues keep that much while their boxes rest, and room must come back
    wants_rank = True

    # -- called by the scheduler --------------------------------------------------------------------------------------

    def rank(self, arcs: Sequence[int]) -> None:
        self._levels = spill_levels(self.budget_bytes, len(self._schemas), arcs)

    def is_spilled(self, arc: int) -> bool:
        return bool(self.blocks.by_arc[arc])

    def waiting_behind(self, arc: int) -> int:
        return self.blocks.tuples[arc]

    # -- trains -------------------------------------------------------------------------------------------------------

    def enqueue(self, arcs: Sequence[int], train: Train) -> int:
        train = train.at_rest()
        nbytes = _weight(train)
        with self._lock:
            stay = tuple([a for a in arcs if self._stays(a, nbytes)])
            if stay:
                self._put(stay, train, nbytes)
            if len(stay) < len(arcs):
                self._spill(tuple([a for a in arcs if a not in stay]) if stay else tuple(arcs), train, nbytes)
            self._note_use()
            has_work = bool(self._hungry) or self.blocks.has_writes
        if stay:
            self._wake_scheduler()
        if has_work:
            self._wake_spiller()
        return ANNOUNCED

    def _stays(self, arc: int, nbytes: int) -> bool:
        """Decide whether a new train stays in memory on this arc."""
        if self.blocks.by_arc[arc]:
            return False
        if not self._spillable[arc] or self.queues[arc].nbytes + nbytes <= self.pin_bytes:
            return True
        return self.held_bytes + nbytes <= self._levels.above_bytes[arc]

    def _put(self, arcs: tuple[int, ...], train: Train, nbytes: int) -> None:
        lease = Lease(nbytes, len(arcs))
        for arc in arcs:
            self.queues[arc].put(train, lease)
        self.used_bytes += nbytes
        self._announce(arcs, train, nbytes)

    def _spill(self, arcs: tuple[int, ...], train: Train, nbytes: int) -> None:
        self.blocks.append(arcs, train, nbytes)
        self.spilled_arcs = self.blocks.spilled_arcs
        self.used_bytes += nbytes  # until the block is written
        for arc in arcs:
            self.queues[arc].enqueued += train.count
            if self.queues[arc].nbytes < self.ahead_bytes:
                self._hungry[arc] = None

    def take(self, arc: int, tuples: int, trains: int) -> tuple[list[Train], int, int]:
        taken = super().take(arc, tuples, trains)
        self._want_read_ahead(arc)
        return taken

    def unpin(self, arcs: Iterable[int]) -> None:
        super().unpin(arcs)
        if self._hungry:  # there may be room again to read blocks back
            self._wake_spiller()

    def expire(self, arc: int, tuples: int, trains: int) -> tuple[list[Train], int, int]:
        dropped = super().expire(arc, tuples, trains)
        self._want_read_ahead(arc)
        return dropped

    def _want_read_ahead(self, arc: int) -> None:
        if self.blocks.by_arc[arc] and self.queues[arc].nbytes < self.ahead_bytes:
            with self._lock:
                if self.blocks.by_arc[arc]:
                    self._hungry[arc] = None
        if self._hungry or self.blocks.has_writes:
            self._wake_spiller()

    # -- the spill thread ---------------------------------------------------------------------------------------------

    def step(self) -> bool:
        """Read one block back, or write one. False when there was nothing to do."""
        return self._read_next() or self._write_next()

    def _read_next(self) -> bool:
        with self._lock:
            arc = self._next_to_read()
            if arc is None:
                return False
            block = self.blocks.by_arc[arc][0]
            if block.is_open:
                self.blocks.seal(block)  # new trains go behind it
            arcs = tuple([a for a in block.arcs if self._is_head(a, block) and self._may_read(a)])
            trains, ref = block.trains, block.ref
        if trains is None:
            assert ref is not None
            trains = self._read(arcs, block, ref)
        with self._lock:
            room_again = self._return_to_memory(arcs, block, trains)
        self._wake_scheduler()
        if room_again:
            self._on_room()
        return True

    def _next_to_read(self) -> int | None:
        """Choose the most urgent arc that may have its next block back, and forget the arcs that need none."""
        blocks = self.blocks.by_arc
        for arc in [a for a in self._hungry if not blocks[a] or self.queues[a].nbytes >= self.ahead_bytes]:
            del self._hungry[arc]
        may = [a for a in self._hungry if self._may_read(a)]
        place = self._levels.place
        return min(may, key=lambda a: (place[a], a)) if may else None

    def _may_read(self, arc: int) -> bool:
        """An arc with nothing in memory always may: else it could wait for ever behind arcs that are blocked."""
        queue = self.queues[arc]
        if queue.nbytes >= self.ahead_bytes:
            return False
        return not queue.entries or self.held_bytes < self.budget_bytes * READ_BELOW

    def _is_head(self, arc: int, block: Block) -> bool:
        blocks = self.blocks.by_arc[arc]
        return bool(blocks) and blocks[0] is block

    def _read(self, arcs: tuple[int, ...], block: Block, ref: BlockRef) -> list[Train]:
        try:
            return self.spill.read(ref, self._schemas[arcs[0]])
        except (SpillDamageError, OSError) as error:
            # The tuples cannot be recovered. They are counted as lost, and the arc continues behind them.
            log.error("%d tuples on %d arcs are lost: %s", block.tuples, len(arcs), error)
            with self._lock:
                for arc in arcs:
                    self.damaged[arc] += block.tuples
            return []

    def _return_to_memory(self, arcs: tuple[int, ...], block: Block, trains: list[Train]) -> bool:
        """Put the trains of a block on the queues of these arcs. True when there is room again."""
        was_in_memory = block.trains is not None
        self.blocks.pop(arcs, block)
        self.spilled_arcs = self.blocks.spilled_arcs
        for arc in arcs:
            self.queues[arc].enqueued -= sum([t.count for t in trains])  # _put counts them a second time
        if was_in_memory and not block.waiting:
            self.used_bytes -= block.nbytes
            block.trains = None
        for train in trains:
            self._put(arcs, train, _weight(train))
        self._note_use()
        if not block.waiting and block.ref is not None:
            self.spill.release(block.ref)
        return self._free([])

    def _write_next(self) -> bool:
        with self._lock:
            if self.held_bytes < self.budget_bytes * WRITE_ABOVE:
                return False
            block = self.blocks.next_write()
            trains = None if block is None else block.trains
        if block is None or trains is None:
            return False
        try:
            ref = self.spill.write(trains)
        except OSError as error:
            if not self.disk_full:
                log.warning("cannot spill: %s; memory fills up to the budget", error)
            self.disk_full = True
            with self._lock:
                self.blocks.retry_write(block)
            return False
        self.disk_full = False
        with self._lock:
            block.ref = ref
            block.trains = None
            self.used_bytes -= block.nbytes
            room_again = self._free([])
        if room_again:
            self._on_room()
        return True

    # -- readings and checkpoints -------------------------------------------------------------------------------------

    def readings(self, names: Sequence[str]) -> list[ArcReading]:
        with self._lock:
            return [
                ArcReading(
                    name, q.tuples, q.nbytes, q.enqueued, q.dequeued, self._dropped(a, q),
                    self.blocks.tuples[a], self.blocks.nbytes[a],
                )
                for a, (name, q) in enumerate(zip(names, self.queues, strict=True))
            ]  # fmt: skip

    def _dropped(self, arc: int, queue: ArcQueue) -> Mapping[str, int]:
        dropped = dropped_of(queue)
        return {**dropped, "damaged": self.damaged[arc]} if self.damaged[arc] else dropped

    def is_empty(self) -> bool:
        with self._lock:
            return not any(q.entries or b for q, b in zip(self.queues, self.blocks.by_arc, strict=True))

    @property
    def spill_bytes(self) -> int:
        return self.spill.disk_bytes

    def contents(self) -> list[ArcContent]:
        with self._lock:
            frozen = {id(b): b.frozen() for blocks in self.blocks.by_arc for b in blocks}
            return [
                ArcContent(
                    [t for t, _ in q.entries],
                    [frozen[id(b)] for b in blocks],
                    (q.enqueued, q.dequeued, q.shed + self.damaged[a], q.expired),
                )
                for a, (q, blocks) in enumerate(zip(self.queues, self.blocks.by_arc, strict=True))
            ]

    @property
    def can_spill(self) -> bool:
        return True

    def restore(self, arcs: Mapping[int, SavedArc], blocks: Sequence[SavedBlock], readmit: Readmit) -> None:
        holders: dict[int, list[int]] = {}
        for arc, (trains, numbers, counts) in arcs.items():
            self._recount(arc, trains, counts)
            for train in trains:
                readmit((arc,), train)
            for number in numbers:
                holders.setdefault(number, []).append(arc)
        with self._lock:
            restored = {number: self._restored(tuple(on), blocks[number]) for number, on in holders.items()}
            for arc, (_, numbers, _) in arcs.items():
                # In the order of each arc: two arcs that share a block may have blocks of their own before it.
                for number in numbers:
                    self.blocks.restore(arc, restored[number])
                    self._hungry[arc] = None
            self.spilled_arcs = self.blocks.spilled_arcs
        self._wake_spiller()

    def take_over_blocks(self, other: StorageManager, arcs: Mapping[int, int]) -> None:
        if not isinstance(other, SpillingStorage):
            return
        with self._lock:
            for block in self.blocks.take_over(other.blocks, arcs):
                if block.ref is not None:
                    self.spill.release(block.ref)
            kept = {id(block): block for blocks in self.blocks.by_arc for block in blocks}
            self.used_bytes += sum([block.nbytes for block in kept.values() if block.trains is not None])
            self.spilled_arcs = self.blocks.spilled_arcs
            other.blocks, other._hungry = BlockQueues(len(other._schemas), 1), {}  # its thread finds nothing to do
            self._hungry.update(dict.fromkeys(arc for arc, blocks in enumerate(self.blocks.by_arc) if blocks))
            for here, there in arcs.items():
                self.damaged[here] = other.damaged[there]
        self._wake_spiller()

    def _restored(self, arcs: tuple[int, ...], saved: SavedBlock) -> Block:
        block = Block.restored(arcs, saved)
        if block.trains is not None:
            self.used_bytes += block.nbytes
            self.blocks.queue_write(block)
        return block
