"""An arc's queue: trains in order of arrival, taken by count of tuples.

Not thread-safe: the storage manager's lock guards all queues (one lock for a fan-out to two hundred arcs is cheaper
than two hundred locks). The counts satisfy the arc's law whenever nothing moves:
enqueued = dequeued + shed + expired + in memory + on disk.
"""

from __future__ import annotations

from collections import deque

from storage.strings import StringPool
from storage.train import Train

ALL = 2**62  # a count of tuples that no queue reaches: take everything

COALESCE_BELOW = 2_048
"""Shorter trains are joined when they are taken together. A box call costs about 20 us at any length, so one train of a
hundred tuples is better than a hundred trains of one tuple; joining trains of 10,000 would only copy them."""


class Lease:
    """The bytes of one train in the budget, counted once. Every queue that the train waits in holds it, and then the
    plan that has taken it from there."""

    __slots__ = ("holders", "nbytes", "pools", "queues")

    def __init__(self, nbytes: int, queues: int, pools: tuple[StringPool, ...] = ()) -> None:
        self.nbytes = nbytes
        self.pools = pools  # whose strings are counted beside these bytes
        self.queues = queues  # that the train waits in
        self.holders = queues  # these, the plans that have not ended, and a checkpoint that is being written


class ArcQueue:
    """FIFO of (train, lease). Owner: the storage manager, under its lock."""

    __slots__ = ("dequeued", "enqueued", "entries", "expired", "nbytes", "shed", "tuples")

    def __init__(self) -> None:
        self.entries: deque[tuple[Train, Lease]] = deque()
        self.tuples = 0  # in memory now
        self.nbytes = 0
        self.enqueued = 0  # tuples since the start
        self.dequeued = 0
        self.shed = 0
        self.expired = 0  # dropped from the head: their deadline was out of reach

    def put(self, train: Train, lease: Lease) -> None:
        self.entries.append((train, lease))
        self.tuples += train.count
        self.nbytes += lease.nbytes
        self.enqueued += train.count

    def take(self, tuples: int, trains: int) -> tuple[list[Train], list[Lease]]:
        """Take up to ``tuples`` tuples of the first ``trains`` trains; return them and the leases of whole trains.

        A train is split only when nothing else could be taken: two halves of a train cost two box calls. The rest of a
        split train keeps the whole lease, because it is a view into the same memory. Punctuations (trains without
        tuples) are taken together with the tuples before them.
        """
        taken: list[Train] = []
        freed: list[Lease] = []
        left = tuples
        entries = self.entries
        while entries and len(freed) < trains:
            train, lease = entries[0]
            if train.count > left:
                if left == tuples > 0:
                    head, rest = train.split(left)
                    entries[0] = (rest, lease)
                    taken.append(head)
                    left = 0
                break
            entries.popleft()
            taken.append(train)
            freed.append(lease)
            self.nbytes -= lease.nbytes
            left -= train.count
        self.tuples -= tuples - left
        self.dequeued += tuples - left
        return taken, freed

    def expire(self, tuples: int, trains: int) -> tuple[list[Train], list[Lease]]:
        """Remove exactly the first ``tuples`` tuples, like ``take``, and count them as expired."""
        taken, freed = self.take(tuples, trains)
        count = sum([t.count for t in taken])
        if count < tuples and len(freed) < trains:  # the train after them has to be split
            more, last = self.take(tuples - count, trains - len(freed))
            taken, freed = taken + more, freed + last
            count = sum([t.count for t in taken])
        self.dequeued -= count
        self.expired += count
        return taken, freed

    def copy(self) -> ArcQueue:
        """Return a queue of another arc with the same trains. Its counts begin with them."""
        other = ArcQueue()
        other.entries = deque(self.entries)
        other.tuples = other.enqueued = self.tuples
        other.nbytes = self.nbytes
        return other

    @property
    def residual(self) -> int:
        """The difference in the arc's law; anything but 0 is a bug."""
        return self.enqueued - self.dequeued - self.shed - self.expired - self.tuples


def coalesce(trains: list[Train], target: int = 4 * COALESCE_BELOW) -> list[Train]:
    """Join short neighbours, up to about ``target`` tuples; leave long trains as they are."""
    if len(trains) <= 1 or min([t.count for t in trains]) >= COALESCE_BELOW:
        return trains
    out: list[Train] = []
    run: list[Train] = []
    size = 0
    for train in trains:
        if train.count >= COALESCE_BELOW or size + train.count > target:
            if run:
                out.append(Train.concat(run))
            run, size = [], 0
        if train.count >= COALESCE_BELOW:
            out.append(train)
        else:
            run.append(train)
            size += train.count
    if run:
        out.append(Train.concat(run))
    return out
