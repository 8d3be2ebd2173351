"""Tuples at rest in the simulator: counts and arrival times, no columns.

A simulated train knows how many tuples it holds and when they arrived: as pieces, each with tuples evenly spaced
between two times. A filter thins all pieces alike, so it only changes the count; the pieces say how the count is spread
when latencies are recorded. ``take`` follows ``storage/queue`` exactly, so that the scheduler sees the same counts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

PIECES_AT_MOST = 8
"""Above this, neighbours are merged: a train joined from a thousand reads does not need a thousand pieces."""

TrainPiece = tuple[int, int, int]
"""Weight, first and last arrival of a part of a train."""


class SimulatedTrain:
    __slots__ = ("count", "first_ns", "last_ns", "mean_ns", "pieces", "worth")

    def __init__(
        self,
        count: int,
        first_ns: int,
        last_ns: int,
        mean_ns: int,
        pieces: tuple[TrainPiece, ...] = (),
        worth: float = 1.0,
    ) -> None:
        self.count = count
        self.first_ns = first_ns
        self.last_ns = last_ns
        self.mean_ns = mean_ns
        self.pieces = pieces  # none: one piece, from first to last
        self.worth = worth  # of a tuple, relative to a stream without drops by value

    def with_count(self, count: int) -> SimulatedTrain:
        """Return a train of this many tuples, spread over time like this one."""
        return SimulatedTrain(count, self.first_ns, self.last_ns, self.mean_ns, self.pieces, self.worth)

    def split(self, count: int) -> tuple[SimulatedTrain, SimulatedTrain]:
        """Return the first ``count`` tuples and the rest."""
        head, rest = self._split(count)
        head.worth = rest.worth = self.worth
        return head, rest

    def _split(self, count: int) -> tuple[SimulatedTrain, SimulatedTrain]:
        if not self.pieces:
            split_ns = self.first_ns + (self.last_ns - self.first_ns) * count // max(1, self.count - 1)
            before_ns = self.first_ns + (self.last_ns - self.first_ns) * (count - 1) // max(1, self.count - 1)
            head = SimulatedTrain(count, self.first_ns, before_ns, (self.first_ns + before_ns) // 2)
            return head, SimulatedTrain(self.count - count, split_ns, self.last_ns, (split_ns + self.last_ns) // 2)
        weight = sum([p[0] for p in self.pieces]) * count // self.count
        left: list[TrainPiece] = []
        for i, (w, first_ns, last_ns) in enumerate(self.pieces):
            if weight < w:
                split_ns = first_ns + (last_ns - first_ns) * weight // w
                left += [(weight, first_ns, split_ns)] if weight else []
                right = [(w - weight, split_ns, last_ns), *self.pieces[i + 1 :]]
                return from_pieces(count, left or [(1, first_ns, first_ns)]), from_pieces(self.count - count, right)
            left.append((w, first_ns, last_ns))
            weight -= w
        last_ns = self.last_ns
        return from_pieces(count, left), SimulatedTrain(self.count - count, last_ns, last_ns, last_ns)


def from_pieces(count: int, pieces: Sequence[TrainPiece]) -> SimulatedTrain:
    while len(pieces) > PIECES_AT_MOST:
        pieces = [
            (sum(p[0] for p in pair), min(p[1] for p in pair), max(p[2] for p in pair))
            for pair in (pieces[i : i + 2] for i in range(0, len(pieces), 2))
        ]
    weight = sum([p[0] for p in pieces])
    mean_ns = sum([w * (first + last) // 2 for w, first, last in pieces]) // max(1, weight)
    first_ns, last_ns = min([p[1] for p in pieces]), max([p[2] for p in pieces])
    return SimulatedTrain(count, first_ns, last_ns, mean_ns, tuple(pieces) if len(pieces) > 1 else ())


def join(trains: Sequence[SimulatedTrain]) -> SimulatedTrain:
    """Join trains into one, in this order."""
    if len(trains) == 1:
        return trains[0]
    pieces: list[TrainPiece] = []
    for train in trains:
        if train.pieces:
            total = sum([p[0] for p in train.pieces])
            pieces += [(max(1, w * train.count // total), first, last) for w, first, last in train.pieces]
        elif train.count:
            pieces.append((train.count, train.first_ns, train.last_ns))
    joined = from_pieces(sum([t.count for t in trains]), pieces)
    worth = trains[0].worth
    if any(t.worth != worth for t in trains):
        worth = sum([t.count * t.worth for t in trains]) / max(joined.count, 1)
    joined.worth = worth
    return joined


class SimulatedStorage:
    """The queues of one network, and their bytes over time."""

    def __init__(self, tuple_bytes: Sequence[float], start_ns: int = 0) -> None:
        self.queues: list[deque[SimulatedTrain]] = [deque() for _ in tuple_bytes]
        self.tuple_bytes = tuple_bytes  # by arc
        self.tuples = 0
        self.nbytes = 0.0
        self.peak_bytes = 0.0
        self.byte_ns = 0.0  # bytes integrated over time
        self.expired = [0] * len(tuple_bytes)  # tuples, by arc
        self.counted_ns = (0, 2**62)  # arrivals of this time count ...
        self.expired_counted = [0] * len(tuple_bytes)  # ... and these of them expired
        self.waiting = [0] * len(tuple_bytes)  # tuples that wait now, by arc
        self.taken = [0] * len(tuple_bytes)  # tuples taken so far, by arc
        self.has_room = True
        self.spilled_arcs = 0  # nothing is on disk here
        self.wants_rank = False
        self._since_ns = start_ns

    def pass_time(self, now_ns: int) -> None:
        """Account for the time since the last call."""
        self.byte_ns += self.nbytes * (now_ns - self._since_ns)
        self._since_ns = now_ns

    def enqueue(self, arcs: Sequence[int], train: SimulatedTrain) -> None:
        for arc in arcs:
            self.queues[arc].append(train)
            self.waiting[arc] += train.count
            self.tuples += train.count
            self.nbytes += train.count * self.tuple_bytes[arc]
        if self.nbytes > self.peak_bytes:
            self.peak_bytes = self.nbytes

    def pass_by(self, arcs: Sequence[int], tuples: int) -> None:
        """Count tuples that went past a queue as taken from it."""
        for arc in arcs:
            self.taken[arc] += tuples

    def take(self, arc: int, tuples: int, trains: int) -> tuple[list[SimulatedTrain], int, int]:
        """Take at most ``tuples`` tuples of the first ``trains`` trains. A train is split only if nothing else could be
        taken. Return the trains, their tuples, and how many trains left the queue whole."""
        queue = self.queues[arc]
        taken: list[SimulatedTrain] = []
        whole = 0
        left = tuples
        while queue and whole < trains:
            train = queue[0]
            if train.count > left:
                if left == tuples > 0:
                    head, queue[0] = train.split(left)
                    taken.append(head)
                    left = 0
                break
            taken.append(queue.popleft())
            whole += 1
            left -= train.count
        count = tuples - left
        self.waiting[arc] -= count
        self.taken[arc] += count
        self.tuples -= count
        self.nbytes -= count * self.tuple_bytes[arc]
        return taken, count, whole

    def expire(self, arc: int, tuples: int, trains: int) -> tuple[list[SimulatedTrain], int, int]:
        """Drop tuples from the head of a queue. Return no trains, the tuples dropped, and the trains gone."""
        dropped, whole = 0, 0
        from_ns, until_ns = self.counted_ns
        while dropped < tuples and whole < trains:
            lost, count, gone = self.take(arc, tuples - dropped, trains - whole)
            dropped, whole = dropped + count, whole + gone
            self.expired_counted[arc] += sum([t.count for t in lost if from_ns <= t.first_ns < until_ns])
            if not count and not gone:
                break
        self.expired[arc] += dropped
        return [], dropped, whole

    def is_empty(self) -> bool:
        return not any(self.queues)
