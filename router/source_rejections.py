"""What a sender learns of the rows that the server refused: how many, and the first of them with place and reason.

A batch is acknowledged when its good rows are in, so an acknowledgement alone says nothing of the bad ones. The server
adds them: the number of all refused rows of this source and epoch so far, and the first reasons that the sender has not
been given. The number grows only when a batch is acknowledged, so a batch that the log refuses and the client sends
again counts once. It is a running total, because an acknowledgement can get lost with its connection: the welcome of
the next connection repeats it.

Nothing of this is on disk. After a restart of the server the total begins at 0 again.

Owner: the I/O thread.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import Any

from router.codecs.base import Reject

REASONS_AT_ONCE = 5
"""Reasons in one answer. The dead letters have more."""
MESSAGE_CHARACTERS = 200
SOURCES = 1_024
"""Sources with refused rows that are remembered, for each stream."""


class SourceRejections:
    """The refused rows of one source in one epoch."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.total = 0  # rows of acknowledged batches
        self._waiting: dict[int, Sequence[Reject]] = {}  # by sequence: batches that are not acknowledged yet
        self._recent: deque[dict[str, Any]] = deque(maxlen=REASONS_AT_ONCE)  # for the next welcome

    def add(self, sequence: int, rejects: Sequence[Reject]) -> None:
        """Note the refused rows of a batch. A batch that comes again replaces itself."""
        self._waiting[sequence] = rejects

    def settle(self, sequence: int) -> dict[str, Any]:
        """Count the batches up to this one, and return the fields for its acknowledgement."""
        reasons: list[dict[str, Any]] = []
        for number in sorted(n for n in self._waiting if n <= sequence):
            for reject in self._waiting.pop(number):
                self.total += reject.tuples
                if len(reasons) < REASONS_AT_ONCE:
                    reasons.append(_describe(number, reject))
        self._recent += reasons
        return {"rejected": self.total, "reasons": reasons} if self.total else {}

    def for_welcome(self) -> dict[str, Any]:
        """Return the fields for a welcome: the client may have missed the last acknowledgements."""
        return {"rejected": self.total, "reasons": list(self._recent)} if self.total else {}


class StreamRejections:
    """The sources of one stream that have had rows refused. The one that was quiet for longest is forgotten first."""

    def __init__(self) -> None:
        self._sources: OrderedDict[str, SourceRejections] = OrderedDict()

    def add(self, source: str, epoch: int, sequence: int, rejects: Sequence[Reject]) -> None:
        found = self.get(source, epoch)
        if found is None:
            found = self._sources[source] = SourceRejections(epoch)
            if len(self._sources) > SOURCES:
                self._sources.popitem(last=False)
        self._sources.move_to_end(source)
        found.add(sequence, rejects)

    def get(self, source: str, epoch: int) -> SourceRejections | None:
        found = self._sources.get(source)
        return found if found is not None and found.epoch == epoch else None

    def settle(self, source: str, epoch: int, sequence: int) -> dict[str, Any]:
        found = self.get(source, epoch)
        return {} if found is None else found.settle(sequence)

    def for_welcome(self, source: str, epoch: int, sequence: int) -> dict[str, Any]:
        """Return the fields for a welcome that says that the server has the batches up to this one."""
        found = self.get(source, epoch)
        if found is None:
            return {}
        found.settle(sequence)
        return found.for_welcome()


def _describe(sequence: int, reject: Reject) -> dict[str, Any]:
    """Return a reject as a client gets it. ``line`` counts from 1 within the batch; 0 in a format without lines."""
    return {
        "batch": sequence,
        "line": reject.line,
        "offset": reject.offset,
        "reason": str(reject.reason),
        "message": reject.message[:MESSAGE_CHARACTERS],
        "tuples": reject.tuples,
    }
