"""A shed plan: which share of the tuples each arc drops from now on, and the price of that. Plain data.

The deciding half of this package makes plans, the applying half drops by them, the recording half keeps them. A plan is
immutable; a new plan replaces the old one as a whole.

A *place* is an arc on which tuples may be dropped without making an answer silently wrong. ``Manner`` says how to
choose the tuples there; it follows from the boxes behind the arc:

- ``random``: every box behind it answers a part of its input with a part of its answer (filter, map, inner join).
- ``semantic``: the same, and the outputs behind it state which tuples matter least (``prefer``, a value graph).
- ``windows``: an aggregate lies behind it. Whole windows are dropped, so that every window that comes out is exact.

An aggregate that is declared ``approximate`` states in a column which share of its input it saw. Before such a box
``random`` is allowed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Manner = Literal["random", "semantic", "windows"]


@dataclass(frozen=True, slots=True)
class DropPlace:
    """An arc where tuples may be dropped, and the outputs that this touches."""

    arc: int
    manner: Manner
    outputs: tuple[int, ...]  # that lose by it, ascending
    window_ns: int = 0  # windows: the span of event time that is kept or dropped as one


@dataclass(frozen=True, slots=True)
class Drop:
    """The share dropped at one place, with the gain and the loss that made it the cheapest choice."""

    place: DropPlace
    share: float  # of the tuples that would be put on the arc: above 0, at most 1
    gain_ns: float = 0.0  # work saved per second
    loss: float = 0.0  # utility given up, summed over the outputs
    slope: float = 0.0  # loss over gain of the last piece: utility lost for one ns of work per second saved


@dataclass(frozen=True, slots=True)
class ShedPlan:
    """All drops from now on. ``level`` is the position on the road map: 0 drops nothing, 1 all that may be dropped."""

    number: int = 0  # counts the plans since the start: two plans of one daemon never share it
    level: float = 0.0
    drops: tuple[Drop, ...] = ()  # at most one for an arc, sorted by arc
    excess_ns: float = 0.0  # work per second beyond capacity, which this plan answers
    saved_ns: float = 0.0
    load_ns: float = 0.0  # work per second that arrives, as if nothing were shed
    capacity_ns: float = 0.0  # work per second that can be done
    loss: float = 0.0  # utility given up, summed over the outputs
    why: str = ""  # one line for people

    @property
    def outputs(self) -> frozenset[int]:
        """The outputs of which tuples are dropped."""
        return frozenset(o for drop in self.drops for o in drop.place.outputs)

    @property
    def kept_on_arc(self) -> dict[int, float]:
        """The share kept, by arc, where something is dropped."""
        return {drop.place.arc: 1.0 - drop.share for drop in self.drops}


NOTHING_SHED = ShedPlan()
