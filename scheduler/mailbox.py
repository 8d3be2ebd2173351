"""Events on their way to the scheduler, and whether they are worth a scheduling step.

- While the execution queue is full, news of one more train changes nothing that the scheduler could do. (A step for
  each train of 10,000 tuples took as long as the filters themselves.)
- While nothing waits on any queue, a finished plan frees no box that has anything to do. (At a tuple a plan that halves
  the number of steps.)

Such events wait for the next one that matters and are read together with it. Any thread puts; whoever has the
scheduler's turn drains. A deque's append and a flag's assignment are each atomic under Python's lock, and that is all
that this needs: a flag is set after the append and cleared before the draining, so it may be set for nothing but is
never missing.
"""

from __future__ import annotations

from collections import deque

from scheduler.events import Enqueued, Event, Finished


class Mailbox:
    def __init__(self) -> None:
        self._events: deque[Event] = deque()
        self._trains = False  # there is an Enqueued among them
        self._finished = False  # a Finished
        self._other = False  # anything else
        # Set at the end of a step by who has the turn:
        self.is_hungry = True  # a plan could be dispatched if a train came
        self.is_idle = True  # nothing waits on any queue

    def put(self, event: Event) -> None:
        self._events.append(event)
        if type(event) is Enqueued:
            self._trains = True
        elif type(event) is Finished:
            self._finished = True
        else:
            self._other = True

    def drain(self) -> list[Event]:
        """What is there now, in order; what comes meanwhile is for the next time."""
        self._trains = self._finished = self._other = False
        events = self._events
        return [events.popleft() for _ in range(len(events))]

    def finished(self) -> int:
        """How many plans have ended of which nobody has read yet."""
        return sum([type(event) is Finished for event in self._events.copy()]) if self._events else 0

    @property
    def has_news(self) -> bool:
        """There is something that the scheduler can act on."""
        if self.is_hungry:
            return self._trains or self._other or (self._finished and not self.is_idle)
        return self._finished or self._other

    def __len__(self) -> int:
        return len(self._events)

    @property
    def is_empty(self) -> bool:
        return not self._events
