"""What the scheduler knows. It knows nothing of threads, clocks, sockets or trains: only counts and times.

``apply(event)`` is the only mutator and the scheduler's thread its only caller (in the simulator, the simulation's).
Policies read it and decide. The same events in the same order give the same state, so a test, the daemon and the
simulator see one scheduler.

A *unit* is what is scheduled at once: a box, or a superbox. A unit is *ready* when something waits for one of its boxes
and nothing holds it: it is in no plan that runs, and no output that it feeds is blocked. ``ready`` keeps the units in
the order in which they became so. Nothing here, and nothing in a step, grows with the number of idle boxes.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from catalog.network import Network
from scheduler.events import Claimed, Dispatched, Enqueued, Event, Finished, OutputBlocked, OutputFreed
from scheduler.plan import Plan
from scheduler.superbox import Superbox, static_superboxes
from scheduler.trains import TrainRule


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    unit: str = "superbox"  # tuple | box | superbox
    traversal: str = "min_cost"
    train: TrainRule = TrainRule()


class ArcState:
    """What waits on one arc, as the scheduler has been told."""

    __slots__ = ("arrival_total_ns", "entries", "nbytes", "tuples")

    def __init__(self) -> None:
        self.entries: deque[Enqueued] = deque()  # one a train, oldest first; the head may be partly taken
        self.tuples = 0
        self.nbytes = 0
        self.arrival_total_ns = 0  # sum over the tuples, so that the mean wait costs nothing to read


class SchedulerState:
    def __init__(self, network: Network, settings: SchedulerSettings | None = None) -> None:
        self.network = network
        self.settings = settings or SchedulerSettings()
        self.superboxes: tuple[Superbox, ...] = static_superboxes(network)
        self.arcs = [ArcState() for _ in network.arcs]
        boxes = len(network.boxes)
        self.unit_of = list(range(boxes))  # box -> its unit
        self.unit_boxes: list[tuple[int, ...]] = [(b,) for b in range(boxes)]
        if self.settings.unit == "superbox":
            self.unit_boxes = [s.boxes for s in self.superboxes]
            for superbox in self.superboxes:
                for box in superbox.boxes:
                    self.unit_of[box] = superbox.number
        self.waiting = [0] * boxes  # trains on the inputs of each box
        self.unit_waiting = [0] * len(self.unit_boxes)  # the same, by unit
        self.held = [0] * len(self.unit_boxes)  # reasons why a unit may not run: plans under way, blocked outputs
        self.ready: dict[int, None] = {}  # units, in the order in which they became ready
        self.outstanding = 0  # plans dispatched and not finished
        self.waiting_tuples = 0  # on all arcs to boxes
        self._consumer = [-1 if arc.box is None else arc.box for arc in network.arcs]
        self._units_of_output = [self._feeding_units(output.arc) for output in network.outputs]

    # -- the one door in --------------------------------------------------------------------------------------------

    def apply(self, event: Event) -> None:
        kind = type(event)
        if kind is Enqueued:
            self._enqueued(event)  # type: ignore[arg-type]
        elif kind is Claimed:
            self._claimed(*event)  # type: ignore[arg-type]
        elif kind is Dispatched:
            self.outstanding += 1
            for unit in self._units_of(event.plan):  # type: ignore[union-attr]
                self._hold(unit)
        elif kind is Finished:
            self.outstanding -= 1
            for unit in self._units_of(event.plan):  # type: ignore[union-attr]
                self._release(unit)
        elif kind is OutputBlocked:
            for unit in self._units_of_output[event.output]:  # type: ignore[union-attr]
                self._hold(unit)
        else:
            assert kind is OutputFreed
            for unit in self._units_of_output[event.output]:  # type: ignore[union-attr]
                self._release(unit)

    def _enqueued(self, event: Enqueued) -> None:
        tuples = event.tuples
        for a in event.arcs:
            arc = self.arcs[a]
            arc.entries.append(event)
            arc.tuples += tuples
            arc.nbytes += event.nbytes
            arc.arrival_total_ns += event.mean_arrival_ns * tuples
            box = self._consumer[a]
            unit = self.unit_of[box]
            self.waiting[box] += 1
            self.unit_waiting[unit] += 1
            self.waiting_tuples += tuples
            if not self.held[unit]:
                self.ready[unit] = None

    def _claimed(self, a: int, tuples: int, trains: int) -> None:
        arc = self.arcs[a]
        left = tuples
        for _ in range(trains):
            entry = arc.entries.popleft()
            left -= entry.tuples
            arc.nbytes -= entry.nbytes
            arc.arrival_total_ns -= entry.mean_arrival_ns * entry.tuples
        if left > 0:  # the head was cut: what is left of it keeps its bytes, as its memory does
            entry = arc.entries[0]
            arc.entries[0] = entry._replace(tuples=entry.tuples - left)
            arc.arrival_total_ns -= entry.mean_arrival_ns * left
        assert left >= 0, f"arc {a}: claimed {tuples} tuples of {trains} trains"
        arc.tuples -= tuples
        box = self._consumer[a]
        self.waiting[box] -= trains
        self.unit_waiting[self.unit_of[box]] -= trains
        self.waiting_tuples -= tuples

    def _hold(self, unit: int) -> None:
        self.held[unit] += 1
        self.ready.pop(unit, None)

    def _release(self, unit: int) -> None:
        self.held[unit] -= 1
        assert self.held[unit] >= 0
        if not self.held[unit] and self.unit_waiting[unit]:
            self.ready[unit] = None

    # -- reading ----------------------------------------------------------------------------------------------------

    def box_tuples(self, box: int) -> int:
        """Tuples that wait on the inputs of a box."""
        return sum([self.arcs[a].tuples for a in self.network.boxes[box].in_arcs])

    def is_quiet(self) -> bool:
        """Nothing waits and nothing runs."""
        return not self.outstanding and not any(self.unit_waiting)

    def _units_of(self, plan: Plan) -> list[int]:
        return list(dict.fromkeys([self.unit_of[b] for b in plan.boxes]))

    def _feeding_units(self, arc: int) -> tuple[int, ...]:
        source = self.network.arcs[arc].source
        return () if source.box is None else (self.unit_of[source.box],)
