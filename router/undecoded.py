"""The bytes that connections hold and that are no tuples yet: unfinished messages, and reads that wait to be decoded.

A message may have ``limits.batch`` bytes, and any number of peers may begin one and not finish it. Without a common
limit a thousand of them hold 16 GB. So all connections together have ``limit_bytes``. Above it

- a connection that holds nothing is read on, in small reads: whole tuples of others pass;
- of the connections in the middle of a message, the one of each stream that began first is read on, so that it can
  finish. The others wait, and TCP holds their senders up. Nothing is lost;
- a connection that has sent nothing for ten seconds, while others wait, is closed and counted.

Refused: one limit for each connection. It would have to be below the size of a message.

Owner: the I/O thread.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from time import monotonic
from typing import Protocol

LEAST_BATCHES = 2
SHARE_OF_BUDGET = 0.125
LOW_WATER = 0.75  # of the limit: below it everybody is read again
SWEEP_SECONDS = 1.0
STALLED_AT_MOST_S = 10.0


def undecoded_limit(batch_bytes: int, budget_bytes: int) -> int:
    """Return the common limit: an eighth of the memory budget, and room for two whole messages at least."""
    return max(LEAST_BATCHES * batch_bytes, int(SHARE_OF_BUDGET * budget_bytes))


class Holder(Protocol):
    """A connection as the account sees it."""

    @property
    def stream_key(self) -> Hashable:
        """The stream that it feeds."""

    @property
    def is_stalled(self) -> bool:
        """Whether it is read, and its peer sends nothing."""

    def set_waits_for_room(self, waits: bool) -> None:
        """Stop or resume reading."""

    def give_up(self, why: str) -> None:
        """Tell the peer why, and close."""


class UndecodedBytes:
    def __init__(
        self,
        limit_bytes: int,
        later: Callable[[float, Callable[[], None]], object],
        now_s: Callable[[], float] = monotonic,
    ) -> None:
        self.limit_bytes = limit_bytes
        self.total_bytes = 0
        self.is_full = False
        self.evicted = 0
        self._later = later
        self._now_s = now_s
        self._held: dict[Holder, int] = {}
        self._unfinished: dict[Holder, None] = {}  # in the middle of a message; the longest first
        self._stalled_since_s: dict[Holder, float] = {}
        self._is_sweeping = False

    def note(self, holder: Holder, unfinished_bytes: int, kept_bytes: int = 0) -> None:
        """Note what a connection holds now. ``kept_bytes``: what it keeps between messages, such as dictionaries."""
        held = unfinished_bytes + kept_bytes
        self.total_bytes += held - self._held.pop(holder, 0)
        if held:
            self._held[holder] = held
        if unfinished_bytes and holder not in self._unfinished:
            self._enter(holder)
        elif not unfinished_bytes and holder in self._unfinished:
            self._leave(holder)
        if self.total_bytes > self.limit_bytes and not self.is_full:
            self._hold_back()
        elif self.is_full and self.total_bytes <= self.limit_bytes * LOW_WATER:
            self._let_go()

    def forget(self, holder: Holder) -> None:
        """Forget a connection that has ended."""
        self.note(holder, 0)
        self._stalled_since_s.pop(holder, None)

    # -- who is read --------------------------------------------------------------------------------------------------

    def _first(self, stream_key: Hashable) -> Holder | None:
        return next((h for h in self._unfinished if h.stream_key == stream_key), None)

    def _enter(self, holder: Holder) -> None:
        self._unfinished[holder] = None
        if self.is_full and self._first(holder.stream_key) is not holder:
            holder.set_waits_for_room(True)

    def _leave(self, holder: Holder) -> None:
        was_first = self.is_full and self._first(holder.stream_key) is holder
        del self._unfinished[holder]
        if not self.is_full:
            return
        holder.set_waits_for_room(False)
        if was_first and (first := self._first(holder.stream_key)) is not None:
            first.set_waits_for_room(False)

    def _hold_back(self) -> None:
        self.is_full = True
        seen: set[Hashable] = set()
        for holder in list(self._unfinished):
            holder.set_waits_for_room(holder.stream_key in seen)
            seen.add(holder.stream_key)
        if not self._is_sweeping:
            self._is_sweeping = True
            self._later(SWEEP_SECONDS, self._sweep)

    def _let_go(self) -> None:
        self.is_full = False
        self._stalled_since_s.clear()
        for holder in list(self._unfinished):
            holder.set_waits_for_room(False)

    # -- who has to go ------------------------------------------------------------------------------------------------

    def _sweep(self) -> None:
        """Close the connections whose peers have been silent for long. Only while there is no room."""
        self._is_sweeping = self.is_full
        if not self.is_full:
            return
        self._later(SWEEP_SECONDS, self._sweep)
        now_s = self._now_s()
        for holder in list(self._held):
            if not holder.is_stalled:
                self._stalled_since_s.pop(holder, None)
            elif now_s - self._stalled_since_s.setdefault(holder, now_s) >= STALLED_AT_MOST_S:
                self.evicted += 1
                holder.give_up("a message was left unfinished while others waited for the memory that it holds")
                self.forget(holder)
