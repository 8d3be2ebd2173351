"""Loss graphs and values as the road map walks them: pieces from the right to the left, ever steeper.

The road map goes by the rule that what was given up last was the dearest so far, which holds when every graph is
concave. A graph that is not is replaced by its upper hull: between two corners of the hull the true utility lies
below, so a plan may promise more than it keeps, and ``validate`` says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from catalog.qos import QoSGraph
from catalog.shed import Values


class Piece(NamedTuple):
    """Down to this share utility falls by so much for a share of 1."""

    to: float
    slope: float


FLAT = (Piece(0.0, 0.0),)  # nothing is lost by losing it


def pieces(graph: QoSGraph | None) -> tuple[Piece, ...]:
    """Of the concave hull, from share 1 down to 0. Without a graph (or a reader) nothing counts."""
    if graph is None:
        return FLAT
    corners = concave_hull(_within(graph))
    found = [Piece(x0, (y1 - y0) / (x1 - x0)) for (x0, y0), (x1, y1) in pairwise(corners)]
    return tuple(reversed(found)) or FLAT


def concave_hull(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The corners of the least concave graph that is nowhere below; x rises."""
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
    """The graph from share 0 to 1, flat where it has no points."""
    inner = [p for p in graph.points if 0.0 < p[0] < 1.0]
    return [(0.0, graph.utility(0.0)), *inner, (1.0, graph.utility(1.0))]


class Cell(NamedTuple):
    """While more than ``to`` of the tuples are kept, ``kept`` of them carry ``apart + worth * kept`` of the worth."""

    to: float
    worth: float
    apart: float


UNSEEN = Values((0.5, 0.5), (0.5, 1.0))
"""Where drops go by value and no tuple was looked at yet: some are worth less than others. Once something is dropped
there it is known."""

ALIKE = (Cell(0.0, 1.0, 0.0),)  # dropped at random: a share of the tuples is that share of the worth


def cells(values: Values | None) -> tuple[Cell, ...]:
    """From all kept down to none: the least worth go first. Worths are relative to their mean."""
    if values is None:
        return ALIKE
    mean = sum(s * w for s, w in zip(values.shares, values.worths, strict=True))
    if mean <= 0 or len(values.shares) < 2:
        return ALIKE
    found: list[Cell] = []
    kept = carried = 1.0
    for share, worth in sorted(zip(values.shares, values.worths, strict=True), key=lambda c: c[1]):
        if share <= 0:
            continue
        relative = worth / mean
        found.append(Cell(max(0.0, kept - share), relative, carried - relative * kept))
        kept, carried = kept - share, carried - relative * share
    found[-1] = found[-1]._replace(to=0.0)
    return tuple(found)
