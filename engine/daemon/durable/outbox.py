"""The history of an output: every tuple has a number, and a reader with a name goes on where it stopped.

The outbox numbers the tuples of an output from 1 in the order in which they are emitted, over all restarts. A number
never means another tuple. While a reader has a name here, the tuples go into the log with their numbers. Named readers
read them from the log, and only after the sync: a restart knows everything that they have seen. The kernel still has
the end of the log in memory, so a reader that keeps up costs no read from the disk, and a slow one costs no memory.

A name keeps the log: it is kept from the lowest number that some name has not acknowledged, but at most
``retain_bytes`` of it. Tuples that are dropped beyond that are counted, and the reader gets a gap marker.

After a crash the replay computes tuples again; ``regenerated`` recognises them. A tuple is flagged as a repeat where it
may have been delivered before under another number.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from threading import Lock
from typing import Any, NamedTuple

from catalog.network import Output
from engine.daemon.durable.data_format import DataFormat
from engine.daemon.durable.records import OUTPUT, unpack
from engine.daemon.durable.regenerated import Regenerated
from router.boundary import TooManyNamesError
from storage.encode import TrainReader
from storage.log import Log
from storage.train import Train

INDEX_EVERY_BYTES = 256 * 1024
NAMES_AT_MOST = 1_000
"""A name keeps the log. Without a limit a client that invents names would have it written for nobody."""


class HistoryPiece(NamedTuple):
    """Tuples of a history. ``first`` is the number of the first one."""

    first: int
    train: Train
    is_repeat: bool

    @property
    def last(self) -> int:
        return self.first + self.train.count - 1


class Outbox:
    """One output's. The worker that emits and the committer write it, under its lock."""

    def __init__(self, output: Output, format: DataFormat) -> None:
        self.output = output
        self._format = format
        self.lock = Lock()
        self.next = 1  # the number of the next tuple
        self.readable = 0  # the highest number that is on disk
        self.names: dict[str, int] = {}  # by name: the highest number that it has acknowledged
        self.noted: dict[str, int] = {}  # the same, as far as the log or a checkpoint has it
        self.durable_names: set[str] = (
            set()
        )  # names that are on disk: a reader that reconnects need not wait for a sync
        self.sent: dict[str, int] = {}  # by name: the highest number that it may have seen
        self.index: list[tuple[int, int]] = []  # (first number, position in the log) of some records, ascending
        self.repeats: list[tuple[int, int]] = []  # first and last number of stretches that may be repeats
        self.regenerated: Regenerated | None = None  # while a replay runs
        self.replayed_from = 1  # the number of the first tuple that the replay added

    @property
    def is_kept(self) -> bool:
        return bool(self.names)

    # -- emitting -----------------------------------------------------------------------------------------------------

    def number(self, train: Train) -> tuple[int, Train]:
        """Number a train. Returns its first number, and the train without what was emitted before. Under the lock."""
        if self.regenerated is not None:
            train = self.regenerated.new(train)
        first = self.next
        self.next += train.count
        return first, train

    def committed(self, first: int, tuples: int, position: int) -> None:
        """Note that these tuples are on disk, in the record at this position."""
        with self.lock:
            if not self.index or position - self.index[-1][1] >= INDEX_EVERY_BYTES:
                self.index.append((first, position))
            self.readable = max(self.readable, first + tuples - 1)

    # -- names --------------------------------------------------------------------------------------------------------

    def subscribe(self, name: str, after: int | None) -> int:
        """Return the number after which a reader goes on: as it says, where it last acknowledged, or the newest.
        Raises TooManyNamesError for one name too many."""
        with self.lock:
            newest = self.next - 1
            known = self.names.get(name)
            if known is None and len(self.names) >= NAMES_AT_MOST:
                raise TooManyNamesError(
                    f"output {self.output.name} has {NAMES_AT_MOST:,} named readers, which is the limit: "
                    "`aurorad names drop` gives up those that are not needed"
                )
            start = newest if known is None else known
            if after is not None:
                start = min(after, newest)
                self.sent[name] = start  # the reader says itself what it has seen
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
            self.durable_names.discard(name)

    def news(self) -> dict[str, int]:
        """Return what was acknowledged since the last call."""
        with self.lock:
            if self.names == self.noted:
                return {}
            news = {name: number for name, number in self.names.items() if self.noted.get(name) != number}
            self.noted = dict(self.names)
            return news

    # -- keeping ------------------------------------------------------------------------------------------------------

    def needed_from(self) -> int | None:
        """Return the position from which the log must be kept for some name; None when no name needs it."""
        with self.lock:
            if not self.names or not self.index:
                return None
            wanted = min(self.names.values()) + 1
            if wanted > self.readable:
                return None
            return self.index[max(0, bisect_right(self.index, (wanted, 2**63)) - 1)][1]

    def unread(self) -> dict[str, int]:
        """Return, by name, how many tuples on disk or under way its reader has not acknowledged; without the zeros."""
        with self.lock:
            return {name: self.next - 1 - number for name, number in self.names.items() if number < self.next - 1}

    def forget_history(self) -> None:
        """Begin the history anew: what is in the log has other fields, and every reader has all of it."""
        with self.lock:
            self.index = []
            self.repeats = []

    def drop_below(self, position: int) -> None:
        """Note that the log is gone below this position."""
        with self.lock:
            while len(self.index) > 1 and self.index[1][1] <= position:
                self.index.pop(0)
            if self.index and self.index[0][1] < position:
                # The rest of this stretch is found by reading on from the beginning of the log.
                self.index[0] = (self.index[0][0], position)
            if self.index:
                self.repeats = [r for r in self.repeats if r[1] >= self.index[0][0]]

    # -- reading ------------------------------------------------------------------------------------------------------

    def read(self, log: Log, reader: TrainReader, after: int, limit_bytes: int) -> list[HistoryPiece]:
        """Return the tuples after this number that are on disk, in order; at least one piece if there is any.

        The first piece may begin later than asked for: the tuples between were dropped.
        """
        with self.lock:
            if after >= self.readable or not self.index:
                return []
            start = self.index[max(0, bisect_right(self.index, (after + 1, 2**63)) - 1)][1]
        pieces: list[HistoryPiece] = []
        size = 0
        for first, train in self._trains(log, reader, start):
            last = first + train.count - 1
            if last <= after:
                continue
            if first <= after:
                train, first = train.slice(after + 1 - first, train.count), after + 1
            pieces.append(HistoryPiece(first, train, self._may_repeat(first)))
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
                if note["o"] == name and not self._format.why_unreadable(
                    mark := self._format.output_mark(note), schema
                ):
                    yield int(note["q"]), self._format.decode(reader, rest, mark, schema)

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

    def assume_all_seen(self) -> None:
        """After a restart every reader may have seen everything that was on disk."""
        self.sent = dict.fromkeys(self.names, self.readable)
