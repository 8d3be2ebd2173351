"""The network as the shedder sees it: places, and the consequences of keeping one tuple at each of them.

Nothing is dropped between two places, so the flow between them is linear. A tuple kept at a place brings a fixed number
of tuples to the next places, a fixed number to the outputs, and costs a fixed amount of work on the way. With these
numbers the total work and the tuples of each output are sums over the places. The boxes in between, shared or split or
joined by a union, no longer matter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from catalog.network import Network
from catalog.stats import Statistics
from load_shedder.shed_plan import DropPlace


@dataclass(slots=True)
class FlowSegment:
    """The stretch from a place (or from the streams) to the next places, for one tuple kept (or for all that
    arrive)."""

    cost_ns: float = 0.0
    places: dict[int, float] = field(default_factory=dict)  # tuples that reach the next places, by index
    outputs: dict[int, float] = field(default_factory=dict)  # tuples that reach an output without passing another place


@dataclass(frozen=True, slots=True)
class FlowSegments:
    """``places`` are in the order of the flow: a place stands after all places that lead to it."""

    places: tuple[DropPlace, ...]
    base: FlowSegment  # from the streams to the first places, per second
    after: tuple[FlowSegment, ...]  # by place, for one tuple


@dataclass(frozen=True, slots=True)
class ModelCosts:
    """The inputs of the model as plain lists: by box, flat port, output and stream."""

    box_ns: Sequence[float]
    port_selectivity: Sequence[float]
    port_start: Sequence[int]
    output_ns: Sequence[float]
    rate_per_s: Sequence[float]

    @classmethod
    def of(cls, statistics: Statistics) -> ModelCosts:
        return cls(
            statistics.unshed_cost_ns().tolist(),
            statistics.unshed_selectivity().tolist(),
            statistics.port_start.tolist(),
            statistics.output_cost_ns.tolist(),
            statistics.rate_per_s.tolist(),
        )


def order_places(network: Network, places: Sequence[DropPlace]) -> tuple[DropPlace, ...]:
    """Return the places in the order of the flow."""
    source = {p.arc: network.arcs[p.arc].source.box for p in places}
    return tuple(sorted(places, key=lambda p: (-1 if (b := source[p.arc]) is None else b, p.arc)))


def split_at_places(network: Network, places: Sequence[DropPlace], costs: ModelCosts) -> FlowSegments:
    """Split the network at its places."""
    ordered = order_places(network, places)
    index = {place.arc: i for i, place in enumerate(ordered)}
    walk = _walker(network, costs, index)
    base = FlowSegment()
    for stream in network.streams:
        rate = costs.rate_per_s[stream.number]
        for arc in stream.arcs:
            if arc in index:
                base.places[index[arc]] = base.places.get(index[arc], 0.0) + rate
            elif rate:
                walk(base, arc, rate)
    after = tuple(FlowSegment() for _ in ordered)
    for place, segment in zip(ordered, after, strict=True):
        walk(segment, place.arc, 1.0)
    return FlowSegments(ordered, base, after)


def _walker(network: Network, costs: ModelCosts, index: Mapping[int, int]) -> Callable[[FlowSegment, int, float], None]:
    def arrive(segment: FlowSegment, arc: int, tuples: float, inside: dict[int, float], due: list[int]) -> None:
        target = network.arcs[arc]
        if target.box is None:
            assert target.output is not None
            segment.outputs[target.output] = segment.outputs.get(target.output, 0.0) + tuples
            segment.cost_ns += tuples * costs.output_ns[target.output]
            return
        if target.box not in inside:
            heappush(due, target.box)
        inside[target.box] = inside.get(target.box, 0.0) + tuples

    def walk(segment: FlowSegment, arc: int, tuples: float) -> None:
        """Add everything behind this arc. Boxes come in the order of their numbers: each once, with all its tuples."""
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
