"""Drops on arcs in a simulation, by a shed plan: exact and deterministic, as selectivities are.

A simulated tuple has no fields, but a train knows the mean worth of its tuples, relative to a stream of which nothing
was dropped by value (``SimulatedTrain.worth``). A drop by value leaves fewer tuples that are worth more, by the
distribution of values on that arc (``catalog/loss.ValueCells``).
"""

from __future__ import annotations

from collections.abc import Mapping

from catalog.loss import ValueCells
from engine.simulate.storage import SimulatedTrain
from load_shedder.shed_plan import NOTHING_SHED, ShedPlan


class Drops:
    """The shed plan in force, and what it has dropped so far."""

    def __init__(self, arcs: int) -> None:
        self.plan: ShedPlan = NOTHING_SHED
        self.kept: Mapping[int, float] = {}  # by arc with a drop: the share that stays
        self.shed = [0] * arcs  # tuples dropped so far, by arc
        self._worth: dict[int, float] = {}  # by arc: the worth of a tuple that stays, relative to one before the drop
        self._owed = [0.0] * arcs  # the part of a tuple that rounding has held back so far

    def put(self, plan: ShedPlan, values: Mapping[int, ValueCells]) -> None:
        """Put a plan in force from now on."""
        self.plan, self.kept = plan, plan.kept_on_arc
        self._worth = {}
        for drop in plan.drops:
            arc, kept = drop.place.arc, 1.0 - drop.share
            if drop.place.manner == "semantic" and arc in values and kept > 0:
                self._worth[arc] = values[arc].carried(kept) / kept

    def thin(self, arc: int, train: SimulatedTrain) -> SimulatedTrain | None:
        """Return what is left of a train on this arc; None if nothing is."""
        kept = self.kept.get(arc)
        if kept is None:
            return train
        owed = self._owed[arc] + train.count * kept
        passed = min(int(owed), train.count)
        self._owed[arc] = owed - passed
        self.shed[arc] += train.count - passed
        if not passed:
            return None
        left = train.with_count(passed)
        if arc in self._worth:
            left.worth *= self._worth[arc]
        return left
