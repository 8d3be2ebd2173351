"""Where a sink's tuples come from: a queue in memory that workers fill, or the output's history in the log.

Without a data_dir a worker hands its train to ``QueueFeed``, which is bounded: beyond that the output waits. With
one, the log has every tuple with its number before anybody sees it, and ``HistoryFeed`` reads it from there under a
name; what the sink has on its own disk is acknowledged, and after a crash it goes on behind that. Nothing is lost and
nothing comes twice, because a number never means another tuple.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from threading import Condition
from typing import Protocol

from storage.train import Train

QUEUE_BYTES = 16 * 1024**2
READ_BYTES = 4 * 1024**2
NAME = "spark sink"


class Piece(Protocol):
    @property
    def first(self) -> int: ...

    @property
    def train(self) -> Train: ...


class History(Protocol):
    """An output's tuples, numbered from 1."""

    @property
    def newest(self) -> int:
        """The number of the last tuple emitted, on disk or not."""

    @property
    def readable(self) -> int:
        """The number of the last tuple that is on disk."""

    @property
    def oldest(self) -> int:
        """The number of the first tuple that is still there."""

    def subscribe(self, name: str, after: int | None) -> int:
        """The number behind which this name goes on: as it says, where it was, or, for a new one, here."""

    def acknowledge(self, name: str, number: int) -> None: ...

    def read(self, name: str, after: int, limit_bytes: int) -> Sequence[Piece]:
        """What is on disk behind this number. It may begin later: what is between was dropped."""


class Feed(Protocol):
    """``take`` gives what there is, ``took`` says that it is safe now. Both on the sink's writer thread."""

    @property
    def rows(self) -> int:
        """That wait here."""

    @property
    def nbytes(self) -> int: ...

    dropped: int

    def begin(self, held: int) -> None:
        """The sink has this many tuples, from the first one on."""

    def take(self, rows: int) -> list[Train]: ...

    def took(self, trains: list[Train]) -> None: ...

    def safe(self, held: int) -> None:
        """So many tuples, from the first one on, are on the sink's disk for good."""


class QueueFeed:
    """``on_full`` hears when it is full and when there is room again; ``changed`` is notified when something comes."""

    dropped = 0

    def __init__(self, changed: Condition, on_full: Callable[[bool], None]) -> None:
        self._changed = changed
        self._on_full = on_full
        self._queue: deque[Train] = deque()
        self.nbytes = 0
        self.rows = 0
        self.is_full = False
        self.offered = 0

    def deliver(self, train: Train) -> None:
        """On any worker."""
        newly_full = False
        with self._changed:
            self.offered += train.count
            self._queue.append(train)
            self.nbytes += train.nbytes
            self.rows += train.count
            if self.nbytes > QUEUE_BYTES and not self.is_full:
                self.is_full = newly_full = True
            self._changed.notify_all()
        if newly_full:
            self._on_full(True)

    def begin(self, held: int) -> None:
        pass  # what comes is new

    def take(self, rows: int) -> list[Train]:
        with self._changed:
            trains, have = [], 0
            for train in self._queue:
                if have and have + train.count > rows:
                    break
                trains.append(train)
                have += train.count
            return trains

    def took(self, trains: list[Train]) -> None:
        freed = False
        with self._changed:
            for train in trains:
                self._queue.popleft()
                self.nbytes -= train.nbytes
                self.rows -= train.count
            if self.is_full and self.nbytes <= QUEUE_BYTES // 2:
                self.is_full, freed = False, True
        if freed:
            self._on_full(False)

    def safe(self, held: int) -> None:
        pass  # nobody else keeps them


class HistoryFeed:
    nbytes = 0

    def __init__(self, history: History) -> None:
        self._history = history
        self._at = 0  # the number of the last tuple taken
        self.dropped = 0

    @property
    def rows(self) -> int:
        return max(0, self._history.newest - self._at)

    @property
    def at(self) -> int:
        return self._at

    def begin(self, held: int) -> None:
        self._at = held
        self._history.subscribe(NAME, held)

    def take(self, rows: int) -> list[Train]:
        trains: list[Train] = []
        at = self._at
        for piece in self._history.read(NAME, at, READ_BYTES):
            if piece.first > at + 1:  # it fell behind what the log keeps
                self.dropped += piece.first - at - 1
            trains.append(piece.train)
            at = piece.first + piece.train.count - 1
        self._reading = at
        return trains

    _reading = 0

    def took(self, trains: list[Train]) -> None:
        if trains:
            self._at = self._reading

    def safe(self, held: int) -> None:
        self._history.acknowledge(NAME, held)
