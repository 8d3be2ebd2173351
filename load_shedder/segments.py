"""The network as the shedder sees it: places, and what one tuple that is kept at one of them leads to.

Between places nothing is dropped, so everything there is linear: a tuple kept at a place brings so many tuples to the
next places, so many to outputs, and costs so much work on the way. With these numbers the load and what each output
gets are sums over the places, whatever the network looks like in between: shared boxes, splits, unions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from catalog.network import Network
from catalog.shed import Place
from catalog.stats import Statistics


@dataclass(slots=True)
class Segment:
    """What lies between a place (or the streams) and the next places, for one tuple kept (or for all that come)."""

    cost_ns: float = 0.0
    places: dict[int, float] = field(default_factory=dict)  # tuples that reach the next ones, by index of the place
    outputs: dict[int, float] = field(default_factory=dict)  # tuples that reach outputs without passing another place


@dataclass(frozen=True, slots=True)
class Segments:
    """``places`` in the order of the flow: whatever leads to a place stands before it."""

    places: tuple[Place, ...]
    base: Segment  # what the streams bring in a second, up to the first places
    after: tuple[Segment, ...]  # by place, for a tuple


@dataclass(frozen=True, slots=True)
class Costs:
    """What the model goes by, as plain lists: by box, flat port, output and stream."""

    box_ns: Sequence[float]
    port_selectivity: Sequence[float]
    port_start: Sequence[int]
    output_ns: Sequence[float]
    rate_per_s: Sequence[float]

    @classmethod
    def of(cls, statistics: Statistics) -> Costs:
        return cls(
            statistics.effective_cost_ns().tolist(),
            statistics.port_selectivity.tolist(),
            statistics.port_start.tolist(),
            statistics.output_cost_ns.tolist(),
            statistics.rate_per_s.tolist(),
        )


def cut(network: Network, places: Sequence[Place], costs: Costs) -> Segments:
    """The network cut at its places."""
    source = {p.arc: network.arcs[p.arc].source.box for p in places}
    ordered = tuple(sorted(places, key=lambda p: (-1 if (b := source[p.arc]) is None else b, p.arc)))
    index = {place.arc: i for i, place in enumerate(ordered)}
    walk = _walker(network, costs, index)
    base = Segment()
    for stream in network.streams:
        rate = costs.rate_per_s[stream.number]
        for arc in stream.arcs:
            if arc in index:
                base.places[index[arc]] = base.places.get(index[arc], 0.0) + rate
            elif rate:
                walk(base, arc, rate)
    after = tuple(Segment() for _ in ordered)
    for place, segment in zip(ordered, after, strict=True):
        walk(segment, place.arc, 1.0)
    return Segments(ordered, base, after)


def _walker(network: Network, costs: Costs, index: Mapping[int, int]) -> Callable[[Segment, int, float], None]:
    def arrive(segment: Segment, arc: int, tuples: float, inside: dict[int, float], due: list[int]) -> None:
        target = network.arcs[arc]
        if target.box is None:
            assert target.output is not None
            segment.outputs[target.output] = segment.outputs.get(target.output, 0.0) + tuples
            segment.cost_ns += tuples * costs.output_ns[target.output]
            return
        if target.box not in inside:
            heappush(due, target.box)
        inside[target.box] = inside.get(target.box, 0.0) + tuples

    def walk(segment: Segment, arc: int, tuples: float) -> None:
        """From this arc on, boxes in the order of their numbers: each once, with all that reaches it."""
        inside: dict[int, float] = {}
        due: list[int] = []
        arrive(segment, arc, tuples, inside, due)
        while due:
            box = heappop(due)
            taken = inside[box]
            segment.cost_ns += taken * costs.box_ns[box]
            start = costs.port_start[box]
            for port, arcs in enumerate(network.boxes[box].out_arcs):
                passed = taken * costs.port_selectivity[start + port]
                for out in arcs if passed else ():
                    if out in index:
                        segment.places[index[out]] = segment.places.get(index[out], 0.0) + passed
                    else:
                        arrive(segment, out, passed, inside, due)

    return walk
