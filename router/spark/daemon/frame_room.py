"""The memory of the frames that peers of the Spark port send: one limit for all of them.

A frame may have 64 MiB, and 256 peers may begin one at once. So a peer takes room for its frame before memory is
allocated, and keeps it until it asks for the next frame. A peer without room waits, and TCP holds the other side up. A
peer that has room and stays silent is closed while others wait.

Any thread of the port.
"""

from __future__ import annotations

from threading import Condition
from time import monotonic
from typing import Protocol

LOOK_SECONDS = 1.0
SMALL_BYTES = 64 * 1024
"""A frame below this size takes no room: 256 of them are 16 MiB."""


class FrameHolder(Protocol):
    def silent_for(self, now: float) -> float:
        """Return for how many seconds the other side has been silent."""

    def close(self) -> None: ...


class FrameRoom:
    def __init__(self, limit_bytes: int, silent_s: float) -> None:
        self.limit_bytes = limit_bytes
        self.evicted = 0
        self._silent_s = silent_s
        self._held: dict[FrameHolder, int] = {}
        self._changed = Condition()

    def take(self, holder: FrameHolder, nbytes: int) -> None:
        """Wait until there is room for a frame. A single one may always be received."""
        if nbytes < SMALL_BYTES:
            return
        with self._changed:
            while self._held and sum(self._held.values()) + nbytes > self.limit_bytes:
                self._changed.wait(LOOK_SECONDS)
                self._close_silent()
            self._held[holder] = nbytes

    def give_back(self, holder: FrameHolder) -> None:
        with self._changed:
            if self._held.pop(holder, None) is not None:
                self._changed.notify_all()

    def _close_silent(self) -> None:
        now = monotonic()
        for holder in list(self._held):
            if holder.silent_for(now) >= self._silent_s:
                self.evicted += 1
                del self._held[holder]
                holder.close()
