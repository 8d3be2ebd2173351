"""Rejects of one block, in a bounded number of objects.

A megabyte of bare newlines' neighbours ("x", half a million times) is half a million bad lines: each is counted, the
first ones are described, and the rest of each reason is one reject with its number of tuples.
"""

from __future__ import annotations

from router.codecs.base import Reason, Reject, sample

DESCRIBED = 64


class Rejects:
    def __init__(self) -> None:
        self._described: list[Reject] = []
        self._more: dict[Reason, Reject] = {}

    def add(self, reason: Reason, line: int, offset: int, message: str, data: bytes) -> None:
        if len(self._described) < DESCRIBED:
            self._described.append(Reject(reason, line, offset, message, sample(data)))
            return
        more = self._more.get(reason)
        if more is None:
            more = Reject(reason, line, offset, f"and more of this block, the first: {message}", sample(data), 0)
        self._more[reason] = more._replace(tuples=more.tuples + 1)

    def all(self) -> list[Reject]:
        return [*self._described, *self._more.values()]
