"""Events on their way to the scheduler.

While the execution queue is full, news of one more train changes nothing that the scheduler could do, so it is not
worth a scheduling step; the events wait and are read all at once when a plan is finished. (A step for each train of
10,000 tuples took as long as the filters themselves.)

Any thread puts; whoever has the scheduler's turn drains. A deque's append and a flag's assignment are each atomic under
Python's lock, and that is all that this needs.
"""

from __future__ import annotations

from collections import deque

from scheduler.events import Enqueued, Event


class Mailbox:
    def __init__(self) -> None:
        self._events: deque[Event] = deque()
        self._urgent = False  # something other than news of a train
        self.is_hungry = True  # the scheduler could dispatch a plan if something came; set by who has the turn

    def put(self, event: Event) -> None:
        self._events.append(event)
        if type(event) is not Enqueued:
            self._urgent = True

    def drain(self) -> list[Event]:
        """What is there now, in order; what comes meanwhile is for the next time."""
        self._urgent = False
        events = self._events
        return [events.popleft() for _ in range(len(events))]

    @property
    def has_news(self) -> bool:
        """There is something that the scheduler can act on."""
        return bool(self._events) and (self.is_hungry or self._urgent)

    @property
    def is_empty(self) -> bool:
        return not self._events
