"""The last inputs that were refused, each with its sender, place and reason, so that a user can find the mistake.

The ring has a limit in entries and in bytes. The oldest entries leave it; ``total`` still counts them. The message and
the sample contain the sender's text: they are shown and never interpreted.

Owner: the I/O thread. Any thread may read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

from router.codecs.base import Reject

ENTRY_BYTES = 200  # the memory of an entry without its texts


class DeadLetter(NamedTuple):
    at_ns: int
    stream: str
    peer: str
    reject: Reject

    @property
    def nbytes(self) -> int:
        return ENTRY_BYTES + len(self.peer) + len(self.reject.message) + len(self.reject.sample)

    def to_json(self) -> dict[str, Any]:
        reject = self.reject
        return {
            "at_ns": self.at_ns,
            "stream": self.stream,
            "peer": self.peer,
            "reason": str(reject.reason),
            "line": reject.line or None,
            "offset": reject.offset,
            "message": reject.message,
            "sample": reject.sample.decode("utf-8", "replace"),
            "tuples": reject.tuples,
        }


class DeadLetters:
    def __init__(self, entries: int = 1_000, max_bytes: int = 1024**2) -> None:
        self._entries = entries
        self._max_bytes = max_bytes
        self._ring: deque[DeadLetter] = deque()
        self.nbytes = 0
        self.total = 0  # since the start, with those that have left the ring

    def __len__(self) -> int:
        return len(self._ring)

    def add(self, at_ns: int, stream: str, peer: str, rejects: Iterable[Reject]) -> None:
        for reject in rejects:
            self.total += 1
            letter = DeadLetter(at_ns, stream, peer, reject)
            self._ring.append(letter)
            self.nbytes += letter.nbytes
            while len(self._ring) > self._entries or self.nbytes > self._max_bytes:
                self.nbytes -= self._ring.popleft().nbytes

    def to_json(self, stream: str | None = None, limit: int = 100) -> list[dict[str, Any]]:
        """Return the last dead letters, newest first."""
        letters = [x for x in reversed(self._snapshot()) if stream is None or x.stream == stream]
        return [letter.to_json() for letter in letters[:limit]]

    def _snapshot(self) -> list[DeadLetter]:
        return list(self._ring.copy())  # copy() is atomic under the GIL; iterating is not
