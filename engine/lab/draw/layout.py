"""The layout of a drawing: layers from left to right, few crossings, few bends (Sugiyama's method in its plain form).

A link that spans several layers passes through one waypoint in each layer between. All links that leave the same port
share those waypoints. So every segment joins neighbouring layers, the order inside the layers alone decides the
crossings, and no line runs through a box.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from engine.lab.draw.sketch import Drawing, DrawnShape

SWEEPS = 6

Net = tuple[int, int]  # a shape's number and port; lines of one net may touch, lines of two nets only cross


@dataclass(slots=True, eq=False)
class LayoutItem:
    """A shape in its layer, or a waypoint of a net."""

    layer: int
    shape: DrawnShape | None = None
    y: float = 0.0
    before: list[ArcSegment] = field(default_factory=list)
    after: list[ArcSegment] = field(default_factory=list)


@dataclass(frozen=True, slots=True, eq=False)
class ArcSegment:
    net: Net
    source: LayoutItem
    port: int
    target: LayoutItem
    target_port: int


def arrange(sketch: Drawing) -> list[list[LayoutItem]]:
    """Put shapes and waypoints into layers, join them by segments, and order each layer from top to bottom."""
    depth = 1 + max(s.layer for s in sketch.shapes)
    layers: list[list[LayoutItem]] = [[] for _ in range(depth)]
    items = {s.number: LayoutItem(s.layer, s) for s in sketch.shapes}
    for item in items.values():
        layers[item.layer].append(item)
    waypoints: dict[tuple[Net, int], LayoutItem] = {}
    for link in sketch.links:
        net = (link.source, link.port)
        here, port = items[link.source], link.port
        target = items[link.target]
        for layer in range(here.layer + 1, target.layer):
            if (net, layer) not in waypoints:
                point = waypoints[net, layer] = LayoutItem(layer)
                layers[layer].append(point)
                _join(net, here, port, point, 0)
            here, port = waypoints[net, layer], 0
        _join(net, here, port, target, link.target_port)
    _order(layers)
    return layers


def _join(net: Net, source: LayoutItem, port: int, target: LayoutItem, target_port: int) -> None:
    segment = ArcSegment(net, source, port, target, target_port)
    source.after.append(segment)
    target.before.append(segment)


def _order(layers: list[list[LayoutItem]]) -> None:
    """Sort layers by barycentres, back and forth, and keep the order with the fewest crossings."""
    best = [list(layer) for layer in layers]
    fewest = crossings(layers)
    for sweep in range(SWEEPS):
        if not fewest:
            break
        forward = sweep % 2 == 0
        for layer in layers[1:] if forward else reversed(layers[:-1]):
            rank = {item: float(i) for each in layers for i, item in enumerate(each)}
            layer.sort(key=lambda item, rank=rank: _centre(item, rank, forward))  # type: ignore[misc]
        if (found := crossings(layers)) < fewest:
            best, fewest = [list(layer) for layer in layers], found
    for layer, order in zip(layers, best, strict=True):
        layer[:] = order


def _centre(item: LayoutItem, rank: dict[LayoutItem, float], forward: bool) -> float:
    near = [(s.source, s.port) for s in item.before] if forward else [(s.target, s.target_port) for s in item.after]
    if not near:
        return rank[item]
    return sum(rank[other] + port / 100 for other, port in near) / len(near)


def crossings(layers: Sequence[Sequence[LayoutItem]]) -> int:
    """Count the pairs of segments between neighbouring layers that cross."""
    total = 0
    for layer, following in pairwise(layers):
        place = {item: i for i, item in enumerate(following)}
        ends = [
            (place[s.target], s.target_port)
            for item in layer
            for s in sorted(item.after, key=lambda s: (s.port, place[s.target], s.target_port))
        ]
        total += _inversions(ends)[0]
    return total


def _inversions(ends: list[tuple[int, int]]) -> tuple[int, list[tuple[int, int]]]:
    if len(ends) < 2:
        return 0, ends
    middle = len(ends) // 2
    (a, left), (b, right) = _inversions(ends[:middle]), _inversions(ends[middle:])
    merged: list[tuple[int, int]] = []
    count, i = a + b, 0
    for end in right:
        while i < len(left) and left[i] <= end:
            merged.append(left[i])
            i += 1
        count += len(left) - i
        merged.append(end)
    return count, merged + left[i:]


def place(
    layers: list[list[LayoutItem]],
    height: Callable[[LayoutItem], float],
    inset: Callable[[LayoutItem, int], float],
    gap: float,
) -> None:
    """Set every ``y`` as near to its neighbours as the order allows, so that lines run straight.

    ``inset(item, port)`` is the distance from the item's top to the line of a port.
    """
    for layer in layers:
        _spread(layer, [0.0] * len(layer), height, gap)
    for sweep in range(SWEEPS):
        forward = sweep % 2 == 0
        for layer in layers[1:] if forward else reversed(layers[:-1]):
            wanted = [_wanted(item, inset, forward) for item in layer]
            _spread(layer, wanted, height, gap)
    top = min(item.y for layer in layers for item in layer)
    for layer in layers:
        for item in layer:
            item.y -= top


def _wanted(item: LayoutItem, inset: Callable[[LayoutItem, int], float], forward: bool) -> float:
    if forward:
        ys = [s.source.y + inset(s.source, s.port) - inset(item, s.target_port) for s in item.before]
    else:
        ys = [s.target.y + inset(s.target, s.target_port) - inset(item, s.port) for s in item.after]
    return sorted(ys)[(len(ys) - 1) // 2] if ys else item.y


def _spread(layer: list[LayoutItem], wanted: list[float], height: Callable[[LayoutItem], float], gap: float) -> None:
    """Find the nearest positions in this order without overlap (least squares, by pooling adjacent violators)."""
    offsets, total = [], 0.0
    for item in layer:
        offsets.append(total)
        total += height(item) + gap
    blocks: list[list[float]] = []  # [sum of wanted - offset, number of items]
    for want, offset in zip(wanted, offsets, strict=True):
        blocks.append([want - offset, 1])
        while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] > blocks[-1][0] / blocks[-1][1]:
            value, count = blocks.pop()
            blocks[-1][0] += value
            blocks[-1][1] += count
    i = 0
    for value, count in blocks:
        for _ in range(int(count)):
            layer[i].y = value / count + offsets[i]
            i += 1
