"""Rejects of one block, in a bounded number of objects.

One megabyte of ``x\\n`` holds half a million bad lines. Each of them is counted, the first 64 are described, and the
rest of each reason becomes one reject with a number of tuples.
"""

from __future__ import annotations

from router.codecs.base import Reason, Reject, sample

DESCRIBED = 64


class Rejects:
    """Owner: the decoder, for one block."""

    def __init__(self) -> None:
        self._described: list[Reject] = []
        self._more: dict[Reason, tuple[int, int, str, bytes]] = {}  # the first of each reason that is not described
        self._counts: dict[Reason, int] = {}

    def add(self, reason: Reason, line: int, offset: int, message: str, data: bytes) -> None:
        if len(self._described) < DESCRIBED:
            self._described.append(Reject(reason, line, offset, message, sample(data)))
        elif reason in self._counts:
            self._counts[reason] += 1
        else:
            self._counts[reason] = 1
            self._more[reason] = (line, offset, f"and more in this block; the first: {message}", sample(data))

    def all(self) -> list[Reject]:
        return self._described + [Reject(r, *first, tuples=self._counts[r]) for r, first in self._more.items()]
