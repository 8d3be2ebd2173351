"""Loss graphs and values as the road map uses them: linear pieces from right to left, each steeper than the last.

The road map relies on one rule: the next piece given up is never cheaper than the last. The rule holds when every graph
is concave. A graph that is not concave is replaced by its upper hull. Between two corners of the hull the true utility
lies below it, so a plan may promise more than it keeps; ``validate`` warns about that.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from catalog.loss import ValueCells
from catalog.qos import QoSGraph


class GraphPiece(NamedTuple):
    """Down to the share ``to``, utility falls by ``slope`` per share of 1."""

    to: float
    slope: float


FLAT = (GraphPiece(0.0, 0.0),)  # dropping costs no utility
WALL = 1e9  # a slope that no plan goes down: below this share the results would be too wrong (``max_error``)


def pieces(graph: QoSGraph | None) -> tuple[GraphPiece, ...]:
    """Return the pieces of the concave hull, from share 1 down to 0. Without a graph every share is worth the same."""
    if graph is None:
        return FLAT
    corners = concave_hull(_within(graph))
    found = [GraphPiece(x0, (y1 - y0) / (x1 - x0)) for (x0, y0), (x1, y1) in pairwise(corners)]
    return tuple(reversed(found)) or FLAT


def with_floor(graph: Sequence[GraphPiece], floor: float) -> tuple[GraphPiece, ...]:
    """Return the graph down to a share, and a wall there."""
    if floor <= 0.0:
        return tuple(graph)
    above = [piece for piece in graph if piece.to > floor]
    crossed = next((piece.slope for piece in graph if piece.to <= floor), 0.0)
    start = above[-1].to if above else 1.0
    return (*above, *([GraphPiece(floor, crossed)] if floor < start else []), GraphPiece(0.0, WALL))


def concave_hull(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the corners of the lowest concave graph that is nowhere below these points; x rises."""
    hull: list[tuple[float, float]] = []
    for x, y in points:
        while len(hull) > 1:
            (x0, y0), (x1, y1) = hull[-2:]
            if (y1 - y0) * (x - x0) > (y - y0) * (x1 - x0):
                break
            hull.pop()
        hull.append((x, y))
    return hull


def _within(graph: QoSGraph) -> list[tuple[float, float]]:
    """Return the points of the graph from share 0 to 1, flat where it has none."""
    inner = [p for p in graph.points if 0.0 < p[0] < 1.0]
    return [(0.0, graph.utility(0.0)), *inner, (1.0, graph.utility(1.0))]


class WorthStep(NamedTuple):
    """While the share kept is above ``to``, the kept tuples carry ``apart + worth * kept`` of the total worth."""

    to: float
    worth: float
    apart: float


UNSEEN = ValueCells((0.5, 0.5), (0.5, 1.0))
"""A guess for a semantic place of which no tuple was sampled yet: half of the tuples are worth half as much. The first
drops there replace it with measured values."""

ALIKE = (WorthStep(0.0, 1.0, 0.0),)  # random drops: a share of the tuples carries the same share of the worth


def cells(values: ValueCells | None) -> tuple[WorthStep, ...]:
    """Return the steps from all kept down to none: the least worth go first. Worths are relative to their mean."""
    if values is None:
        return ALIKE
    mean = sum(s * w for s, w in zip(values.shares, values.worths, strict=True))
    if mean <= 0 or len(values.shares) < 2:
        return ALIKE
    found: list[WorthStep] = []
    kept = carried = 1.0
    for share, worth in sorted(zip(values.shares, values.worths, strict=True), key=lambda c: c[1]):
        if share <= 0:
            continue
        relative = worth / mean
        found.append(WorthStep(max(0.0, kept - share), relative, carried - relative * kept))
        kept, carried = kept - share, carried - relative * share
    found[-1] = found[-1]._replace(to=0.0)
    return tuple(found)
