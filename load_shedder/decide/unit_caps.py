"""Caps for units that are full: relieve the arc that is late, where it is late.

A unit of the scheduler runs on one worker at a time. When the streams demand more of it than one worker can do, its
queue grows, and no drop on another path helps. So its share of the tuples is capped: at what the unit can do, less
what it takes to work off the backlog that its outputs cannot bear. A cap acts at the nearest places before the unit.

A cap falls at once and rises slowly, like the controller's share. It begins only when the monitor has seen the unit
full (``LoadVerdict.unit_bound``): costs that are measured too high begin nothing.

Pure: verdicts come in, shares come out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp

from catalog.load_verdict import LoadVerdict
from catalog.network import Network
from load_shedder.decide.segments import makes_pairs

CATCH_UP_S = 0.7  # to work off the backlog that is late
RISE_TAU_S = 0.3
OPEN = 0.99  # a cap above this is gone
LEAST = 0.02  # of the tuples: even a unit with a long backlog gets some that are new


@dataclass(frozen=True, slots=True)
class UnitCaps:
    """The share of its tuples that each unit gets at most; 1 where it has no cap."""

    kept: tuple[float, ...] = ()
    at_ns: int = 0

    @property
    def full(self) -> list[int]:
        """The units with a cap."""
        return [unit for unit, share in enumerate(self.kept) if share < 1.0]


def cap_units(before: UnitCaps, verdict: LoadVerdict) -> UnitCaps:
    """Return the next caps."""
    units = len(verdict.unit_ns)
    known = before.kept if len(before.kept) == units else (1.0,) * units
    elapsed_s = max(0.0, (verdict.at_ns - before.at_ns) / 1e9)
    rise = 1.0 - exp(-elapsed_s / RISE_TAU_S)
    kept = []
    for unit, now in enumerate(known):
        needed_ns, late_ns = verdict.unit_ns[unit], verdict.unit_late_ns[unit]
        if now == 1.0 and not (verdict.unit_bound[unit] and late_ns > 0):
            kept.append(1.0)
            continue
        may_ns = max(verdict.unit_limits_ns[unit] - late_ns / CATCH_UP_S, 0.0)
        wanted = 1.0 if needed_ns <= may_ns else max(LEAST, may_ns / needed_ns)
        share = wanted if wanted < now else now + rise * (wanted - now)
        kept.append(1.0 if share > OPEN else share)
    return UnitCaps(tuple(kept), verdict.at_ns)


def places_before(
    network: Network, boxes: Sequence[int], index: Mapping[int, int], flow: Sequence[float] = ()
) -> tuple[frozenset[int], bool]:
    """Return the nearest places before a unit, and whether every tuple for the unit passes one of them.

    ``index`` maps the arc of a place to its number. Before a join the places of one input are enough: a cap there takes
    as large a share of the pairs, and caps on both inputs would take it twice. It is the input that brings the most
    tuples (``flow``, by arc).
    """
    members = set(boxes)
    due: list[int] = []
    for b in boxes:
        due += [a for a in _inputs(network, b, index, flow) if network.arcs[a].source.box not in members]
    seen, found, covered = set(due), set[int](), bool(due)
    while due:
        arc = due.pop()
        if arc in index:
            found.add(index[arc])
            continue
        source = network.arcs[arc].source.box
        if source is None:
            covered = False
            continue
        fresh = [a for a in _inputs(network, source, index, flow) if a not in seen]
        seen.update(fresh)
        due += fresh
    return frozenset(found), covered


def _inputs(network: Network, box: int, index: Mapping[int, int], flow: Sequence[float]) -> Sequence[int]:
    """Return the inputs of a box that a cap behind it must reach."""
    arcs = network.boxes[box].in_arcs
    if not makes_pairs(network, box):
        return arcs
    covered = [a for a in arcs if _places_on(network, a, index, flow)[1]]
    return [max(covered, key=lambda a: flow[a] if a < len(flow) else 0.0)] if covered else arcs


def _places_on(
    network: Network, arc: int, index: Mapping[int, int], flow: Sequence[float]
) -> tuple[frozenset[int], bool]:
    """Return the places on an arc or before it, and whether all of its tuples pass one of them."""
    if arc in index:
        return frozenset((index[arc],)), True
    source = network.arcs[arc].source.box
    return (frozenset(), False) if source is None else places_before(network, [source], index, flow)
