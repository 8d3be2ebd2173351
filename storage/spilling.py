"""The storage manager that spills: one byte budget, and what does not fit waits on disk, in order.

An arc's queue is then three parts, oldest first: trains in memory, which the scheduler knows of and may take; blocks on
disk or on their way there, which it does not know of; and the block that is being filled. New trains go to the end, so
once an arc has a block, everything that comes waits behind it until the last block has been read back. A train is
announced to the scheduler when it is in memory, not before: a box is never scheduled for something that would first
have to be read.

Who spills
- Pinned: the first ``pin_bytes`` of every arc stay in memory. It is what runs next.
- Else an arc spills when memory is filled above its own level, between half of the budget for the arc that the
  scheduler ranks last and nine tenths for the first. So what is urgent finds room that the others have left.
- Arcs that no stream with ``overload: spill`` leads to never spill.
Read ahead: an arc with blocks that holds less than ``ahead_bytes`` in memory gets its next block, the best ranked arc
first. Blocks that were not written yet come back without touching the disk.
When the disk is full, or slower than the senders, memory fills up to the budget and the edge stops reading, as without
spilling.

Order of events: the scheduler must hear of an arc's trains in the order in which they lie in its queue. So ``tell``
(an append to its mailbox) is called under the lock and ``nudge`` (let it act) after it; ``enqueue`` gives TOLD, and its
caller announces nothing.

Threads: as in the manager; ``step`` on the spill thread only, which is also the only one to take blocks off an arc. I/O
outside the lock.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from catalog.readings import ArcReading
from catalog.schema import Schema
from storage.manager import TOLD, ArcContent, Saved, SavedBlock, StorageManager, dropped_of
from storage.queue import ArcQueue, Lease
from storage.spill import BLOCK_BYTES, Ref, SpillDamageError, SpillFiles
from storage.train import Train

log = logging.getLogger("aurorad.storage")

FIRST_SPILLS_ABOVE = 0.9
LAST_SPILLS_ABOVE = 0.5
WRITE_ABOVE = 0.45
LOAD_BELOW = 0.95
PIN_BYTES = 256 * 1024
AHEAD_BYTES = 2 * BLOCK_BYTES

Tell = Callable[[tuple[int, ...], Train, int], None]


class Block:
    """Trains that wait on these arcs. In memory while ``trains`` is there, on disk once ``ref`` is."""

    __slots__ = ("arcs", "is_open", "nbytes", "ref", "trains", "tuples", "waiting")

    def __init__(self, arcs: tuple[int, ...]) -> None:
        self.arcs = arcs
        self.trains: list[Train] | None = []
        self.nbytes = 0
        self.tuples = 0
        self.ref: Ref | None = None
        self.waiting = len(arcs)  # arcs that have not got it back
        self.is_open = True

    def add(self, train: Train, nbytes: int) -> None:
        assert self.trains is not None
        self.trains.append(train)
        self.nbytes += nbytes
        self.tuples += train.count

    def frozen(self) -> Block:
        """As it is now, whatever becomes of it."""
        copy = Block(self.arcs)
        copy.trains = None if self.trains is None else list(self.trains)
        copy.nbytes, copy.tuples, copy.ref = self.nbytes, self.tuples, self.ref
        return copy


class SpillingStorage(StorageManager):
    def __init__(
        self,
        schemas: Sequence[Schema],
        budget_bytes: int,
        spill: SpillFiles,
        spillable: Sequence[bool],
        *,
        tell: Tell,
        nudge: Callable[[], None],
        wake: Callable[[], None],
        block_bytes: int = BLOCK_BYTES,
    ) -> None:
        super().__init__(len(schemas), budget_bytes)
        self.spill = spill
        self._schemas = schemas
        self._spillable = spillable
        self._tell = tell
        self._nudge = nudge
        self._wake = wake  # the spill thread has something to do
        self._block_bytes = min(block_bytes, max(1, budget_bytes // 16))
        share = budget_bytes // (4 * max(1, sum(spillable)))
        self.pin_bytes = min(PIN_BYTES, share)
        self.ahead_bytes = min(AHEAD_BYTES, 2 * share)
        self._blocks: list[deque[Block]] = [deque() for _ in schemas]
        self._above = [int(budget_bytes * FIRST_SPILLS_ABOVE)] * len(schemas)
        self._rank = list(range(len(schemas)))
        self._to_write: deque[Block] = deque()
        self._hungry: dict[int, None] = {}  # arcs with blocks and little in memory
        self.spilled_tuples = [0] * len(schemas)
        self.spilled_bytes = [0] * len(schemas)
        self.damaged = [0] * len(schemas)  # tuples that could not be read back
        self.disk_full = False

    low_water = 0.95  # above what arcs may keep in memory: they do not give that back while their boxes rest
    wants_rank = True

    # -- what the scheduler says --------------------------------------------------------------------------------------

    def rank(self, arcs: Sequence[int]) -> None:
        """The arcs with something to do, the most urgent first; all others count as urgent: nothing waits there."""
        above = [int(self.budget_bytes * FIRST_SPILLS_ABOVE)] * len(self._above)
        rank = [-1] * len(above)
        step = (FIRST_SPILLS_ABOVE - LAST_SPILLS_ABOVE) / max(1, len(arcs) - 1)
        for place, arc in enumerate(arcs):
            above[arc] = int(self.budget_bytes * (FIRST_SPILLS_ABOVE - step * place))
            rank[arc] = place
        with self._lock:
            self._above, self._rank = above, rank

    def is_cut(self, arc: int) -> bool:
        """Something older than what comes now waits on this arc and cannot be taken yet."""
        return bool(self._blocks[arc])

    # -- trains -------------------------------------------------------------------------------------------------------

    def enqueue(self, arcs: Sequence[int], train: Train) -> int:
        train = train.at_rest()
        nbytes = train.nbytes
        with self._lock:
            stay = tuple([a for a in arcs if self._stays(a, nbytes)])
            if stay:
                self._put(stay, train, nbytes)
            if len(stay) < len(arcs):
                self._spill(tuple([a for a in arcs if a not in stay]) if stay else tuple(arcs), train, nbytes)
            self._note_use()
            busy = bool(self._hungry or self._to_write)
        if stay:
            self._nudge()
        if busy:
            self._wake()
        return TOLD

    def _stays(self, arc: int, nbytes: int) -> bool:
        if self._blocks[arc]:
            return False
        if not self._spillable[arc] or self.queues[arc].nbytes + nbytes <= self.pin_bytes:
            return True
        return self.used_bytes + nbytes <= self._above[arc]

    def _put(self, arcs: tuple[int, ...], train: Train, nbytes: int) -> None:
        lease = Lease(nbytes, len(arcs))
        for arc in arcs:
            self.queues[arc].put(train, lease)
        self.used_bytes += nbytes
        self._tell(arcs, train, nbytes)

    def _spill(self, arcs: tuple[int, ...], train: Train, nbytes: int) -> None:
        """At the end of these arcs: into the block that is open for just them, or into a new one."""
        tail = self._blocks[arcs[0]][-1] if self._blocks[arcs[0]] else None
        if tail is None or not tail.is_open or tail.arcs != arcs:
            for arc in arcs:
                if self._blocks[arc] and self._blocks[arc][-1].is_open:
                    self._seal(self._blocks[arc][-1])
            tail = Block(arcs)
            for arc in arcs:
                self.cut_arcs += not self._blocks[arc]
                self._blocks[arc].append(tail)
        tail.add(train, nbytes)
        self.used_bytes += nbytes
        if tail.nbytes >= self._block_bytes:
            self._seal(tail)
        for arc in arcs:
            self.spilled_tuples[arc] += train.count
            self.spilled_bytes[arc] += nbytes
            self.queues[arc].enqueued += train.count
            if self.queues[arc].nbytes < self.ahead_bytes:
                self._hungry[arc] = None

    def _seal(self, block: Block) -> None:
        block.is_open = False
        self._to_write.append(block)

    def _note_use(self) -> None:
        if self.used_bytes >= self.budget_bytes:
            self._has_room = False
        if self.used_bytes > self.peak_bytes:
            self.peak_bytes = self.used_bytes

    def take(self, arc: int, tuples: int, trains: int) -> tuple[list[Train], int, int]:
        taken = super().take(arc, tuples, trains)
        self._look_ahead(arc)
        return taken

    def expire(self, arc: int, tuples: int, trains: int) -> tuple[list[Train], int, int]:
        dropped = super().expire(arc, tuples, trains)
        self._look_ahead(arc)
        return dropped

    def _look_ahead(self, arc: int) -> None:
        if self._blocks[arc] and self.queues[arc].nbytes < self.ahead_bytes:
            with self._lock:
                if self._blocks[arc]:
                    self._hungry[arc] = None
        if self._hungry or self._to_write:
            self._wake()

    # -- the spill thread ---------------------------------------------------------------------------------------------

    def step(self) -> bool:
        """One block in or out; whether there was anything to do."""
        return self._load() or self._write()

    def _load(self) -> bool:
        with self._lock:
            arc = self._to_load()
            if arc is None:
                return False
            block = self._blocks[arc][0]
            if block.is_open:
                self._seal(block)  # whatever comes now goes behind it
            arcs = tuple([a for a in block.arcs if self._blocks[a] and self._blocks[a][0] is block and self._may(a)])
            trains, ref = block.trains, block.ref
        if trains is None:
            assert ref is not None
            trains = self._read(arcs, block, ref)
        with self._lock:
            room_again = self._give_back(arcs, block, trains)
        self._nudge()
        if room_again and self._on_room is not None:
            self._on_room()
        return True

    def _to_load(self) -> int | None:
        """The most urgent of the arcs that may have their next block; forgets those that need none."""
        for arc in [a for a in self._hungry if not self._blocks[a] or self.queues[a].nbytes >= self.ahead_bytes]:
            del self._hungry[arc]
        may = [a for a in self._hungry if self._may(a)]
        return min(may, key=lambda a: (self._rank[a], a)) if may else None

    def _may(self, arc: int) -> bool:
        """An arc with nothing in memory always may: else it would wait for ever behind arcs that are blocked."""
        queue = self.queues[arc]
        if queue.nbytes >= self.ahead_bytes:
            return False
        return not queue.entries or self.used_bytes < self.budget_bytes * LOAD_BELOW

    def _read(self, arcs: tuple[int, ...], block: Block, ref: Ref) -> list[Train]:
        try:
            return self.spill.read(ref, self._schemas[arcs[0]])
        except (SpillDamageError, OSError) as error:
            # Nothing can be computed from it. The tuples are gone, and counted as such; the arc goes on behind them.
            log.error("%d tuples on %d arcs are lost: %s", block.tuples, len(arcs), error)
            with self._lock:
                for arc in arcs:
                    self.damaged[arc] += block.tuples
            return []

    def _give_back(self, arcs: tuple[int, ...], block: Block, trains: list[Train]) -> bool:
        was_in_memory = block.trains is not None
        for arc in arcs:
            found = self._blocks[arc].popleft()
            assert found is block
            self.cut_arcs -= not self._blocks[arc]
            self.spilled_tuples[arc] -= block.tuples
            self.spilled_bytes[arc] -= block.nbytes
            self.queues[arc].enqueued -= sum([t.count for t in trains])  # put counts them a second time
        block.waiting -= len(arcs)
        if was_in_memory and not block.waiting:
            self.used_bytes -= block.nbytes
            block.trains = None
        for train in trains:
            self._put(arcs, train, train.nbytes)
        self._note_use()
        if not block.waiting and block.ref is not None:
            self.spill.release(block.ref)
        return self._free([])

    def _write(self) -> bool:
        with self._lock:
            if self.used_bytes < self.budget_bytes * WRITE_ABOVE:
                return False
            block = self._next_to_write()
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
                self._to_write.appendleft(block)
            return False
        self.disk_full = False
        with self._lock:
            block.ref = ref
            block.trains = None
            self.used_bytes -= block.nbytes
            room_again = self._free([])
        if room_again and self._on_room is not None:
            self._on_room()
        return True

    def _next_to_write(self) -> Block | None:
        while self._to_write:
            block = self._to_write.popleft()
            if block.waiting:
                return block
        return None

    # -- looking in ---------------------------------------------------------------------------------------------------

    def readings(self, names: Sequence[str]) -> list[ArcReading]:
        with self._lock:
            return [
                ArcReading(
                    name, q.tuples, q.nbytes, q.enqueued, q.dequeued, self._dropped(a, q),
                    self.spilled_tuples[a], self.spilled_bytes[a],
                )
                for a, (name, q) in enumerate(zip(names, self.queues, strict=True))
            ]  # fmt: skip

    def _dropped(self, arc: int, queue: ArcQueue) -> Mapping[str, int]:
        dropped = dropped_of(queue)
        return {**dropped, "damaged": self.damaged[arc]} if self.damaged[arc] else dropped

    def is_empty(self) -> bool:
        with self._lock:
            return not any(q.entries or b for q, b in zip(self.queues, self._blocks, strict=True))

    @property
    def spill_bytes(self) -> int:
        return self.spill.disk_bytes

    def contents(self) -> list[ArcContent]:
        with self._lock:
            frozen = {id(b): b.frozen() for blocks in self._blocks for b in blocks}
            return [
                ArcContent(
                    [t for t, _ in q.entries],
                    [frozen[id(b)] for b in blocks],
                    (q.enqueued, q.dequeued, q.shed + self.damaged[a], q.expired),
                )
                for a, (q, blocks) in enumerate(zip(self.queues, self._blocks, strict=True))
            ]

    def restore(self, arcs: Mapping[int, Saved], blocks: Sequence[SavedBlock]) -> None:
        holders: dict[int, list[int]] = {}
        for arc, (trains, numbers, counts) in arcs.items():
            self._recount(arc, trains, counts)
            for train in trains:
                self.readmit((arc,), train)
            for number in numbers:
                holders.setdefault(number, []).append(arc)
        with self._lock:
            made = {number: self._restored(tuple(on), blocks[number]) for number, on in holders.items()}
            for arc, (_, numbers, _) in arcs.items():
                # In the order of each arc: two that share a block may have others of their own before it.
                for number in numbers:
                    self._append_block(arc, made[number])
        self._wake()

    def _restored(self, arcs: tuple[int, ...], saved: SavedBlock) -> Block:
        block = Block(arcs)
        block.is_open = False
        block.ref, block.nbytes, block.tuples = saved.ref, saved.nbytes, saved.tuples
        block.trains = None
        if saved.ref is None:
            block.trains = list(saved.trains)
            self.used_bytes += block.nbytes
            self._to_write.append(block)
        return block

    def _append_block(self, arc: int, block: Block) -> None:
        self.cut_arcs += not self._blocks[arc]
        self._blocks[arc].append(block)
        self.spilled_tuples[arc] += block.tuples
        self.spilled_bytes[arc] += block.nbytes
        self._hungry[arc] = None

    def live_refs(self) -> Iterable[Ref]:
        return [b.ref for blocks in self._blocks for b in blocks if b.ref is not None]
