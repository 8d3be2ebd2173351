"""A plan that may end between two operators (``scheduler/preemption``), under way in the simulator.

The simulator runs other plans in one pass. This one runs operator by operator, with an event at the end of each, so
that tuples which arrive meanwhile can outrank the next one, as on a worker (``engine/run/executable``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from engine.simulate.sequences import Operator
from engine.simulate.storage import SimulatedTrain
from scheduler.claims import Claim
from scheduler.plan import Plan


class InterruptiblePlan:
    """Owner: the simulation."""

    __slots__ = ("_at", "_operators", "backlogged", "begun_ns", "claims", "inbox", "plan")

    def __init__(self, plan: Plan, claims: Mapping[int, Claim], operators: Sequence[Operator], begun_ns: float) -> None:
        self.plan = plan
        self.claims = claims
        self.begun_ns = int(begun_ns)
        self.inbox: dict[int, list[SimulatedTrain]] = {a: c.trains for a, c in claims.items()}  # type: ignore[misc]
        self.backlogged = {a for a, c in claims.items() if not c.emptied}
        self._operators = operators
        self._at = 0

    @property
    def is_new(self) -> bool:
        return not self._at

    @property
    def is_over(self) -> bool:
        """Return whether no operator is left, or a box of higher priority than the next one waits. Tuples that were
        taken from a queue must reach their box first: behind newer tuples they would be out of order."""
        if self._at == len(self._operators):
            return True
        priorities = self.plan.priorities
        assert priorities is not None
        is_outranked = self.plan.rival > priorities[self._operators[self._at][0].box]
        return is_outranked and self.claims.keys().isdisjoint(self.inbox)

    def next_operator(self) -> Operator:
        self._at += 1
        return self._operators[self._at - 1]

    def left(self) -> Iterator[tuple[int, SimulatedTrain]]:
        """Yield the trains for boxes that will not run in this plan, by arc."""
        for arc, trains in self.inbox.items():
            for train in trains:
                yield arc, train
