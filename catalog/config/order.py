"""The order in which boxes can be bound, and the loops that prevent one."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence


def topological(feeders: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the names so that each comes after its feeders; ties by their order in the mapping. Loops are left out."""
    rank = {name: i for i, name in enumerate(feeders)}
    names = list(feeders)
    waits = {name: {f for f in fs if f in rank} for name, fs in feeders.items()}
    feeds: dict[str, list[str]] = {name: [] for name in feeders}
    for name, fs in waits.items():
        for f in fs:
            feeds[f].append(name)
    ready = [rank[name] for name, fs in waits.items() if not fs]
    heapq.heapify(ready)
    order: list[str] = []
    while ready:
        name = names[heapq.heappop(ready)]
        order.append(name)
        for fed in feeds[name]:
            waits[fed].discard(name)
            if not waits[fed]:
                heapq.heappush(ready, rank[fed])
    return order


def find_cycles(feeders: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Return one loop for each group of boxes that feed each other, in the direction of the flow, from the box that
    comes first in the file."""
    rank = {name: i for i, name in enumerate(feeders)}
    left = set(feeders) - set(topological(feeders))
    cycles: list[list[str]] = []
    for start in feeders:
        if start in left and (back := _upstream_loop(start, feeders, left)):
            cycle = back[::-1]
            first = min(range(len(cycle)), key=lambda i: rank[cycle[i]])
            cycles.append(cycle[first:] + cycle[:first])
            left -= set(cycle)
    return cycles


def _upstream_loop(start: str, feeders: Mapping[str, Sequence[str]], within: set[str]) -> list[str]:
    """Return the shortest path upstream from a box to itself, without the repeated end; empty when there is none."""
    came: dict[str, str] = {}
    frontier = [start]
    while frontier:
        following: list[str] = []
        for name in frontier:
            for feeder in feeders[name]:
                if feeder == start:
                    way = [name]
                    while way[-1] != start:
                        way.append(came[way[-1]])
                    return way[::-1]
                if feeder in within and feeder not in came:
                    came[feeder] = name
                    following.append(feeder)
        frontier = following
    return []
