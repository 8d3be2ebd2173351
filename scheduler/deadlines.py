"""Find the tuples that are too late to be worth computing: no output that they could reach would still value them.

``dead_points`` comes from outside: by arc, the outputs that may lose tuples in this way and the delay at which each
values a tuple no more. This module subtracts the time that the boxes on the path take. A train counts by its youngest
tuple: no tuple is dropped that could still be in time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from catalog.network import Network
from scheduler.events import Enqueued


def hopeless_ages_ns(
    dead_points: Mapping[int, Sequence[tuple[int, int]]], paths_ns: Sequence[Mapping[int, float]], network: Network
) -> dict[int, int]:
    """Return by arc the age from which a tuple cannot reach any output before its dead point.

    ``paths_ns``, by box and output: how long the boxes from there to the output take.
    """
    limits: dict[int, int] = {}
    for a, points in dead_points.items():
        box = network.arcs[a].box
        assert box is not None
        limits[a] = max(0, max(int(dead_ns - paths_ns[box].get(o, 0.0)) for o, dead_ns in points))
    return limits


def dead_at_head(entries: Iterable[Enqueued], before_ns: int) -> int:
    """Count the tuples of the trains at the head of a queue that arrived wholly before this time."""
    dead = 0
    for entry in entries:
        last_ns = 2 * entry.mean_arrival_ns - entry.first_arrival_ns
        if last_ns >= before_ns:
            break
        dead += entry.tuples
    return dead
