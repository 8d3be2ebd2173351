"""The last inputs that were refused, each with its sender, place and reason, so that a user can find the mistake.

The ring has a limit in entries and in bytes. The oldest entries leave it; ``total`` still counts them. The message and
the sample contain the sender's text: they are shown and never interpreted.

Any thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from threading import Lock
from typing import Any, NamedTuple

from catalog.config.units import format_duration, format_duration_roughly
from router.codecs import CODECS
from router.codecs.base import SAMPLE_BYTES, Reason, Reject
from router.codecs.encode.text import iso
from storage.train import Train

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


def skew_reject(refused: Train, time_field: str, now_ns: int, max_skew_ns: int) -> Reject:
    """Return one reject for all tuples of a train that are too far ahead of the clock, with the first as its sample."""
    first = refused.slice(0, 1)
    event_ns = int(first.columns[refused.schema.index(time_field)][0])
    ahead = format_duration_roughly((event_ns - now_ns) // 10**6 * 10**6)
    allowed = format_duration(max_skew_ns)
    message = f"{time_field} is {iso(event_ns)}, {ahead} ahead of the clock; max_skew allows {allowed}"
    sample = CODECS["ndjson"].encoder(refused.schema).encode(first)
    return Reject(Reason.SKEW, 0, 0, message, sample[:SAMPLE_BYTES].strip(), refused.count)


class DeadLetters:
    def __init__(self, entries: int = 1_000, max_bytes: int = 1024**2) -> None:
        self._entries = entries
        self._max_bytes = max_bytes
        self._ring: deque[DeadLetter] = deque()
        self.nbytes = 0
        self.total = 0  # since the start, with those that have left the ring
        self.last: dict[str, DeadLetter] = {}  # by stream; also when the ring has no room for it
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._ring)

    def add(self, at_ns: int, stream: str, peer: str, rejects: Iterable[Reject]) -> None:
        with self._lock:
            for reject in rejects:
                self.total += 1
                letter = self.last[stream] = DeadLetter(at_ns, stream, peer, reject)
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
