"""Events on their way to the scheduler, and whether they are worth a scheduling step.

- While the execution queue is full, one more train changes nothing that the scheduler could do. (A step for each train
  of 10,000 tuples took as long as the filters themselves.)
- While all queues are empty, a finished plan frees no box that has anything to do. (With one tuple a plan this halves
  the number of steps.)

Such events stay in the mailbox until one comes that matters, and are read together with it. Any thread puts; the thread
that has the scheduler's turn drains. A deque's append and a flag's assignment are each atomic under the GIL, and no
more is needed: a flag is set after the append and cleared before the draining, so it may be set for nothing but is
never missing.
"""

from __future__ import annotations

from collections import deque

from scheduler.events import Enqueued, Event, Finished


class Mailbox:
    """Any thread puts; the thread that has the scheduler's turn drains."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque()
        self._trains = False  # there is an Enqueued among them
        self._finished = False  # a Finished
        self._other = False  # anything else
        # Set at the end of a step, by the thread that has the turn:
        self.has_plan_room = True  # the execution queue has room: a plan could be dispatched if a train came
        self.queues_are_empty = True  # no train waits for any box

    def put(self, event: Event) -> None:
        self._events.append(event)
        if type(event) is Enqueued:
            self._trains = True
        elif type(event) is Finished:
            self._finished = True
        else:
            self._other = True

    def drain(self) -> list[Event]:
        """Take out all events that are there now, in order. Events that come meanwhile stay for the next time."""
        self._trains = self._finished = self._other = False
        events = self._events
        return [events.popleft() for _ in range(len(events))]

    def finished(self) -> int:
        """Count the plans whose end has not been read yet."""
        return sum([type(event) is Finished for event in self._events.copy()]) if self._events else 0

    @property
    def has_news(self) -> bool:
        """Return whether the scheduler can act on any of the events."""
        if self.has_plan_room:
            return self._trains or self._other or (self._finished and not self.queues_are_empty)
        return self._finished or self._other

    def __len__(self) -> int:
        return len(self._events)

    @property
    def is_empty(self) -> bool:
        return not self._events
