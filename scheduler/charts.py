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


def chain_segments(
    network: Network, cost_ns: Sequence[float], arc_selectivity: Sequence[float], tuple_bytes: Sequence[float]
) -> list[Segment]:
    """Return by box the steepest of its segments, over the paths that lead through it."""
    found = [Segment(0.0, (node.number,)) for node in network.boxes]
    for boxes, arcs in main_paths(network, arc_selectivity):
        costs = [cost_ns[b] for b in boxes]
        # A box without consumers drops its output: as good as leaving the engine.
        selectivities = [arc_selectivity[a] for a in arcs] + [0.0] * (len(boxes) - len(arcs))
        chart = progress_chart(costs, selectivities, [tuple_bytes[b] for b in boxes])
        for box, segment in zip(boxes, segments_of(boxes, chart), strict=True):
            if segment.slope > found[box].slope:
                found[box] = segment
    return found


def main_paths(network: Network, arc_selectivity: Sequence[float]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return paths that cover every box: the boxes of each, and the arcs between them.

    A path goes on from a box by the arc that carries the most tuples; the other branches of a fan-out are paths of
    their own. (All paths from every stream were refused: a network of diamonds has exponentially many.)
    """
    onward: list[int | None] = []  # by box: the arc that carries the most tuples
    for node in network.boxes:
        arcs = list(chain.from_iterable(node.out_arcs))
        onward.append(max(arcs, key=lambda a: (arc_selectivity[a], -a), default=None))
    continued = {network.arcs[a].box for a in onward if a is not None}
    paths = []
    for node in network.boxes:
        if node.number in continued and network.feeders[node.number]:
            continue
        boxes: list[int] = []
        arcs = []
        box: int | None = node.number
        while box is not None:
            boxes.append(box)
            arc = onward[box]
            if arc is None:
                break
            arcs.append(arc)
            box = network.arcs[arc].box
        paths.append((tuple(boxes), tuple(arcs)))
    return paths


def line_segments(
    network: Network, lines: Sequence[Sequence[int]], cost_ns: Sequence[float], arc_flow: Sequence[float]
) -> list[Segment]:
    """Return by box its segment on its virtual line, where every tuple passes by the boxes that it is not for."""
    found = [Segment(0.0, (node.number,)) for node in network.boxes]
    for line in lines:
        points = [(0.0, 1.0)]
        spent, left = 0.0, 1.0
        for cost, selectivity in line_statistics(network, line, cost_ns, arc_flow):
            spent += left * cost
            left *= selectivity
            points.append((spent, left))
        for box, segment in zip(line, segments_of(line, points), strict=True):
            found[box] = segment
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
