"""Where the tuples of a sink come from: a queue in memory that workers fill, or the output's history in the log.

Without a data_dir a worker puts its train into ``QueueFeed``. The queue is bounded; when it is full the output waits.
With a data_dir the log has every tuple, with its number, before any reader sees it, and ``HistoryFeed`` reads the log
under a name. It acknowledges what the sink has on its own disk, and after a crash it goes on behind that. No tuple is
lost and none comes twice, because a number always means the same tuple.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Condition
from typing import Protocol

from router.boundary import OutputHistory
from storage.train import Train

QUEUE_BYTES = 16 * 1024**2
READ_BYTES = 4 * 1024**2


class Feed(Protocol):
    """The sink's writer thread peeks at trains, writes them, then drops them from the feed."""

    @property
    def rows(self) -> int:
        """Tuples that wait here."""

    @property
    def nbytes(self) -> int: ...

    dropped: int

    def begin(self, held: int) -> None:
        """Begin behind the tuples that the sink has: this many, from the first one on."""

    def peek(self, rows: int) -> list[Train]:
        """Return the next trains, about this many tuples. They stay in the feed."""

    def drop(self, trains: list[Train]) -> None:
        """Remove what ``peek`` returned: the sink has written it."""

    def release(self, held: int) -> None:
        """The sink has this many tuples, from the first one on, synced on its disk: the log may forget them."""


class QueueFeed:
    """``on_full`` is called when the queue is full and when it has room; ``changed`` is notified of new trains."""

    dropped = 0

    def __init__(self, changed: Condition, on_full: Callable[[bool], None], limit_bytes: int = QUEUE_BYTES) -> None:
        self._changed = changed
        self._on_full = on_full
        self._limit_bytes = limit_bytes
        self._queue: deque[Train] = deque()
        self.nbytes = 0
        self.rows = 0
        self.is_full = False
        self.offered = 0

    def deliver(self, train: Train) -> None:
        """Append a train. Any worker."""
        newly_full = False
        with self._changed:
            self.offered += train.count
            self._queue.append(train)
            self.nbytes += train.nbytes
            self.rows += train.count
            if self.nbytes > self._limit_bytes and not self.is_full:
                self.is_full = newly_full = True
            self._changed.notify_all()
        if newly_full:
            self._on_full(True)

    def begin(self, held: int) -> None:
        pass  # the queue never repeats a tuple

    def peek(self, rows: int) -> list[Train]:
        with self._changed:
            trains, have = [], 0
            for train in self._queue:
                if have and have + train.count > rows:
                    break
                trains.append(train)
                have += train.count
            return trains

    def drop(self, trains: list[Train]) -> None:
        freed = False
        with self._changed:
            for train in trains:
                self._queue.popleft()
                self.nbytes -= train.nbytes
                self.rows -= train.count
            if self.is_full and self.nbytes <= self._limit_bytes // 2:
                self.is_full, freed = False, True
        if freed:
            self._on_full(False)

    def release(self, held: int) -> None:
        pass  # there is no log


class HistoryFeed:
    nbytes = 0

    """``name`` is the reader's name in the history: one for each kind of sink."""

    def __init__(self, history: OutputHistory, name: str) -> None:
        self._history = history
        self._name = name
        self._at = 0  # the number of the last tuple dropped from the feed
        self._peeked = 0  # the number of the last tuple that peek returned
        self.dropped = 0

    @property
    def rows(self) -> int:
        return max(0, self._history.newest - self._at)

    @property
    def at(self) -> int:
        return self._at

    def begin(self, held: int) -> None:
        self._at = held
        self._history.subscribe(self._name, held)

    def peek(self, rows: int) -> list[Train]:
        trains: list[Train] = []
        at = self._at
        for piece in self._history.read(self._name, at, READ_BYTES):
            if piece.first > at + 1:  # the log has dropped tuples that the sink has not taken
                self.dropped += piece.first - at - 1
            trains.append(piece.train)
            at = piece.first + piece.train.count - 1
        self._peeked = at
        return trains

    def drop(self, trains: list[Train]) -> None:
        if trains:
            self._at = self._peeked

    def release(self, held: int) -> None:
        self._history.acknowledge(self._name, held)
