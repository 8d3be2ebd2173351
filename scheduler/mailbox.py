"""Events on their way to the scheduler, which is woken only when it can act on them.

Waking a thread costs about 30 us, and under Python's lock it also takes that time from whoever works. While the
execution queue is full, news of one more train changes nothing that the scheduler could do; so it sleeps through them
until a plan is finished and reads them all at once then. (A ``SimpleQueue`` wakes its reader for every entry: with
trains of 10,000 tuples that took as long as the filters themselves.)

Correct because a deque's append and a flag's assignment are each atomic under Python's lock and happen in this order:
the poster appends and then looks whether the reader sleeps; the reader says that it sleeps and then looks once more for
events.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from queue import Empty, SimpleQueue

from scheduler.events import Enqueued, Event


class Mailbox:
    """Any thread posts; the scheduler's thread reads."""

    def __init__(self) -> None:
        self._events: deque[Event | None] = deque()
        self._gate: SimpleQueue[None] = SimpleQueue()  # a token for every wake; one too many only wakes for nothing
        self._asleep = False
        self._hungry = True  # the reader could dispatch a plan if something came

    def post(self, event: Event | None) -> None:
        """None tells the reader to end."""
        self._events.append(event)
        if self._asleep and (self._hungry or type(event) is not Enqueued):
            self._asleep = False
            self._gate.put(None)

    def drain(self) -> list[Event | None]:
        """What is there now, in order; what comes meanwhile is for the next time."""
        events = self._events
        return [events.popleft() for _ in range(len(events))]

    def sleep(self, hungry: bool, timeout_s: float | None = None) -> None:
        """Return when there is something worth reading, or when the time is over."""
        self._hungry = hungry
        self._asleep = True
        if not self._events:
            with suppress(Empty):  # nothing came in time, as the caller allowed for
                self._gate.get(timeout=timeout_s)
        self._asleep = False

    @property
    def is_resting(self) -> bool:
        """The reader sleeps and nothing waits to be read."""
        return self._asleep and not self._events
