"""Events on their way to the scheduler, and whether they are worth waking its thread.

- While the execution queue is full, one more train changes nothing that the scheduler could do. (A step for each train
  of 10,000 tuples took as long as the filters themselves.)
- While a unit is in a plan that runs, or an output blocks it, one more train for it changes nothing either.
- While all queues are empty, a finished plan frees no box that has anything to do. (With one tuple a plan this halves
  the number of steps.)

Such events stay in the mailbox until one comes that matters, and are read together with it. Any thread puts; the thread
that has the scheduler's turn drains. A deque's append and a flag's assignment are each atomic under the GIL, and no
more is needed: a flag is set after the append and cleared before the draining, so it may be set for nothing but is
never missing. A unit may become free between the check and the next step; the step therefore reads the mailbox again
after it has applied the end of a plan.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from scheduler.events import Enqueued, Event, Finished


class Mailbox:
    """Any thread puts; the thread that has the scheduler's turn drains. ``arc_unit`` and ``held`` are the state's: the
    unit behind each arc, and the reasons why a unit may not run."""

    def __init__(self, arc_unit: Sequence[int], held: Sequence[int]) -> None:
        self._arc_unit = arc_unit
        self._held = held
        self._events: deque[Event] = deque()
        self._trains = False  # there is an Enqueued among them for a unit that may run
        self._late_trains = False  # an Enqueued for units that may not run now
        self._ends: deque[None] = deque()  # one for each Finished: counted without looking through the events
        self._other = False  # anything else
        # Set at the end of a step, by the thread that has the turn:
        self.has_plan_room = True  # the execution queue has room: a plan could be dispatched if a train came
        self.refill_after = 1  # while it has none: how many plans must end before it is filled again
        self.queues_are_empty = True  # no train waits for any box

    def put(self, event: Event) -> None:
        self._events.append(event)
        if type(event) is Enqueued:
            held, arc_unit = self._held, self._arc_unit
            for arc in event.arcs:
                if not held[arc_unit[arc]]:
                    self._trains = True
                    break
            else:
                self._late_trains = True
        elif type(event) is Finished:
            self._ends.append(None)
        else:
            self._other = True

    def drain(self) -> list[Event]:
        """Take out all events that are there now, in order. Events that come meanwhile stay for the next time."""
        self._trains = self._late_trains = self._other = False
        self._ends.clear()
        events = self._events
        return [events.popleft() for _ in range(len(events))]

    def finished(self) -> int:
        """Count the plans whose end has not been read yet. One that ended during a ``drain`` may be counted too."""
        return len(self._ends)

    @property
    def has_news(self) -> bool:
        """Return whether the scheduler can act on any of the events."""
        if self.has_plan_room:
            if self._trains or self._other:
                return True
            return bool(self._ends) and (self._late_trains or not self.queues_are_empty)
        return self._other or len(self._ends) >= self.refill_after

    def __len__(self) -> int:
        return len(self._events)

    @property
    def is_empty(self) -> bool:
        return not self._events
