"""Which arcs spill: a level of memory use for each arc, computed from the scheduler's ranking.

An arc spills new trains while memory use is above the arc's level. The level of the arc that the scheduler ranks first
is nine tenths of the budget, that of the last one is half of it, and the others lie evenly between. So urgent arcs find
the room that the others have left. An arc without a rank has nothing waiting: it counts as urgent.

``storage/spilling.py`` applies the levels. Everything here is a pure function.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

FIRST_SPILLS_ABOVE = 0.9
LAST_SPILLS_ABOVE = 0.5


class SpillLevels(NamedTuple):
    """One ranking as levels. Constant: a new ranking replaces the whole."""

    above_bytes: Sequence[int]  # by arc: it spills while memory use is above this
    place: Sequence[int]  # by arc: 0 is the most urgent of the ranked ones, -1 is an arc without a rank


def spill_levels(budget_bytes: int, arcs: int, ranked: Sequence[int] = ()) -> SpillLevels:
    """Compute the levels of all arcs. ``ranked`` are the arcs with tuples to process, the most urgent first."""
    above_bytes = [int(budget_bytes * FIRST_SPILLS_ABOVE)] * arcs
    place = [-1] * arcs
    step = (FIRST_SPILLS_ABOVE - LAST_SPILLS_ABOVE) / max(1, len(ranked) - 1)
    for n, arc in enumerate(ranked):
        above_bytes[arc] = int(budget_bytes * (FIRST_SPILLS_ABOVE - step * n))
        place[arc] = n
    return SpillLevels(above_bytes, place)
