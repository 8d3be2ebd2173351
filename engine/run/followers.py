"""Where each train of a plan goes: the table that the workers and the simulator both read.

A plan is a sequence of boxes, and the sequence alone decides where a box's output goes. For each step and each of its
output ports, an arc leads to one of three places:

- to a box with a later step in the sequence: the train is handed on and touches no queue;
- to a box without a later step: the train is put on the arc's queue;
- to an output: the train is delivered.

A worker adds to this what the sequence does not say (``engine/run/executable``): which chains run fused, taps, drops.
The simulator adds costs and selectivities (``engine/simulate/execution``). Both build the table once for a sequence
and keep it; no train pays for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import NamedTuple

from catalog.network import Network


class Followers(NamedTuple):
    """One output port at one step of a plan: its arcs, by where they lead. The order is that of the network."""

    handed_on: tuple[int, ...]  # to a box with a later step in this plan
    queued: tuple[int, ...]  # to a box without one
    delivered: tuple[int, ...]  # to an output

    def without(self, arcs: Collection[int]) -> Followers:
        """Leave these arcs out."""
        return Followers(*(tuple(a for a in kind if a not in arcs) for kind in self))


class SequenceStep(NamedTuple):
    """One box at its place in a plan."""

    box: int
    in_arcs: tuple[int, ...]
    ports: tuple[Followers, ...]
    is_chained: bool  # all that it emits goes to the next step, which takes nothing else; each of the two runs once


def sequence_steps(network: Network, boxes: Sequence[int]) -> tuple[SequenceStep, ...]:
    """Build the table for these boxes in this order. A box may stand in it more than once."""
    later: set[int] = set()
    steps: list[SequenceStep] = []
    for box in reversed(boxes):
        node = network.boxes[box]
        ports = tuple(_followers(network, arcs, later) for arcs in node.out_arcs)
        steps.append(SequenceStep(box, node.in_arcs, ports, False))
        later.add(box)
    steps.reverse()
    runs = Counter(boxes)
    for place, (here, after) in enumerate(pairwise(steps)):
        if _is_only_way(here, after) and runs[here.box] == runs[after.box] == 1:
            steps[place] = here._replace(is_chained=True)
    return tuple(steps)


def _followers(network: Network, arcs: Sequence[int], later: Collection[int]) -> Followers:
    known = [network.arcs[a] for a in arcs]
    return Followers(
        handed_on=tuple(a.number for a in known if a.box in later),
        queued=tuple(a.number for a in known if a.box is not None and a.box not in later),
        delivered=tuple(a.number for a in known if a.output is not None),
    )


def _is_only_way(here: SequenceStep, after: SequenceStep) -> bool:
    """Whether one arc, and nothing else, leads out of ``here`` and into ``after``."""
    return len(after.in_arcs) == 1 and here.ports == (Followers(after.in_arcs, (), ()),)
