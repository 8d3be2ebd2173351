"""A state that is larger than its memory: parts by the hash of the key, most of them on disk.

**In.** A tuple does not go to its part at once. It waits in a buffer (``put``), and with it the watermark at which it
came. When the buffer is full it is sorted by part (``sort``). When too many tuples wait in memory they go to disk
behind their part (``write_waiting``).

**Work.** A part is taken into memory, its waiting tuples run in the order of their arrival, and it advances to the
present watermark (``catch_up``). So each key sees exactly what it would have seen in a state of one piece, only later:
all results are the same, to the last bit of a sum. Tuples of several trains run as one train where no result can depend
on it: no tuple is below the watermark that came between them.

A part has work when it is *due* (its watermark has passed the end of a window in it) or, for a box that emits at once,
when tuples wait for it. The part with the most waiting tuples is first, so that each load of a part serves many.

**Size.** A part that outgrows its share is split by the next bits of the hash (``split``). The parts that were used
longest ago go to disk when memory is short (``shrink``). A part that has not changed is not written again.

Refused: a store that is asked key by key (SQLite with 32 MB of cache: 1.1 us for a new key and 1.7 us for a known one,
for a count and a sum alone; here 0.6 us a tuple, all included), and columns in a mapped file (no consistent copy for a
checkpoint without writing all of it, and the kernel decides what is resident).

Owned by the worker that runs the box.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.operators.bounded.hashing import KeyHash
from engine.operators.bounded.partition import Partition
from engine.operators.bounded.waiting import NEVER_NS, Waiting, WaitingBlock, merged
from engine.operators.boxes.base import Emit, Tally
from storage.files import StorageError
from storage.strings import StringPool
from storage.train import NO_WATERMARK, Train

if TYPE_CHECKING:
    from engine.operators.bounded.box import OpenFiles
    from engine.operators.boxes.keyed import KeyedBox
    from load_shedder.record.book import BoxLosses
    from storage.state_files import StateFiles

log = logging.getLogger("aurorad.state")

FIRST_BITS = 4
MORE_BITS = 2
MOST_BITS = 20
LOWEST_NS = -(2**63)
SMALLEST_BYTES = 64 * 1024
"""A part is not split below this: its files and its bookkeeping would cost more than it holds."""


class DividedState:
    def __init__(self, box: KeyedBox, name: str, files: StateFiles, hash: KeyHash, limit_bytes: int) -> None:
        self._box = box
        self._name = name  # of the box, for messages
        self._files = files
        self._hash = hash
        self.limit_bytes = limit_bytes
        self.losses: BoxLosses | None = None
        self.parts: list[Partition] = []  # by their first hash
        self._firsts = np.zeros(0, np.uint64)
        self.watermark_ns = NO_WATERMARK
        self._low_ns = NO_WATERMARK  # no result will come from below this watermark
        self._buffer: list[Waiting] = []
        self._buffer_bytes = 0
        self._pools: dict[int, StringPool] = {}  # of waiting tuples in memory
        self._next_due_ns = NEVER_NS  # of all parts and of the buffer; or below it
        self._resident: dict[int, Partition] = {}  # by first hash, the one that was used longest ago first
        self._part_waiting_bytes = 0  # of tuples that wait for parts, in memory
        self._block_waiting_bytes = 0  # the same on disk
        self.waiting_tuples = 0
        self.silent_ns: int | None = None  # keys that were silent for that long are forgotten
        self.is_disk_full = False

    @classmethod
    def of(
        cls, box: KeyedBox, name: str, files: StateFiles, hash: KeyHash, limit_bytes: int, whole: Any, at_ns: int
    ) -> DividedState:
        """Divide a state of one piece that has advanced to ``at_ns``."""
        divided = cls(box, name, files, hash, limit_bytes)
        divided.watermark_ns = divided._low_ns = at_ns
        part = Partition(0, 0, at_ns)
        part.state = whole
        divided._set_parts([part])
        divided._resident[part.first] = part
        divided._measure(part)
        divided.split(part, FIRST_BITS)
        divided._find_next_due()
        return divided

    def _find_next_due(self) -> None:
        self._next_due_ns = min([self._due_ns(part) for part in self.parts])

    def _set_parts(self, parts: list[Partition]) -> None:
        self.parts = sorted(parts, key=lambda part: part.first)
        self._firsts = np.array([part.first for part in self.parts], np.uint64)

    # -- sizes --------------------------------------------------------------------------------------------------------

    @property
    def nbytes(self) -> int:
        return self._waiting_bytes + sum([part.nbytes for part in list(self._resident.values())])

    @property
    def _waiting_bytes(self) -> int:
        pools = sum([pool.nbytes for pool in list(self._pools.values())])
        return self._buffer_bytes + pools + self._part_waiting_bytes

    @property
    def keys(self) -> int:
        return sum([part.keys for part in list(self.parts)])

    @property
    def held(self) -> int:
        return self.waiting_tuples + sum([part.held for part in list(self.parts)])

    @property
    def disk_bytes(self) -> int:
        return self._files.disk_bytes

    # -- tuples come in -----------------------------------------------------------------------------------------------

    def put(self, port: int, train: Train, tally: Tally) -> None:
        """Have tuples wait for their parts."""
        box = self._box
        times = box.times_of(port, train)
        low_ns = int(times.min())
        is_exact = low_ns < self.watermark_ns or box.goes_by_train
        self._buffer.append(Waiting(port, self.watermark_ns, is_exact, low_ns, train.with_watermark(NO_WATERMARK)))
        self._buffer_bytes += train.nbytes
        for pool in train.pools:
            if pool is not None:
                self._pools[id(pool)] = pool
        self._next_due_ns = min(self._next_due_ns, box.first_due_ns(low_ns))
        tally.waiting += train.count
        self.waiting_tuples += train.count
        if self._buffer_bytes > self.limit_bytes // 8:
            self.sort()
        if self._waiting_bytes > self.limit_bytes // 4:
            self.write_waiting()

    def sort(self) -> None:
        """Bring the tuples of the buffer to their parts."""
        buffer, self._buffer, self._buffer_bytes = self._buffer, [], 0
        for item in merged(buffer):
            self._route(item)

    def _route(self, item: Waiting) -> None:
        train = item.train
        hashes = self._hash.of(self._box.key_of(item.port, train), train.count)
        at = np.searchsorted(self._firsts, hashes, "right") - 1
        order = np.argsort(at, kind="stable")
        ends = np.cumsum(np.bincount(at, minlength=len(self.parts)))
        times = self._box.times_of(item.port, train)
        start = 0
        for number in np.unique(at).tolist():
            rows = order[start : ends[number]]
            start = int(ends[number])
            small = item._replace(low_ns=int(times.take(rows).min()), train=train.take(rows))
            self.parts[number].put(small)
            self._part_waiting_bytes += small.train.nbytes

    def write_waiting(self) -> None:
        """Move all waiting tuples to disk, behind their parts."""
        self.sort()
        for part in self.parts:
            if part.waiting and part.state is None and not self._write_block(part):
                return
        if not self._part_waiting_bytes:
            self._pools.clear()

    def _write_block(self, part: Partition) -> bool:
        data = [list(item) for item in merged(part.waiting)]
        try:
            ref = self._files.write_data(data)
        except OSError as error:
            self._note_full(error)
            return False
        self.is_disk_full = False
        part.blocks.append(WaitingBlock(ref, sum([item.train.count for item in part.waiting])))
        self._block_waiting_bytes += ref.size
        self._part_waiting_bytes -= part.waiting_bytes
        part.waiting, part.waiting_bytes = [], 0
        return True

    def _note_full(self, error: OSError) -> None:
        if not self.is_disk_full:
            log.warning("box %s cannot put state on disk: %s; it stays in memory", self._name, error)
        self.is_disk_full = True

    # -- which part next ----------------------------------------------------------------------------------------------

    def advance(self, watermark_ns: int) -> None:
        """Take note of a new watermark. ``work`` closes what is due."""
        self.watermark_ns = watermark_ns

    @property
    def has_due(self) -> bool:
        return self.watermark_ns >= self._next_due_ns

    @property
    def has_work(self) -> bool:
        """Whether results could come out without a new tuple or watermark."""
        return self.has_due or (self._box.emits_at_once and self.waiting_tuples > 0)

    @property
    def is_crowded(self) -> bool:
        """Whether more tuples wait than is good: each load of a part should serve many, but they take space."""
        if not self._box.emits_at_once:
            return False
        allowed = max(self.limit_bytes // 2, self._files.disk_bytes // 4)
        return self._block_waiting_bytes + self._waiting_bytes > allowed

    def work(self, emit: Emit, tally: Tally) -> bool:
        """Bring the part with the most urgent work up to date. False when no part has work."""
        self.sort()
        part = self._next_part()
        if part is None:
            return False
        self.catch_up(part, emit, tally)
        self.shrink(self.limit_bytes)
        return True

    def _next_part(self) -> Partition | None:
        due = [part for part in self.parts if self._due_ns(part) <= self.watermark_ns]
        if not due:
            self._find_next_due()
            if self._box.emits_at_once:
                due = [part for part in self.parts if part.waiting_tuples]
        # Parts in memory first: they need no disk, and free memory.
        return max(due, key=lambda part: (part.state is not None, part.waiting_tuples), default=None)

    def _due_ns(self, part: Partition) -> int:
        return min(part.due_ns, self._box.first_due_ns(part.low_ns)) if part.waiting_tuples else part.due_ns

    def low_ns(self) -> int:
        """Return the watermark of which all results are out."""
        low_ns = self.watermark_ns
        if self.has_due:
            self.sort()
            due = [part.watermark_ns for part in self.parts if self._due_ns(part) <= self.watermark_ns]
            low_ns = min([low_ns, *due])
        if self._box.emits_at_once:
            since = [item.since_ns for item in self._buffer] + [part.since_ns for part in self.parts]
            low_ns = min([low_ns, *since])
        self._low_ns = max(self._low_ns, low_ns)
        return self._low_ns

    # -- work on one part ---------------------------------------------------------------------------------------------

    def catch_up(self, part: Partition, emit: Emit, tally: Tally) -> None:
        """Run the tuples that wait for a part, and advance it to the present watermark."""
        self._load(part, tally)
        box = self._box
        items = self._waiting_of(part, tally)
        self._part_waiting_bytes -= part.waiting_bytes
        part.none_waits()
        for item in items:
            if item.is_exact and item.since_ns > part.watermark_ns:
                box.advance(part.state, item.since_ns, emit, tally)
                part.watermark_ns = item.since_ns
            self._count_run(item.train.count, tally)
            box.run(part.state, item.port, item.train, emit, tally)
            part.is_clean = False
            self._measure(part)
            if part.nbytes > max(self.limit_bytes // 4, SMALLEST_BYTES) and part.bits < MOST_BITS and part.keys > 1:
                self.split(part, MORE_BITS)
                self._route_all(items)
                return  # the new parts have work of their own
        if self.watermark_ns > part.watermark_ns:
            box.advance(part.state, self.watermark_ns, emit, tally)
            part.watermark_ns = self.watermark_ns
            part.is_clean = False
        self._forget_silent(part, tally)
        self._measure(part)
        part.due_ns = max(part.due_ns, self.watermark_ns + 1)

    def _count_run(self, tuples: int, tally: Tally) -> None:
        tally.waiting -= tuples
        self.waiting_tuples -= tuples

    def _forget_silent(self, part: Partition, tally: Tally) -> None:
        if self.silent_ns is None or self.watermark_ns == NO_WATERMARK:
            return
        last_ns = self._box.last_ns(part.state)
        live = last_ns > self.watermark_ns - self.silent_ns
        if 2 * np.count_nonzero(live) < live.shape[0]:
            tally.evicted += int(np.count_nonzero(~live & (last_ns > LOWEST_NS)))
            part.state = self._box.restore(self._box.snapshot_of(part.state, np.append(live, True)))
            part.is_clean = False

    def _route_all(self, items: Iterable[Waiting]) -> None:
        for item in items:
            self._route(item)
            if self._waiting_bytes > self.limit_bytes // 4:
                self.write_waiting()

    def _waiting_of(self, part: Partition, tally: Tally) -> Iterator[Waiting]:
        """Yield the tuples that wait for a part, in order, in trains as long as may be."""
        blocks, waiting = part.blocks, part.waiting

        def items() -> Iterator[Waiting]:
            for block in blocks:
                try:
                    data = self._files.read_data(block.ref)
                except (StorageError, OSError) as error:
                    log.error("%d tuples that waited for box %s are lost: %s", block.tuples, self._name, error)
                    self._count_run(block.tuples, tally)
                    tally.dead += block.tuples
                    data = []
                self._files.release(block.ref)
                self._block_waiting_bytes -= block.ref.size
                yield from [Waiting(*item) for item in data]
            yield from waiting

        return merged(items())

    def _load(self, part: Partition, tally: Tally) -> None:
        self._resident.pop(part.first, None)
        self._resident[part.first] = part  # used last
        if part.state is not None:
            return
        box = self._box
        if part.ref is None:
            part.state = box.new_state()
            if part.watermark_ns != NO_WATERMARK:
                box.advance(part.state, part.watermark_ns, _emit_nothing, Tally())
        else:
            try:
                part.state = box.restore(self._files.read_data(part.ref))
            except (StorageError, OSError) as error:
                log.error("%d keys of box %s are lost: %s", part.keys, self._name, error)
                tally.evicted += part.keys
                self._files.release(part.ref)
                part.ref = None
                self._load(part, tally)
                return
        part.is_clean = part.ref is not None
        if self.losses is not None:
            box.watch_losses(part.state, self.losses)

    def _measure(self, part: Partition) -> None:
        box, state = self._box, part.state
        part.nbytes = box.state_nbytes(state)
        part.is_empty = box.is_empty(state)
        part.keys = 0 if part.is_empty else box.state_keys(state)
        part.held = box.held_tuples(state)
        part.due_ns = box.due_ns(state)

    def split(self, part: Partition, more_bits: int) -> None:
        """Replace a resident part by smaller ones, by the next bits of the hash. They go to disk."""
        box, state = self._box, part.state
        keys = box.keys_in(state)
        hashes = self._hash.of(keys.vectors(np.arange(keys.count)), keys.count)
        shift = 64 - part.bits - more_bits
        child = ((hashes >> np.uint64(shift)) & np.uint64((1 << more_bits) - 1)).astype(np.int64)
        parts = []
        del self._resident[part.first]
        for number in range(1 << more_bits):
            small = Partition(part.first + (number << shift), part.bits + more_bits, part.watermark_ns)
            chosen = np.append(child == number, number == 0)
            small.state = box.restore(box.snapshot_of(state, chosen))
            self._measure(small)
            if not self._store(small):
                self._resident[small.first] = small
            parts.append(small)
        if part.ref is not None:
            self._files.release(part.ref)
        self._set_parts([*[p for p in self.parts if p is not part], *parts])

    # -- memory -------------------------------------------------------------------------------------------------------

    def shrink(self, limit_bytes: int) -> None:
        """Put the parts that were used longest ago on disk until the rest fits."""
        self.limit_bytes = limit_bytes
        if self._waiting_bytes > limit_bytes // 4:
            self.write_waiting()
        left = self.nbytes
        for part in list(self._resident.values()):
            if left <= limit_bytes:
                return
            before = part.nbytes
            if not self._store(part):
                return
            left -= before

    def _store(self, part: Partition) -> bool:
        """Put a resident part on disk, and forget it in memory. False when there is no room on disk."""
        if not part.is_clean:
            try:
                ref = self._files.write_data(self._box.snapshot(part.state)) if not part.is_empty else None
            except OSError as error:
                self._note_full(error)
                return False
            self.is_disk_full = False
            if part.ref is not None:
                self._files.release(part.ref)
            part.ref = ref
        part.state, part.nbytes, part.is_clean = None, 0, False
        self._resident.pop(part.first, None)
        return True

    @property
    def is_nearly_empty(self) -> bool:
        """Whether a state of one piece would do again: no part has a key, and the tuples that wait are few."""
        if self._waiting_bytes > self.limit_bytes // 8 or any(item.is_exact for item in self._buffer):
            return False
        return not any(not p.is_empty or p.blocks or any(i.is_exact for i in p.waiting) for p in self.parts)

    def in_one_piece(self, emit: Emit, tally: Tally) -> Any:
        """Return the state in one piece, with the tuples that waited. Everything on disk is released."""
        self.sort()
        box, whole = self._box, self._box.new_state()
        begun_ns = min([part.watermark_ns for part in self.parts])
        if begun_ns != NO_WATERMARK:
            box.advance(whole, begun_ns, _emit_nothing, Tally())
        if self.losses is not None:
            box.watch_losses(whole, self.losses)
        for item in merged([item for part in self.parts for item in part.waiting]):
            self._count_run(item.train.count, tally)
            box.run(whole, item.port, item.train, emit, tally)
        if self.watermark_ns > begun_ns:
            box.advance(whole, self.watermark_ns, emit, tally)
        self.discard()
        return whole

    # -- as plain data ------------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        return {
            "seed": self._hash.seed,
            "watermarks_ns": [self.watermark_ns, self._low_ns],
            "parts": [
                part.snapshot(
                    None if part.state is None or part.is_clean else self._box.snapshot(part.state),
                )
                for part in self.parts
            ],
            "buffer": [list(item) for item in self._buffer],
        }

    @classmethod
    def restored(
        cls, box: KeyedBox, name: str, open_files: OpenFiles, limit_bytes: int, data: dict[str, Any]
    ) -> DividedState:
        """Return the state of a checkpoint."""
        parts = [Partition.restored(saved) for saved in data["parts"]]
        files = open_files([ref for part in parts for ref in part.refs])
        divided = cls(box, name, files, KeyHash(int(data["seed"])), limit_bytes)
        divided.watermark_ns, divided._low_ns = data["watermarks_ns"]
        divided._set_parts(parts)
        for part, saved in zip(parts, data["parts"], strict=True):
            if saved["state"] is not None:
                part.state = box.restore(saved["state"])
                divided._resident[part.first] = part
                divided._measure(part)
        divided._buffer = [Waiting(*item) for item in data["buffer"]]
        divided._buffer_bytes = sum([item.train.nbytes for item in divided._buffer])
        divided.waiting_tuples = sum([item.train.count for item in divided._buffer])
        divided.waiting_tuples += sum([part.waiting_tuples for part in parts])
        divided._part_waiting_bytes = sum([part.waiting_bytes for part in parts])
        divided._block_waiting_bytes = sum([block.ref.size for part in parts for block in part.blocks])
        divided._next_due_ns = NO_WATERMARK  # the next call looks at all parts
        return divided

    def discard(self) -> None:
        """Release everything on disk: the state is not needed any more."""
        for part in self.parts:
            for ref in part.refs:
                self._files.release(ref)


def _emit_nothing(port: int, train: Train) -> None:
    assert not train.count, "an empty state has no results"
