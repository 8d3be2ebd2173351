"""The histories of the outputs, as named readers and Spark's sinks ask for them (``router/boundary.OutputHistory``).

``Outbox`` numbers the tuples and knows where they lie in the log. This module puts names and acknowledgements into the
log, and reads tuples out of it.

Threads: any. A history reads its log under a lock of its own, because a ``TrainReader`` serves one thread at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Lock

from engine.daemon.durable.committer import Committer, Emitted, Note
from engine.daemon.durable.outbox import HistoryPiece, Outbox
from engine.daemon.durable.records import NAMED
from storage.encode import TrainReader
from storage.log import Log
from storage.string_account import waiting_bytes
from storage.train import Train


class LoggedHistory:
    """The history of one output. ``ask_for_checkpoint`` has a checkpoint made soon."""

    def __init__(
        self, outbox: Outbox, journal: Log, committer: Committer, ask_for_checkpoint: Callable[[], None]
    ) -> None:
        self.outbox = outbox
        self._log = journal
        self._committer = committer
        self._ask_for_checkpoint = ask_for_checkpoint
        self._reader = TrainReader()
        self._lock = Lock()

    # -- the output ---------------------------------------------------------------------------------------------------

    def emit(self, train: Train) -> None:
        """Number the tuples, and submit them to the log while some reader has a name. On the worker that made them."""
        outbox = self.outbox
        with outbox.lock:
            first, train = outbox.number(train)
            if outbox.names and train.count:
                self._committer.submit(Emitted(outbox.output.number, first, train, waiting_bytes(train) + 64))

    def notes(self) -> Iterator[Note]:
        """Yield what was acknowledged since the last time."""
        if self.outbox.names:
            for name, number in self.outbox.news().items():
                yield self._note(name, number)

    # -- readers ------------------------------------------------------------------------------------------------------

    @property
    def newest(self) -> int:
        return self.outbox.next - 1

    @property
    def readable(self) -> int:
        return self.outbox.readable

    @property
    def oldest(self) -> int:
        outbox = self.outbox
        with outbox.lock:
            return outbox.index[0][0] if outbox.index else outbox.readable + 1

    def subscribe(self, name: str, after: int | None, then: Callable[[str], None] | None = None) -> int:
        """Return the number behind which this name goes on. ``then`` is called when the name is on disk."""
        outbox = self.outbox
        if not outbox.is_kept:
            # Tuples that were emitted before the first name are not in the log: no replay may begin before here.
            self._ask_for_checkpoint()
        start = outbox.subscribe(name, after)
        note = self._note(name, outbox.names[name])
        if name in outbox.durable_names:  # it may read on even if the disk is full or the log has failed
            self._committer.submit(note)
            if then is not None:
                then("")
            return start

        def kept(why: str) -> None:
            if not why:
                outbox.durable_names.add(name)
            if then is not None:
                then(why)

        self._committer.submit(note._replace(then=kept))
        return start

    def acknowledge(self, name: str, number: int) -> None:
        """Note the last number that a reader has. The log gets it with the next group; after a crash before that, the
        reader gets these tuples again."""
        self.outbox.acknowledge(name, number)

    def forget(self, name: str) -> None:
        self.outbox.forget(name)
        self._committer.submit(self._note(name, -1))

    def read(self, name: str, after: int, limit_bytes: int) -> list[HistoryPiece]:
        """Return what is on disk behind a number, with repeats flagged for this reader."""
        with self._lock:
            pieces = self.outbox.read(self._log, self._reader, after, limit_bytes)
        seen = self.outbox.sent.get(name, 0)
        marked = [part for piece in pieces for part in _marked(piece, seen)]
        if marked:
            self.outbox.sent[name] = max(seen, marked[-1].last)
        return marked

    def _note(self, name: str, number: int) -> Note:
        return Note(NAMED, {"o": self.outbox.output.name, "name": name, "q": number})


def _marked(piece: HistoryPiece, seen: int) -> Iterator[HistoryPiece]:
    """Split a piece where this reader may have got it before: that part is a repeat for it."""
    if piece.is_repeat or piece.first > seen:
        yield piece
    elif piece.last <= seen:
        yield piece._replace(is_repeat=True)
    else:
        split = seen + 1 - piece.first
        yield HistoryPiece(piece.first, piece.train.slice(0, split), True)
        yield HistoryPiece(seen + 1, piece.train.slice(split, piece.train.count), False)
