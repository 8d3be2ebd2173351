"""Tuples that arcs lose in a simulation, by a shed plan: exact and without chance, as selectivities are.

A simulated tuple has no values, but a train knows what its tuples are worth, in the mean and against those that nobody
has chosen from (``SimulatedTrain.worth``). A drop by value leaves fewer tuples that are worth more: as much more as the
distribution of values on that arc says (``catalog/shed.Values``).
"""

from __future__ import annotations

from collections.abc import Mapping

from catalog.shed import ShedPlan, Values
from engine.simulate.storage import SimulatedTrain


class Drops:
    def __init__(self, arcs: int) -> None:
        self.kept: Mapping[int, float] = {}  # by arc on which something is dropped: the share that stays
        self.shed = [0] * arcs  # tuples dropped so
        self._worth: dict[int, float] = {}  # by arc: what a tuple that stays is worth, against one before
        self._owed = [0.0] * arcs  # what dropping has rounded off so far

    def put(self, plan: ShedPlan, values: Mapping[int, Values]) -> None:
        """This plan is in force from now on."""
        self.kept = plan.kept_on_arc
        self._worth = {}
        for drop in plan.drops:
            arc, kept = drop.place.arc, 1.0 - drop.share
            if drop.place.manner == "semantic" and arc in values and kept > 0:
                self._worth[arc] = values[arc].carried(kept) / kept

    def thin(self, arc: int, train: SimulatedTrain) -> SimulatedTrain | None:
        """What is left of a train on this arc."""
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
