"""A part of a divided state: the keys whose hashes lie in one range."""

from __future__ import annotations

from typing import Any

from engine.operators.bounded.waiting import NEVER_NS, Waiting, WaitingBlock
from storage.block_ref import BlockRef


class Partition:
    """Resident while ``state`` is not None. Then nothing waits but in ``waiting``, for a moment.

    Not resident: its state is the block at ``ref``, or empty if that is None.
    """

    __slots__ = (
        "bits", "blocks", "due_ns", "first", "held", "is_clean", "is_empty", "keys", "low_ns", "nbytes",
        "ref", "since_ns", "state", "waiting", "waiting_bytes", "waiting_tuples", "watermark_ns",
    )  # fmt: skip

    def __init__(self, first: int, bits: int, watermark_ns: int) -> None:
        self.first = first  # the lowest hash; the range has 2 ** (64 - bits)
        self.bits = bits
        self.watermark_ns = watermark_ns  # to which the state has advanced
        self.state: Any = None
        self.ref: BlockRef | None = None
        self.is_clean = False  # the block at ``ref`` is the state
        self.nbytes = 0  # of the state in memory
        self.keys = 0
        self.is_empty = True  # a new state is as good
        self.held = 0  # tuples without their results
        self.due_ns = NEVER_NS  # the lowest watermark at which the state may give a result
        self.blocks: list[WaitingBlock] = []  # tuples that wait on disk; they come before ``waiting``
        self.waiting: list[Waiting] = []
        self.waiting_bytes = 0  # in memory
        self.waiting_tuples = 0  # in memory and on disk
        self.low_ns = NEVER_NS  # the lowest event time of the waiting tuples
        self.since_ns = NEVER_NS  # the lowest ``since_ns`` of them

    def put(self, item: Waiting) -> None:
        self.waiting.append(item)
        self.waiting_bytes += item.train.nbytes
        self.waiting_tuples += item.train.count
        self.low_ns = min(self.low_ns, item.low_ns)
        self.since_ns = min(self.since_ns, item.since_ns)

    def none_waits(self) -> None:
        """Take note that all waiting tuples have run."""
        self.waiting, self.blocks = [], []
        self.waiting_bytes = self.waiting_tuples = 0
        self.low_ns = self.since_ns = NEVER_NS

    # -- as plain data ------------------------------------------------------------------------------------------------

    def snapshot(self, state: Any) -> dict[str, Any]:
        """``state`` is the plain data of a resident state that no block has, else None."""
        return {
            "first": self.first,
            "numbers": [self.bits, self.watermark_ns, self.keys, self.held, self.due_ns, self.low_ns, self.since_ns],
            "ref": None if self.ref is None or (self.state is not None and not self.is_clean) else list(self.ref),
            "state": state,
            "blocks": [[list(block.ref), block.tuples] for block in self.blocks],
            "waiting": [list(item) for item in self.waiting],
        }

    @classmethod
    def restored(cls, data: dict[str, Any]) -> Partition:
        """Return a partition that is not resident. The owner restores ``data["state"]``, if there is one."""
        bits, watermark_ns, *numbers = data["numbers"]
        part = cls(int(data["first"]), bits, watermark_ns)
        part.keys, part.held, part.due_ns, low_ns, since_ns = numbers
        part.ref = None if data["ref"] is None else BlockRef(*data["ref"])
        part.is_empty = part.ref is None
        part.blocks = [WaitingBlock(BlockRef(*ref), tuples) for ref, tuples in data["blocks"]]
        part.waiting_tuples = sum([block.tuples for block in part.blocks])
        for item in data["waiting"]:
            part.put(Waiting(*item))
        part.low_ns, part.since_ns = low_ns, since_ns
        return part

    @property
    def refs(self) -> list[BlockRef]:
        """The blocks on disk that the partition needs."""
        return [*([] if self.ref is None else [self.ref]), *[block.ref for block in self.blocks]]
