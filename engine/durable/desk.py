"""Numbered batches and named readers, as the router asks for them (``router/sessions.py``, ``router/named.py``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Lock
from typing import TYPE_CHECKING

from engine.desk import greeted, standing_of
from engine.durable.outbox import Piece
from router.session import SourceHello
from storage.admission import Entry, Verdict
from storage.encode import TrainReader
from storage.train import Train

if TYPE_CHECKING:
    from engine.durable.keeper import Keeper


class KeeperDesk:
    """``watch`` sees every train that is submitted."""

    def __init__(self, keeper: Keeper, watch: Callable[[int, Train], None]) -> None:
        self._keeper = keeper
        self._committer = keeper.committer
        self._watch = watch

    @property
    def refusal(self) -> str:
        return self._committer.refusal

    def greet(self, stream: int, hello: SourceHello) -> int | str:
        with self._committer.table:
            return greeted(self._committer.admissions[stream].greet(hello.source, hello.epoch))

    def offer(self, stream: int, entry: Entry) -> Verdict:
        with self._committer.table:
            return self._committer.admissions[stream].offer(entry)

    def retract(self, stream: int, entry: Entry) -> None:
        with self._committer.table:
            self._committer.admissions[stream].take_back(entry)

    def submit(self, stream: int, train: Train, entry: Entry) -> None:
        self._watch(stream, train)
        self._keeper.submit(stream, train, entry)

    def standing(self, stream: int, source: str, epoch: int) -> tuple[int, int]:
        with self._committer.table:
            return standing_of(self._committer.admissions[stream].greet(source, epoch))


class OutputHistory:
    """The history of one output."""

    def __init__(self, keeper: Keeper, output: int) -> None:
        self._keeper = keeper
        self._output = output
        self._outbox = keeper.outboxes[output]
        self._reader = TrainReader()
        self._lock = Lock()

    @property
    def readable(self) -> int:
        return self._outbox.readable

    def subscribe(self, name: str, after: int | None, then: Callable[[str], None] | None = None) -> int:
        return self._keeper.subscribe(self._output, name, after, then)

    def acknowledge(self, name: str, number: int) -> None:
        self._keeper.acknowledge(self._output, name, number)

    def forget(self, name: str) -> None:
        self._keeper.forget(self._output, name)

    def read(self, name: str, after: int, limit_bytes: int) -> list[Piece]:
        with self._lock:
            pieces = self._keeper.read(self._output, self._reader, after, limit_bytes)
        seen = self._outbox.sent.get(name, 0)
        marked = [part for piece in pieces for part in _marked(piece, seen)]
        if marked:
            self._outbox.sent[name] = max(seen, marked[-1].last)
        return marked


def _marked(piece: Piece, seen: int) -> Iterator[Piece]:
    """What this reader may have got before is a repeat for it."""
    if piece.is_repeat or piece.first > seen:
        yield piece
    elif piece.last <= seen:
        yield piece._replace(is_repeat=True)
    else:
        cut = seen + 1 - piece.first
        yield Piece(piece.first, piece.train.slice(0, cut), True)
        yield Piece(seen + 1, piece.train.slice(cut, piece.train.count), False)
