"""Blocks of spilled trains, in order for each arc.

A block is a run of trains that wait on the same arcs. It begins open and in memory, and takes new trains at its end. At
``block_bytes`` it is sealed, and waits to be written. On disk it is only a ``BlockRef``. A block may go back to memory
at any of these stages.

Several arcs may share a block, because a box's output often goes to many arcs. Each arc returns the block to memory at
its own time, so ``Block.waiting`` counts the arcs that have not done so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from storage.block_ref import BlockRef
from storage.manager import SavedBlock
from storage.train import Train


class Block:
    """Trains that wait on these arcs: in memory while ``trains`` is not None, on disk once ``ref`` is not None."""

    __slots__ = ("arcs", "is_open", "nbytes", "ref", "trains", "tuples", "waiting")

    def __init__(self, arcs: tuple[int, ...]) -> None:
        self.arcs = arcs
        self.trains: list[Train] | None = []
        self.nbytes = 0
        self.tuples = 0
        self.ref: BlockRef | None = None
        self.waiting = len(arcs)  # arcs on which it still waits
        self.is_open = True

    @classmethod
    def restored(cls, arcs: tuple[int, ...], saved: SavedBlock) -> Block:
        """Return a block of a checkpoint, sealed."""
        block = cls(arcs)
        block.is_open = False
        block.ref, block.nbytes, block.tuples = saved.ref, saved.nbytes, saved.tuples
        block.trains = list(saved.trains) if saved.ref is None else None
        return block

    def add(self, train: Train, nbytes: int) -> None:
        assert self.trains is not None
        self.trains.append(train)
        self.nbytes += nbytes
        self.tuples += train.count

    def frozen(self) -> Block:
        """Return a copy for a checkpoint, which later changes of this block do not reach."""
        copy = Block(self.arcs)
        copy.trains = None if self.trains is None else list(self.trains)
        copy.nbytes, copy.tuples, copy.ref = self.nbytes, self.tuples, self.ref
        return copy


class BlockQueues:
    """The blocks of every arc, oldest first. Owner: the spilling storage manager, under its lock."""

    def __init__(self, arcs: int, block_bytes: int) -> None:
        self.by_arc: list[deque[Block]] = [deque() for _ in range(arcs)]
        self.tuples = [0] * arcs  # in blocks, by arc
        self.nbytes = [0] * arcs  # in blocks, by arc
        self.spilled_arcs = 0  # arcs with at least one block
        self._block_bytes = block_bytes
        self._to_write: deque[Block] = deque()  # sealed and in memory; some may be back on their arcs already

    def append(self, arcs: tuple[int, ...], train: Train, nbytes: int) -> None:
        """Put a train at the end of these arcs: into the block that is open for exactly them, or into a new one."""
        first = self.by_arc[arcs[0]]
        tail = first[-1] if first else None
        if tail is None or not tail.is_open or tail.arcs != arcs:
            tail = self._new_tail(arcs)
        tail.add(train, nbytes)
        if tail.nbytes >= self._block_bytes:
            self.seal(tail)
        for arc in arcs:
            self.tuples[arc] += train.count
            self.nbytes[arc] += nbytes

    def _new_tail(self, arcs: tuple[int, ...]) -> Block:
        tail = Block(arcs)
        for arc in arcs:
            blocks = self.by_arc[arc]
            if blocks and blocks[-1].is_open:
                self.seal(blocks[-1])
            self._push(arc, tail)
        return tail

    def _push(self, arc: int, block: Block) -> None:
        self.spilled_arcs += not self.by_arc[arc]
        self.by_arc[arc].append(block)

    def seal(self, block: Block) -> None:
        """Close a block to new trains, and queue it for writing."""
        block.is_open = False
        self._to_write.append(block)

    def pop(self, arcs: Iterable[int], block: Block) -> None:
        """Remove a block from the head of these arcs."""
        for arc in arcs:
            found = self.by_arc[arc].popleft()
            assert found is block
            self.spilled_arcs -= not self.by_arc[arc]
            self.tuples[arc] -= block.tuples
            self.nbytes[arc] -= block.nbytes
            block.waiting -= 1

    def restore(self, arc: int, block: Block) -> None:
        """Put a block of a checkpoint at the end of an arc."""
        self._push(arc, block)
        self.tuples[arc] += block.tuples
        self.nbytes[arc] += block.nbytes

    def take_over(self, other: BlockQueues, arcs: Mapping[int, int]) -> list[Block]:
        """Take the blocks of another network's arcs. ``arcs`` leads from arcs here to arcs there. Returns the blocks
        for which no arc here waits."""
        holders: dict[int, list[int]] = {}
        for here, there in arcs.items():
            for block in other.by_arc[there]:
                holders.setdefault(id(block), []).append(here)
        for here, there in arcs.items():
            for block in other.by_arc[there]:
                self.restore(here, block)
        known = {id(block): block for blocks in other.by_arc for block in blocks}
        for block in known.values():
            block.arcs = tuple(holders.get(id(block), ()))
            block.waiting = len(block.arcs)
            if block.is_open and block.waiting:
                self.seal(block)  # its arcs may be others than those that new trains go to together
        self._to_write.extend(block for block in other._to_write if block.waiting)
        return [block for block in known.values() if not block.waiting]

    # -- writing ------------------------------------------------------------------------------------------------------

    @property
    def has_writes(self) -> bool:
        return bool(self._to_write)

    def next_write(self) -> Block | None:
        """Take the oldest sealed block that an arc still waits for off the queue for writing."""
        while self._to_write:
            block = self._to_write.popleft()
            if block.waiting:
                return block
        return None

    def retry_write(self, block: Block) -> None:
        """Put a block that could not be written back at the head of the queue for writing."""
        self._to_write.appendleft(block)

    def queue_write(self, block: Block) -> None:
        self._to_write.append(block)
