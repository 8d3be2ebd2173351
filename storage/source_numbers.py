"""The numbers of all clients' batches, by stream: ``storage/admission.py`` under one lock.

With a data_dir the log commits a number together with the tuples of its batch, and a checkpoint keeps it. Without one
the table lives in memory: a client that reconnects does not send twice, but nothing outlives the process.

Threads: any.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from threading import Lock
from typing import Any

from storage.admission import Admission, AdmissionVerdict, BatchNumber, Standing


class SourceNumbers:
    def __init__(self, streams: int) -> None:
        self.lock = Lock()
        self.by_stream = [Admission() for _ in range(streams)]  # guarded by the lock

    def greet(self, stream: int, source: str, epoch: int) -> int | str:
        """Return the last sequence that is safe, or the reason why this client cannot be served."""
        with self.lock:
            standing = self.by_stream[stream].greet(source, epoch)
        if isinstance(standing, Standing):
            return standing.committed
        if standing is AdmissionVerdict.STALE:
            return "another client uses this source with a newer epoch"
        return "there are too many sources: `aurorad names drop` gives up those that are not needed"

    def names(self, stream: int) -> dict[str, Standing]:
        """Return what is known of each source of a stream."""
        with self.lock:
            return self.by_stream[stream].names()

    def drop(self, stream: int, source: str) -> bool:
        """Forget a source. False when it is unknown."""
        with self.lock:
            return self.by_stream[stream].drop(source)

    def offer(self, stream: int, batch: BatchNumber) -> AdmissionVerdict:
        """Compare a batch with what has come before it. NEW takes note of it as received."""
        with self.lock:
            return self.by_stream[stream].offer(batch)

    def take_back(self, stream: int, batch: BatchNumber) -> None:
        """Forget a batch that was offered, was new, and cannot be used."""
        with self.lock:
            self.by_stream[stream].take_back(batch)

    def commit(self, stream: int, batches: Iterable[BatchNumber]) -> None:
        """Note that these batches are safe."""
        with self.lock:
            for batch in batches:
                self.by_stream[stream].commit(batch)

    def retract(self, batches: Iterable[tuple[int, BatchNumber]]) -> None:
        """Note that everything of these sources that is not committed was not received: the clients send it again."""
        with self.lock:
            for stream, batch in batches:
                self.by_stream[stream].retract([batch.source])

    def standing(self, stream: int, source: str, epoch: int) -> tuple[int, int]:
        """Return the last sequences received and committed."""
        with self.lock:
            standing = self.by_stream[stream].greet(source, epoch)
        return (standing.received, standing.committed) if isinstance(standing, Standing) else (0, 0)

    def committed(self, stream: int, source: str, epoch: int) -> int:
        """Return the last sequence that is safe, 0 where there is none."""
        with self.lock:
            return self.by_stream[stream].committed(source, epoch)

    def newest(self, stream: int, source: str) -> tuple[int, int]:
        """Return the newest epoch of a source and its last safe sequence; (0, 0) for an unknown one."""
        with self.lock:
            return self.by_stream[stream].newest(source)

    def take_over(self, other: SourceNumbers, streams: Mapping[int, int]) -> None:
        """Go on with the tables of another network. ``streams`` leads from numbers here to numbers there."""
        with self.lock, other.lock:
            for here, there in streams.items():
                self.by_stream[here] = other.by_stream[there]

    def renumber(self, streams: Mapping[int, int], count: int) -> None:
        """Be the tables of another network with ``count`` streams. ``streams`` leads from its numbers to these."""
        with self.lock:
            before = self.by_stream
            self.by_stream = [before[streams[n]] if n in streams else Admission() for n in range(count)]

    def snapshot(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the tables as plain data, by the streams' names."""
        with self.lock:
            return {name: table.snapshot() for name, table in zip(names, self.by_stream, strict=True)}

    def restore(self, names: Sequence[str], data: dict[str, Any]) -> None:
        for name, table in zip(names, self.by_stream, strict=True):
            table.restore(data.get(name, {}))
