"""Numbered batches of clients: recognise a batch that comes twice, and notice one that is missing.

A client that must not lose anything numbers its batches: (source, epoch, sequence). The source is the client's name.
The sequence counts from 1 without a gap. A new epoch says that the source has restarted, and begins at 1 again. For
each stream and source the table keeps the last *received* sequence (on its way to disk) and the last *committed* one
(on disk, with its tuples). A batch with

- the next sequence is new
- a sequence at or below the last received one is a duplicate: it is dropped, and acknowledged with the first one
- a later sequence is refused: an acknowledgement would promise that the batches before it are safe
- an older epoch is refused; a newer epoch begins at 1

One log record holds a batch's number together with its tuples, and every checkpoint holds the table. So a committed
number survives a restart exactly as far as the tuples do. When a group could not be written, the received sequence
falls back to the committed one, and the client sends again.

A name that has sent nothing for a day may be forgotten to make room for a new one, the longest unused first. A younger
name never is: its client may still repeat a batch, and the batch would count twice.

Not thread-safe: ``source_numbers.py`` guards the tables of all streams with one lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from heapq import nsmallest
from time import time
from typing import Any, NamedTuple

SOURCES_AT_MOST = 100_000
"""A name costs memory and disk. Without a limit, a client that invents names would fill both."""

UNUSED_SECONDS = 24 * 3600
FORGET_AT_ONCE = 1_000

NAME_BYTES = 256


class BatchNumber(NamedTuple):
    """The number of a batch. The log keeps the first three fields."""

    source: str
    epoch: int
    sequence: int
    can_wait: bool = False  # on a full disk the batch waits, as plain trains do: its reader would not send it again


class AdmissionVerdict(Enum):
    NEW = "new"
    DUPLICATE = "duplicate"
    GAP = "gap"
    STALE = "stale"
    TOO_MANY = "too many"


class Standing:
    """The last sequences of a source in its current epoch."""

    __slots__ = ("committed", "epoch", "received", "used_s")

    def __init__(self, epoch: int, committed: int = 0, used_s: int = 0) -> None:
        self.epoch = epoch
        self.used_s = used_s  # when its last batch came, in seconds since 1970
        self.received = committed
        self.committed = committed

    def is_gap(self, sequence: int) -> bool:
        """Tell whether a batch between the last received one and this one is missing."""
        return sequence > self.received + 1


class Admission:
    """The sources of one stream."""

    def __init__(self, now_s: Callable[[], float] = time, at_most: int = SOURCES_AT_MOST) -> None:
        self._now_s = now_s
        self._at_most = at_most
        self._sources: dict[str, Standing] = {}
        self.forgotten = 0  # names

    def greet(self, source: str, epoch: int) -> Standing | AdmissionVerdict:
        """Return the last sequences of a source in this epoch, or the reason why the client must not continue."""
        known = self._sources.get(source)
        if known is None:
            if len(self._sources) >= self._at_most and not self._forget_unused():
                return AdmissionVerdict.TOO_MANY
            return Standing(epoch)
        if epoch < known.epoch:
            return AdmissionVerdict.STALE
        return known if epoch == known.epoch else Standing(epoch)

    def _forget_unused(self) -> bool:
        """Forget some names that have been unused for a day, the longest unused first. False when there is none."""
        before = self._now_s() - UNUSED_SECONDS
        unused = [name for name, standing in self._sources.items() if standing.used_s < before]
        for name in nsmallest(FORGET_AT_ONCE, unused, key=lambda name: self._sources[name].used_s):
            del self._sources[name]
            self.forgotten += 1
        return bool(unused)

    def drop(self, source: str) -> bool:
        """Forget a name, because an operator said so. False when it is unknown."""
        return self._sources.pop(source, None) is not None

    def names(self) -> dict[str, Standing]:
        return dict(self._sources)

    def offer(self, batch: BatchNumber) -> AdmissionVerdict:
        """Classify a batch that has arrived. A NEW one counts as received."""
        standing = self.greet(batch.source, batch.epoch)
        if isinstance(standing, AdmissionVerdict):
            return standing
        if batch.sequence <= standing.received:
            return AdmissionVerdict.DUPLICATE
        if standing.is_gap(batch.sequence):
            return AdmissionVerdict.GAP
        standing.received = batch.sequence
        standing.used_s = int(self._now_s())
        self._sources[batch.source] = standing
        return AdmissionVerdict.NEW

    def commit(self, batch: BatchNumber) -> None:
        """Note that a batch is on disk. A replay calls this for each batch in the log."""
        known = self._sources.get(batch.source)
        if known is None or known.epoch < batch.epoch:
            known = self._sources[batch.source] = Standing(batch.epoch, used_s=int(self._now_s()))
        if known.epoch == batch.epoch:
            known.committed = max(known.committed, batch.sequence)
            known.received = max(known.received, known.committed)

    def take_back(self, batch: BatchNumber) -> None:
        """Withdraw the last offered batch, which cannot be used: it does not count as received."""
        known = self._sources.get(batch.source)
        if known is not None and known.epoch == batch.epoch and known.received == batch.sequence:
            known.received = max(batch.sequence - 1, known.committed)

    def retract(self, sources: Iterable[str]) -> None:
        """Reset the received sequence of these sources to the committed one."""
        for source in sources:
            if (known := self._sources.get(source)) is not None:
                known.received = known.committed

    def committed(self, source: str, epoch: int) -> int:
        known = self._sources.get(source)
        return known.committed if known is not None and known.epoch == epoch else 0

    def newest(self, source: str) -> tuple[int, int]:
        """Return the newest epoch of a source and its last committed sequence; (0, 0) for an unknown one."""
        known = self._sources.get(source)
        return (0, 0) if known is None else (known.epoch, known.committed)

    def __len__(self) -> int:
        return len(self._sources)

    def snapshot(self) -> dict[str, Any]:
        return {name: [s.epoch, s.committed, s.used_s] for name, s in self._sources.items() if s.committed or s.epoch}

    def restore(self, data: dict[str, Any]) -> None:
        """Take a snapshot back. One of version 0.2 does not say when a name was used: it counts as used now."""
        now_s = int(self._now_s())
        self._sources = {
            name: Standing(int(epoch), int(sequence), int(used[0]) if used else now_s)
            for name, (epoch, sequence, *used) in data.items()
        }
