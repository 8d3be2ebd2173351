"""Progress charts: how the memory of a tuple shrinks as work is spent on it (Chain, VPipe).

A chart starts at (0, 1) and has a point for each box of a path: the expected work spent so far, and the expected size
that is left. At the end of the path the tuple leaves the engine, and nothing is left. The lower envelope is drawn from
the start: its next corner is the later point with the steepest descent, and so on from there. Boxes between two corners
form one segment, share its slope and are scheduled together. Running the steepest segment first frees memory fastest.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, pairwise
from typing import NamedTuple

from catalog.network import Network

Point = tuple[float, float]


def lower_envelope(points: Sequence[Point]) -> list[int]:
    """Return the corners as positions in ``points``: the first, and from each the later one with the steepest
    descent."""
    corners = [0]
    while corners[-1] < len(points) - 1:
        at = corners[-1]
        x, y = points[at]
        # On a tie the farther point: a segment is as long as it can be.
        corners.append(max(range(at + 1, len(points)), key=lambda i: (_slope(x, y, points[i]), i)))
    return corners


def envelope_slopes(points: Sequence[Point]) -> list[float]:
    """Return, for each step from point to point, the descent of its segment of the envelope."""
    corners = lower_envelope(points)
    slopes: list[float] = []
    for left, right in pairwise(corners):
        slopes += [_slope(*points[left], points[right])] * (right - left)
    return slopes


def _slope(x: float, y: float, point: Point) -> float:
    return (y - point[1]) / max(point[0] - x, 1e-9)


def progress_chart(costs: Sequence[float], selectivities: Sequence[float], sizes: Sequence[float]) -> list[Point]:
    """Return the chart of boxes in a row, from the cost, the selectivity and the size of a tuple at each box's
    input."""
    points = [(0.0, 1.0)]
    spent, left = 0.0, 1.0
    for i, (cost, selectivity) in enumerate(zip(costs, selectivities, strict=True)):
        spent += left * cost
        left *= selectivity
        size = left * sizes[i + 1] / sizes[0] if i + 1 < len(sizes) else 0.0  # it leaves the engine
        points.append((spent, size))
    return points


class Segment(NamedTuple):
    """A box's place in the chart of its path."""

    slope: float
    boxes: tuple[int, ...]  # from the box on to the end of its segment


def segments_of(boxes: Sequence[int], points: Sequence[Point]) -> list[Segment]:
    """Return the segment of each box. Box i leads from point i to point i + 1."""
    out: list[Segment] = []
    for left, right in pairwise(lower_envelope(points)):
        slope = _slope(*points[left], points[right])
        out += [Segment(slope, tuple(boxes[i:right])) for i in range(left, right)]
    return out


def steepest(segments: Sequence[Segment | None]) -> Segment:
    """Return the segment of the greatest slope; of equals the first."""
    return max([s for s in segments if s is not None], key=lambda s: s.slope)


def chain_segments(
    network: Network,
    cost_ns: Sequence[float],
    arc_selectivity: Sequence[float],
    tuple_bytes: Sequence[float],
    input_factor: Sequence[float],
) -> list[Segment | None]:
    """Return by arc the steepest of the segments that its tuples begin with, over the paths that lead by it.

    ``input_factor``, by arc: the selectivity of its box for the tuples of this arc, over the mean over all inputs. P2
    section 2.2: "for a multiple input AOP, like the multi-way join, the selectivities is calculated for each input and
    may not be identical for all the input streams".
    """
    found: list[Segment | None] = [None] * len(network.arcs)
    for arcs in main_paths(network, arc_selectivity):
        boxes = [b for a in arcs if (b := network.arcs[a].box) is not None]
        costs = [cost_ns[b] for b in boxes]
        # A box without consumers drops its output: as good as leaving the engine.
        onward = [arc_selectivity[a] for a in arcs[1:]] + [0.0] * (len(boxes) - len(arcs) + 1)
        selectivities = [s * input_factor[a] for s, a in zip(onward, arcs, strict=False)]
        chart = progress_chart(costs, selectivities, [tuple_bytes[b] for b in boxes])
        for arc, segment in zip(arcs, segments_of(boxes, chart), strict=False):
            before = found[arc]
            if before is None or segment.slope > before.slope:
                found[arc] = segment
    return found


def main_paths(network: Network, arc_selectivity: Sequence[float]) -> list[tuple[int, ...]]:
    """Return paths that cover every arc to a box, each as its arcs. The last arc may lead to an output.

    A path goes on from a box by the arc that carries the most tuples; the other branches of a fan-out are paths of
    their own, and so is every arc of a stream. (All paths from every stream were refused: a network of diamonds has
    exponentially many.)
    """
    onward: list[int | None] = []  # by box: the arc that carries the most tuples
    for node in network.boxes:
        arcs = list(chain.from_iterable(node.out_arcs))
        onward.append(max(arcs, key=lambda a: (arc_selectivity[a], -a), default=None))
    paths = []
    for arc in network.arcs:
        source = arc.source.box
        if arc.box is None or (source is not None and onward[source] == arc.number):
            continue
        path = [arc.number]
        box: int | None = arc.box
        while box is not None and (following := onward[box]) is not None:
            path.append(following)
            box = network.arcs[following].box
        paths.append(tuple(path))
    return paths


def line_segments(
    network: Network, lines: Sequence[Sequence[int]], cost_ns: Sequence[float], arc_flow: Sequence[float]
) -> list[Segment]:
    """Return by box its segment on its virtual line, where every tuple passes by the boxes that it is not for.

    P2 section 3: "the last step is to directly apply the Chain scheduling algorithm on the linear VPipe. Now the DAG
    plan can just be treated as a one input stream query plan". So the chart ends at 0, as that of a query does: behind
    the last box nothing is left. And a segment is run as a whole, whichever of its boxes has the oldest tuple: there is
    one queue before it, from which tuples for all its boxes are taken in the order of time.
    """
    found = [Segment(0.0, (node.number,)) for node in network.boxes]
    for line in lines:
        points = [(0.0, 1.0)]
        spent, left = 0.0, 1.0
        for cost, selectivity in line_statistics(network, line, cost_ns, arc_flow):
            spent += left * cost
            left *= selectivity
            points.append((spent, left))
        points[-1] = (spent, 0.0)
        for first, last in pairwise(lower_envelope(points)):
            whole = Segment(_slope(*points[first], points[last]), tuple(line[first:last]))
            for box in whole.boxes:
                found[box] = whole
    return found


def line_statistics(
    network: Network, line: Sequence[int], cost_ns: Sequence[float], arc_flow: Sequence[float]
) -> list[tuple[float, float]]:
    """Return cost and selectivity of each box on a virtual line (P2, equation 1): averages over all tuples that pass.

    The tuples of a stream are on the line from its start. The tuples of an output stay on it to its end, as in the
    paper. A tuple on two arcs counts twice, because it is kept until both have taken it.
    """
    members = set(line)
    flowing = sum(arc_flow[a] for s in network.streams for a in s.arcs if network.arcs[a].box in members)
    out = []
    for box in line:
        node = network.boxes[box]
        taken = sum(arc_flow[a] for a in node.in_arcs)
        made = sum(arc_flow[a] for a in chain.from_iterable(node.out_arcs))
        passed = max(flowing, 1e-12)
        flowing = flowing - taken + made
        out.append((cost_ns[box] * taken / passed, flowing / passed))
    return out
