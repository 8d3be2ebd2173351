"""The linear model between two places: what a tuple causes until it reaches the next place or an output.

A place is an arc where the road map may drop. The network is split at its places. Nothing is decided between two
places, so the flow between them is linear. A tuple kept at a place brings a fixed number of tuples to the next places,
a fixed number to the outputs, and costs a fixed amount of work on the way. With these numbers the total work and the
tuples of each output are sums over the places. The boxes in between, shared or split or joined by a union, no longer
matter.

A join is the exception: it makes pairs, so what a tuple of one input causes there depends on how many tuples of the
other input are left. The network is split at joins too. A tuple on one input makes as many pairs as it finds partners
(``FlowSegments.expanded``), which is fixed while nothing changes on the other input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import prod
from typing import NamedTuple

from catalog.network import Network
from catalog.stats import Statistics
from load_shedder.shed_plan import DropPlace

JoinInput = tuple[int, int]
"""A join and its input, by number of the box and of the port."""


@dataclass(slots=True)
class FlowSegment:
    """The stretch from a place (or from the streams, or from a join) to the next places and joins, for one tuple kept
    (or for all that arrive, or for one pair)."""

    cost_ns: float = 0.0
    places: dict[int, float] = field(default_factory=dict)  # tuples that reach the next places, by index
    outputs: dict[int, float] = field(default_factory=dict)  # tuples that reach an output without passing another place
    joins: dict[JoinInput, float] = field(default_factory=dict)  # tuples that reach a join, their work there included

    def add(self, other: FlowSegment, times: float) -> None:
        self.cost_ns += times * other.cost_ns
        for mine, others in ((self.places, other.places), (self.outputs, other.outputs)):
            for number, tuples in others.items():
                mine[number] = mine.get(number, 0.0) + times * tuples
        for key, tuples in other.joins.items():
            self.joins[key] = self.joins.get(key, 0.0) + times * tuples


@dataclass(frozen=True, slots=True)
class JoinSegment:
    """A join, and what one of its pairs causes behind it."""

    box: int
    inputs: tuple[JoinInput, ...]
    selectivity: float  # pairs over the tuples of all inputs, while nothing is dropped
    after: FlowSegment


class PlaceFlow(NamedTuple):
    """Tuples per second, or work."""

    reach: list[float]  # by place
    left: list[float]  # by place: that leave it
    outputs: dict[int, float]
    joins: dict[JoinInput, float]
    work_ns: float


@dataclass(frozen=True, slots=True)
class FlowSegments:
    """``places`` are in the order of the flow: a place stands after all places that lead to it."""

    places: tuple[DropPlace, ...]
    base: FlowSegment  # from the streams to the first places, per second
    after: tuple[FlowSegment, ...]  # by place, for one tuple
    joins: tuple[JoinSegment, ...] = ()
    order: tuple[tuple[bool, int], ...] = ()  # places and joins in the order of the flow: whether a join, and its index
    full: Mapping[JoinInput, float] = field(default_factory=dict)  # tuples per second into joins, without drops

    def flow(self, leaves: Callable[[int, float], float]) -> PlaceFlow:
        """Return the flow. ``leaves`` says how many of the tuples that reach a place leave it."""
        found = FlowSegment()
        found.add(self.base, 1.0)
        left = [0.0] * len(self.places)
        for is_join, i in self.order:
            if is_join:
                found.add(self.joins[i].after, self._pairs(self.joins[i], found.joins))
            else:
                left[i] = leaves(i, found.places.get(i, 0.0))
                found.add(self.after[i], left[i])
        reach = [found.places.get(i, 0.0) for i in range(len(self.places))]
        return PlaceFlow(reach, left, found.outputs, found.joins, found.cost_ns)

    def _pairs(self, join: JoinSegment, into: Mapping[JoinInput, float]) -> float:
        tuples = [into.get(key, 0.0) for key in join.inputs]
        if not self.full:
            return join.selectivity * sum(tuples)
        full = [self.full.get(key, 0.0) for key in join.inputs]
        return join.selectivity * sum(full) * prod(n / f if f > 0 else 0.0 for n, f in zip(tuples, full, strict=True))

    def expanded(self, into: Mapping[JoinInput, float]) -> list[FlowSegment]:
        """Return the stretches behind the places with the joins on their way: what one more tuple causes while these
        tuples reach the joins."""
        known: dict[int, FlowSegment] = {}
        by_box = {join.box: join for join in self.joins}

        def through(segment: FlowSegment) -> FlowSegment:
            if not segment.joins:
                return segment
            found = FlowSegment()
            found.add(segment, 1.0)
            for (box, port), tuples in segment.joins.items():
                if box not in known:
                    known[box] = through(by_box[box].after)
                found.add(known[box], tuples * self._partners(by_box[box], port, into))
            return found

        return [through(segment) for segment in self.after]

    def _partners(self, join: JoinSegment, port: int, into: Mapping[JoinInput, float]) -> float:
        """Return how many pairs a tuple on this input makes."""
        full = {key: self.full.get(key, 0.0) for key in join.inputs}
        own = full[join.box, port]
        others = prod(into[key] / full[key] if full[key] > 0 else 0.0 for key in join.inputs if key[1] != port)
        return join.selectivity * sum(full.values()) / own * others if own > 0 else 0.0


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
    return tuple(sorted(places, key=lambda p: (_source(network, p), p.arc)))


def _source(network: Network, place: DropPlace) -> int:
    """Return the box that a place lies behind; -1 for a stream."""
    box = network.arcs[place.arc].source.box
    return -1 if box is None else box


def split_at_places(network: Network, places: Sequence[DropPlace], costs: ModelCosts) -> FlowSegments:
    """Split the network at its places and its joins."""
    ordered = order_places(network, places)
    index = {place.arc: i for i, place in enumerate(ordered)}
    joins = [node for node in network.boxes if makes_pairs(network, node.number)]
    walk = _walker(network, costs, index, frozenset(node.number for node in joins))
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
    found = []
    for node in joins:
        segment, start = FlowSegment(), costs.port_start[node.number]
        for arc in (a for arcs in node.out_arcs for a in arcs):
            if arc in index:
                segment.places[index[arc]] = segment.places.get(index[arc], 0.0) + 1.0
            else:
                walk(segment, arc, 1.0)
        inputs = tuple((node.number, port) for port in range(len(node.in_arcs)))
        found.append(JoinSegment(node.number, inputs, costs.port_selectivity[start], segment))
    # A join comes after the places before it, which lie behind boxes of lower numbers, and before those behind it.
    by_flow = [((_source(network, p), 1), (False, i)) for i, p in enumerate(ordered)]
    by_flow += [((join.box, 0), (True, i)) for i, join in enumerate(found)]
    order = tuple(item for _, item in sorted(by_flow))
    whole = FlowSegments(ordered, base, after, tuple(found), order)
    full = whole.flow(lambda _, reach: reach).joins if found else {}
    return FlowSegments(ordered, base, after, tuple(found), order, full)


def makes_pairs(network: Network, box: int) -> bool:
    """Return whether the results of a box are pairs of tuples of its inputs."""
    return network.boxes[box].kind == "join" and len(network.boxes[box].in_arcs) > 1


def _walker(
    network: Network, costs: ModelCosts, index: Mapping[int, int], joins: frozenset[int]
) -> Callable[[FlowSegment, int, float], None]:
    def arrive(segment: FlowSegment, arc: int, tuples: float, inside: dict[int, float], due: list[int]) -> None:
        target = network.arcs[arc]
        if target.box is None:
            assert target.output is not None
            segment.outputs[target.output] = segment.outputs.get(target.output, 0.0) + tuples
            segment.cost_ns += tuples * costs.output_ns[target.output]
            return
        if target.box in joins:
            key = target.box, target.port
            segment.joins[key] = segment.joins.get(key, 0.0) + tuples
            segment.cost_ns += tuples * costs.box_ns[target.box]
            return
        if target.box not in inside:
            heappush(due, target.box)
        inside[target.box] = inside.get(target.box, 0.0) + tuples

    def walk(segment: FlowSegment, arc: int, tuples: float) -> None:
        """Add everything behind this arc, up to joins. Boxes come in the order of their numbers: each once, with all
        its tuples."""
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
