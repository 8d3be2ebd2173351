"""Numbered batches without a data_dir: a table in memory of who has sent what.

A client that reconnects does not send twice. But nothing outlives the process, so only acknowledgements that say
``memory`` are given.
"""

from __future__ import annotations

from collections.abc import Callable

from router.session import SourceHello
from storage.admission import Admission, Entry, Standing, Verdict
from storage.train import NO_WATERMARK, Train


class MemoryDesk:
    """``enter`` takes a train into the network."""

    refusal = ""

    def __init__(self, streams: int, enter: Callable[[int, Train], None]) -> None:
        self._admissions = [Admission() for _ in range(streams)]
        self._enter = enter

    def greet(self, stream: int, hello: SourceHello) -> int | str:
        if hello.ack == "disk":
            return 'without engine.data_dir nothing is on disk: say "ack": "memory"'
        return greeted(self._admissions[stream].greet(hello.source, hello.epoch))

    def offer(self, stream: int, entry: Entry) -> Verdict:
        return self._admissions[stream].offer(entry)

    def retract(self, stream: int, entry: Entry) -> None:
        self._admissions[stream].take_back(entry)

    def submit(self, stream: int, train: Train, entry: Entry) -> None:
        if train.count or train.watermark_ns != NO_WATERMARK:
            self._enter(stream, train)
        self._admissions[stream].commit(entry)

    def standing(self, stream: int, source: str, epoch: int) -> tuple[int, int]:
        return standing_of(self._admissions[stream].greet(source, epoch))


def greeted(standing: Standing | Verdict) -> int | str:
    if isinstance(standing, Standing):
        return standing.committed
    if standing is Verdict.STALE:
        return "another client speaks for this source with a newer epoch"
    return "there are too many sources"


def standing_of(standing: Standing | Verdict) -> tuple[int, int]:
    return (standing.received, standing.committed) if isinstance(standing, Standing) else (0, 0)
