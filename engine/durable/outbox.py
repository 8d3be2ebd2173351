"""The history of an output: every tuple has a number, and a subscriber with a name goes on where it stopped.

Tuples of an output are numbered from 1 in the order in which they were emitted, over all restarts; a number never means
another tuple. While somebody has given a name, what is emitted goes into the log with its numbers, and named
subscribers read it from there, never before it is synced: what they have seen, a restart will know of. The log just
written is in the kernel's memory, so a reader that keeps up costs no read from the disk, and one that does not costs no
memory.

A name holds the log back: it is kept from the lowest number that some name has not acknowledged, but no further than
``retain_bytes``; what is dropped beyond that is counted, and the subscriber is told of the gap.

After a crash, tuples that the replay computes again are recognised (``regenerated``). A tuple is flagged as a repeat
where it may have been delivered before under another number.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from threading import Lock
from typing import Any, NamedTuple

from catalog.network import Output
from engine.durable.records import OUTPUT, unpack
from engine.durable.regenerated import Regenerated
from storage.encode import TrainReader
from storage.log import Log
from storage.train import Train

INDEX_EVERY_BYTES = 256 * 1024
NAMES_AT_MOST = 1_000


class Piece(NamedTuple):
    """Tuples of a history. ``first`` is the number of the first one."""

    first: int
    train: Train
    is_repeat: bool

    @property
    def last(self) -> int:
        return self.first + self.train.count - 1


class Outbox:
    """Of one output. Written by whoever emits and by the committer, under its lock."""

    def __init__(self, output: Output) -> None:
        self.output = output
        self.lock = Lock()
        self.next = 1  # the number of the next tuple
        self.readable = 0  # the highest number that is on disk
        self.names: dict[str, int] = {}  # the highest number that each has acknowledged
        self.noted: dict[str, int] = {}  # what the log or a checkpoint knows of that
        self.held: set[str] = set()  # the names that are on disk: who comes again under one need not wait for a sync
        self.sent: dict[str, int] = {}  # the highest number that each may have seen
        self.index: list[tuple[int, int]] = []  # (first number, position in the log), some of them, ascending
        self.repeats: list[tuple[int, int]] = []  # first and last number of what may be repeats
        self.regenerated: Regenerated | None = None  # while a replay runs
        self.replayed_from = 1  # the number of the first tuple that the replay added

    @property
    def is_kept(self) -> bool:
        return bool(self.names)

    # -- emitting -----------------------------------------------------------------------------------------------------

    def number(self, train: Train) -> tuple[int, Train]:
        """The number of the first tuple, and the train without what was emitted before a crash. Under the lock."""
        if self.regenerated is not None:
            train = self.regenerated.new(train)
        first = self.next
        self.next += train.count
        return first, train

    def committed(self, first: int, tuples: int, position: int) -> None:
        """These are on disk, in the record at this position."""
        with self.lock:
            if not self.index or position - self.index[-1][1] >= INDEX_EVERY_BYTES:
                self.index.append((first, position))
            self.readable = max(self.readable, first + tuples - 1)

    # -- names --------------------------------------------------------------------------------------------------------

    def subscribe(self, name: str, after: int | None) -> int:
        """The number after which this subscriber goes on: as it says, as it last acknowledged, or from now on."""
        with self.lock:
            newest = self.next - 1
            known = self.names.get(name)
            start = newest if known is None else known
            if after is not None:
                start = min(after, newest)
                self.sent[name] = start  # it says itself what it has seen
            self.names[name] = start if known is None else max(known, start)
            return start

    def acknowledge(self, name: str, number: int) -> None:
        with self.lock:
            if name in self.names:
                self.names[name] = max(self.names[name], min(number, self.next - 1))

    def forget(self, name: str) -> None:
        with self.lock:
            self.names.pop(name, None)
            self.noted.pop(name, None)
            self.held.discard(name)

    def news(self) -> dict[str, int]:
        """What was acknowledged since the last time."""
        with self.lock:
            if self.names == self.noted:
                return {}
            news = {name: number for name, number in self.names.items() if self.noted.get(name) != number}
            self.noted = dict(self.names)
            return news

    # -- keeping ------------------------------------------------------------------------------------------------------

    def needed_from(self) -> int | None:
        """The position from which the log must be kept for some name; None: for nobody."""
        with self.lock:
            if not self.names or not self.index:
                return None
            wanted = min(self.names.values()) + 1
            if wanted > self.readable:
                return None
            return self.index[max(0, bisect_right(self.index, (wanted, 2**63)) - 1)][1]

    def drop_below(self, position: int) -> None:
        """The log is gone below this position."""
        with self.lock:
            while len(self.index) > 1 and self.index[1][1] <= position:
                self.index.pop(0)
            if self.index and self.index[0][1] < position:
                # What is left of this stretch is found by reading on from where the log begins.
                self.index[0] = (self.index[0][0], position)
            if self.index:
                self.repeats = [r for r in self.repeats if r[1] >= self.index[0][0]]

    # -- reading ------------------------------------------------------------------------------------------------------

    def read(self, log: Log, reader: TrainReader, after: int, limit_bytes: int) -> list[Piece]:
        """What comes after this number, as far as it is on disk, in order; at least one piece if there is any.

        The first piece may begin later than asked for: what is between was dropped.
        """
        with self.lock:
            if after >= self.readable:
                return []
            start = self.index[max(0, bisect_right(self.index, (after + 1, 2**63)) - 1)][1]
        pieces: list[Piece] = []
        size = 0
        for first, train in self._trains(log, reader, start):
            last = first + train.count - 1
            if last <= after:
                continue
            if first <= after:
                train, first = train.slice(after + 1 - first, train.count), after + 1
            pieces.append(Piece(first, train, self._may_repeat(first)))
            after = last
            size += train.nbytes
            if size >= limit_bytes:
                break
        return pieces

    def _trains(self, log: Log, reader: TrainReader, start: int) -> Iterator[tuple[int, Train]]:
        name, schema = self.output.name, self.output.schema
        for record in log.records(start):
            if record.kind == OUTPUT:
                note, rest = unpack(record.payload)
                if note["o"] == name:
                    yield int(note["q"]), reader.decode(rest, schema)

    def _may_repeat(self, number: int) -> bool:
        return any(first <= number <= last for first, last in self.repeats)

    # -- surviving ----------------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        with self.lock:
            return {
                "next": self.next, "readable": self.readable, "names": dict(self.names),
                "index": list(self.index), "repeats": list(self.repeats),
            }  # fmt: skip

    def restore(self, data: dict[str, Any]) -> None:
        self.next, self.readable = int(data["next"]), int(data["readable"])
        self.names = {name: int(n) for name, n in data["names"].items()}
        self.index = [(int(n), int(p)) for n, p in data["index"]]
        self.repeats = [(int(a), int(b)) for a, b in data["repeats"]]

    def suppose_sent(self) -> None:
        """After a restart: everything that was on disk may have been seen by everyone."""
        self.sent = dict.fromkeys(self.names, self.readable)
