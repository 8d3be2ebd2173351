"""Who has sent what: batches that come a second time are recognised, and one that is missing is noticed.

A client that wants to lose nothing numbers its batches: (source, epoch, sequence). The source is its name, the sequence
counts from 1 without a gap, and a new epoch says that a new life of the source begins, at 1 again. The table keeps for
each stream and source the last sequence that was *received* (it is on its way to disk) and the last one that is
*committed* (it is there, with the tuples it brought).

- the next sequence: new
- at or below the last received: a duplicate, dropped; acknowledged when the first one was
- beyond the next: refused, because acknowledging it would say that those before it are safe
- an older epoch: refused; a newer one: begins at 1

What is committed is in the log with the tuples of the batch, in one record, and in every checkpoint. So it survives a
restart exactly as far as the tuples do. When a group could not be written, what was received falls back to what is
committed, and the client sends again.

Not thread-safe by itself: whoever owns the log guards it.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any, NamedTuple

from storage.plants import planted

SOURCES_AT_MOST = 100_000
"""A bound, because a name costs memory and disk for ever; a client that makes up a name each time would fill both."""

NAME_BYTES = 256


class Entry(NamedTuple):
    """Where a batch stands in its source."""

    source: str
    epoch: int
    sequence: int


class Verdict(Enum):
    NEW = "new"
    DUPLICATE = "duplicate"
    GAP = "gap"
    STALE = "stale"
    TOO_MANY = "too many"


class Standing:
    """How far a source has come."""

    __slots__ = ("committed", "epoch", "received")

    def __init__(self, epoch: int, committed: int = 0) -> None:
        self.epoch = epoch
        self.received = committed
        self.committed = committed


class Admission:
    """Of one stream."""

    def __init__(self) -> None:
        self._sources: dict[str, Standing] = {}

    def greet(self, source: str, epoch: int) -> Standing | Verdict:
        """A client says who it is: how far its source has come in this epoch, or why it may not go on."""
        known = self._sources.get(source)
        if known is None:
            if len(self._sources) >= SOURCES_AT_MOST:
                return Verdict.TOO_MANY
            return Standing(epoch)
        if epoch < known.epoch:
            return Verdict.STALE
        return known if epoch == known.epoch else Standing(epoch)

    def offer(self, entry: Entry) -> Verdict:
        """A batch has come. NEW takes note of it as received."""
        standing = self.greet(entry.source, entry.epoch)
        if isinstance(standing, Verdict):
            return standing
        if entry.sequence <= standing.received:
            return Verdict.DUPLICATE
        if entry.sequence > standing.received + 1 and not planted("accept_gap"):
            return Verdict.GAP
        standing.received = entry.sequence
        self._sources[entry.source] = standing
        return Verdict.NEW

    def commit(self, entry: Entry) -> None:
        """It is on disk; also what replay does for each batch in the log."""
        known = self._sources.get(entry.source)
        if known is None or known.epoch < entry.epoch:
            known = self._sources[entry.source] = Standing(entry.epoch)
        if known.epoch == entry.epoch:
            known.committed = max(known.committed, entry.sequence)
            known.received = max(known.received, known.committed)

    def take_back(self, entry: Entry) -> None:
        """The batch that was offered last cannot be used: it has not been received."""
        known = self._sources.get(entry.source)
        if known is not None and known.epoch == entry.epoch and known.received == entry.sequence:
            known.received = max(entry.sequence - 1, known.committed)

    def retract(self, sources: Iterable[str]) -> None:
        """What was received of these and is not committed has not been received."""
        for source in sources:
            if (known := self._sources.get(source)) is not None:
                known.received = known.committed

    def committed(self, source: str, epoch: int) -> int:
        known = self._sources.get(source)
        return known.committed if known is not None and known.epoch == epoch else 0

    def __len__(self) -> int:
        return len(self._sources)

    def snapshot(self) -> dict[str, Any]:
        return {name: [s.epoch, s.committed] for name, s in self._sources.items() if s.committed or s.epoch}

    def restore(self, data: dict[str, Any]) -> None:
        if not planted("dedup_in_memory"):
            self._sources = {name: Standing(int(epoch), int(seq)) for name, (epoch, seq) in data.items()}
