"""The edge of one stream: the share of its rows that is decoded, what is dropped, and how late its bytes are.

The connections of the stream count here; the monitor reads, and sets ``share``. Owner: the I/O thread, apart from
``share``, ``wait_ns`` and the reading, which belong to the monitor.
"""

from __future__ import annotations

from random import Random

from catalog.readings import EdgeReading
from storage.train import Train

SAMPLED, OVERDUE = "sampled", "overdue"
EDGE_REASONS = (SAMPLED, OVERDUE)
"""Why rows are dropped before they are decoded: by the share in force, or because they waited too long for it."""


class EdgeGauge:
    def __init__(self, *, sheds: bool = False, wait_ns: int = 100_000_000) -> None:
        self.sheds = sheds  # whether rows of this stream may be dropped undecoded
        self.share = 1.0  # of the rows, that is decoded
        self.wait_ns = wait_ns  # that a row may wait undecoded
        self.dropped = dict.fromkeys(EDGE_REASONS, 0)
        self.decode_ns = 0  # spent decoding, on any thread
        self.undrained: dict[int, int] = {}  # by connection whose socket was never found empty: since when
        self._random = Random(1)
        self.latest_wait_ns = 0  # of the last rows that left the inbox

    def drop(self, reason: str, rows: int) -> None:
        self.dropped[reason] += rows

    def thin(self, train: Train) -> tuple[Train, int]:
        """Return a run of about this share of a train that is decoded already, and how many tuples were dropped. For
        formats that cannot be cut undecoded, but cost next to nothing to decode."""
        kept = int(train.count * self.share + self._random.random())
        at = int((train.count - kept + 1) * self._random.random())
        gone = train.count - kept
        self.drop(SAMPLED, gone)
        return (train.slice(at, at + kept) if gone else train), gone

    def reading(self, now_ns: int) -> EdgeReading:
        since = list(self.undrained.values())
        return EdgeReading(
            sheds=self.sheds,
            share=self.share,
            dropped={reason: n for reason, n in self.dropped.items() if n},
            decode_ns=self.decode_ns,
            behind_ns=max(0, now_ns - min(since)) if since else 0,
            waited_ns=self.latest_wait_ns,
        )
