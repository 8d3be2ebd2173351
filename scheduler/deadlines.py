"""Tuples that are not worth computing: older than the dead point of every output that they could reach.

What an output's graph says, and who may lose a tuple so, is handed in (``dead_points``); here it is set against the
time that the boxes on the way take. A train of tuples counts by its youngest: none is given up that could still make
it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from catalog.network import Network
from scheduler.events import Enqueued


def give_up_ns(
    dead_points: Mapping[int, Sequence[tuple[int, int]]], paths_ns: Sequence[Mapping[int, float]], network: Network
) -> dict[int, int]:
    """By arc, the age from which on no output behind it can be reached before its dead point.

    ``paths_ns`` is by box and output: how long the boxes from there on take.
    """
    limits: dict[int, int] = {}
    for a, points in dead_points.items():
        box = network.arcs[a].box
        assert box is not None
        limits[a] = max(0, max(int(dead_ns - paths_ns[box].get(o, 0.0)) for o, dead_ns in points))
    return limits


def dead_at_head(entries: Iterable[Enqueued], before_ns: int) -> int:
    """Tuples of the trains at the head of a queue that arrived, all of them, before this time."""
    dead = 0
    for entry in entries:
        last_ns = 2 * entry.mean_arrival_ns - entry.first_arrival_ns
        if last_ns >= before_ns:
            break
        dead += entry.tuples
    return dead
