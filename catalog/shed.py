"""What is given up when more comes in than the machine can take: places, drops and plans, as data.

The load shedder decides (``load_shedder``), the router does (a mask on an arc), the monitor reports: they meet in these
types, and none of them imports another. A plan is immutable; a new one replaces it whole.

A *place* is an arc on which tuples may be dropped without making an answer wrong in silence. How depends on what lies
behind it (``Manner``):

- ``random``: every box behind it gives a part of its answer when it gets a part of its input (filter, map, inner join).
- ``semantic``: the same, and the outputs behind it say which tuples matter least (``prefer``, a value graph).
- ``windows``: an aggregate lies behind it: whole windows are dropped, so that every window that comes out is exact.

An aggregate that is declared ``approximate`` says in a column which share it saw; before it, ``random`` will do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Manner = Literal["random", "semantic", "windows"]

UnderLoss = Literal["subset", "approximate", "wrong"] | int
"""What a box gives when a part of its input is missing (``Box.under_loss``): a part of its answer; whole windows of so
many ns are right when none of their tuples is missing; an answer that says which share it saw; or something wrong."""

Reason = Literal["shed", "semantic", "window", "expired", "overflow", "damaged"]
REASONS: tuple[Reason, ...] = ("shed", "semantic", "window", "expired", "overflow", "damaged")
"""Why a tuple was dropped on an arc: by a plan, at random, by value or with its window; its deadline was out of reach;
memory ran out before a plan came; or what was spilled could not be read back."""

UNINTENDED: frozenset[Reason] = frozenset({"overflow", "damaged"})
"""What nobody decided: the reasons that a healthy daemon shows none of."""


@dataclass(frozen=True, slots=True)
class Place:
    """An arc where tuples may be dropped, and what that touches."""

    arc: int
    manner: Manner
    outputs: tuple[int, ...]  # that lose by it, ascending
    window_ns: int = 0  # windows: the span of event time that is kept or dropped as one


@dataclass(frozen=True, slots=True)
class Values:
    """What the tuples that reach a semantic place are worth to its output: cells by rising worth."""

    shares: tuple[float, ...]  # of the tuples; they add up to 1
    worths: tuple[float, ...]  # utility of a tuple, 0 to 1, strictly rising

    def carried(self, kept: float) -> float:
        """The share of the worth that this share of the tuples carries, when the least worth go first."""
        total = sum(s * w for s, w in zip(self.shares, self.worths, strict=True))
        if total <= 0:
            return kept
        lost, to_drop = 0.0, 1.0 - kept
        for share, worth in zip(self.shares, self.worths, strict=True):
            dropped = min(share, max(to_drop, 0.0))
            lost, to_drop = lost + dropped * worth, to_drop - dropped
        return max(0.0, 1.0 - lost / total)


@dataclass(frozen=True, slots=True)
class Drop:
    """So much is dropped at one place, and why that was the cheapest there was."""

    place: Place
    share: float  # of what would be put on the arc: above 0, at most 1
    gain_ns: float = 0.0  # work saved in a second
    loss: float = 0.0  # utility given up by it, summed over the outputs
    slope: float = 0.0  # utility lost for a nanosecond a second of work saved, on its last piece: loss over gain


@dataclass(frozen=True, slots=True)
class ShedPlan:
    """What is dropped from now on. ``level`` says how far along the road map it is: 0 nothing, 1 all that may be."""

    number: int = 0  # plans since the start: two plans of one daemon never share it
    level: float = 0.0
    drops: tuple[Drop, ...] = ()  # at most one for an arc, by arc
    excess_ns: float = 0.0  # work a second beyond capacity that it answers
    saved_ns: float = 0.0
    loss: float = 0.0  # utility given up, summed over the outputs
    why: str = ""  # one line for people

    @property
    def kept_on_arc(self) -> dict[int, float]:
        """The share kept, by arc, where something is dropped."""
        return {drop.place.arc: 1.0 - drop.share for drop in self.drops}


NOTHING_SHED = ShedPlan()
