"""Paused outputs: which boxes rest with them, and which arcs no train is put on.

A paused output gets no tuples, and the boxes that feed only paused outputs do not work. The arcs into that part of the
network are closed: from streams and from boxes that work. What was on its way when the pause began still comes out;
tuples that come during the pause pass by. Boxes keep their state, and go on with the next tuple after it.

A box that rests is not one with an equal box that works (``catalog/share``): its state stays as it is, and the other's
goes on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from catalog.network import Network


def resting(feeds: Mapping[str, Collection[str]], outputs: Mapping[str, tuple[str, bool]]) -> set[str]:
    """Return the boxes that feed paused outputs and no others. ``feeds``: by box, the boxes that it reads, feeders
    first. ``outputs``: by output, the box that it reads and whether it is paused."""
    works: set[str] = {feeder for feeder, is_paused in outputs.values() if not is_paused}
    rests: set[str] = {feeder for feeder, is_paused in outputs.values() if is_paused and feeder in feeds}
    for box, feeders in reversed(list(feeds.items())):
        if box in works:
            works.update(feeders)
        elif box in rests:
            rests.update(feeder for feeder in feeders if feeder in feeds)
    return rests - works


def closed_arcs(network: Network) -> frozenset[int]:
    """Return the arcs that lead from what works to what is paused."""
    paused = {output.number for output in network.outputs if output.paused}
    if not paused:
        return frozenset()
    rests = {box for box, outputs in enumerate(network.box_outputs) if outputs and paused.issuperset(outputs)}
    return frozenset(
        arc.number
        for arc in network.arcs
        if (arc.output in paused if arc.output is not None else arc.box in rests)
        and (arc.source.box is None or arc.source.box not in rests)
    )
