"""Where trains from Spark enter the network: rows of bulk jobs, and batches of ``format("aurorad")``.

With a log a train has a number (source, epoch, sequence), as a client's batch has, and the log knows after a restart
which trains it has. Without a log a train is admitted, and a restart forgets it.
"""

from __future__ import annotations

from typing import Protocol

from router.boundary import SPARK, StreamEntrance
from storage.admission import AdmissionVerdict, BatchNumber
from storage.train import Train


class CountReceived(Protocol):
    def __call__(self, stream: int, tuples: int, duplicates: int, /) -> None:
        """Count tuples that a stream has received, and how many of them were duplicates."""


class BulkEntrance:
    """Any thread."""

    def __init__(self, entrance: StreamEntrance, count: CountReceived) -> None:
        self._entrance = entrance
        self._count = count

    def enter(self, stream: int, train: Train, source: str, epoch: int, sequence: int) -> bool:
        """Let a train in and count it. False, and nothing counted, when the log lacks the train before it."""
        if not self._entrance.keeps_batches:
            self._count(stream, train.count, 0)
            self._entrance.admit(stream, train, SPARK)
            return True
        batch = BatchNumber(source, epoch, sequence)
        verdict = self._entrance.numbers.offer(stream, batch)
        if verdict is AdmissionVerdict.NEW:
            self._entrance.admit(stream, train, SPARK.numbered(batch))
            self._count(stream, train.count, 0)
        elif verdict is AdmissionVerdict.DUPLICATE:
            self._count(stream, train.count, train.count)
        else:
            return False
        return True

    def is_on_disk(self, stream: int, source: str, epoch: int, sequence: int) -> bool:
        """Tell whether a source's trains up to this one are in the log; without a log there is nothing to wait for."""
        if not self._entrance.keeps_batches:
            return True
        return self._entrance.numbers.committed(stream, source, epoch) >= sequence
