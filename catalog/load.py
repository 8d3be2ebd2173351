"""The load model: the work that one tuple causes, from where it is to all the outputs that it reaches.

The load coefficient of a stream, arc or box is the expected work that one tuple there causes downstream. A box costs
its own work plus, for each port, the selectivity times the cost of what follows; a stream costs the sum over its arcs.
The load is the sum of coefficient times rate, in ns of work per second. Its ratio to the time of the workers is
``load_ratio``.

A network never changes under its model, so the model lays out the shape once, as arrays by level: a tick over 1,000
boxes in chains of five is ten numpy calls instead of a Python loop. The monitor and the load shedder share the model.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from catalog.network import Network
from catalog.stats import Floats, port_starts

Index = npt.NDArray[np.intp]


class Coefficients(NamedTuple):
    """Ns of work that one tuple causes from here on, by number."""

    streams: Floats
    arcs: Floats
    boxes: Floats


class Flow(NamedTuple):
    """Tuples per second, by number: put on arcs, into boxes, out of outputs."""

    arcs: Floats
    boxes: Floats
    outputs: Floats


class _Level(NamedTuple):
    """Arcs from box to box that one numpy call can process together."""

    arcs: Index
    ports: Index  # flat, as in Statistics.port_start
    sources: Index
    targets: Index


class LoadModel:
    """The shape of one network as arrays. Immutable."""

    def __init__(self, network: Network) -> None:
        starts = port_starts(network)
        self._boxes, self._outputs = len(network.boxes), len(network.outputs)
        self._arcs, self._streams = len(network.arcs), len(network.streams)
        between: list[tuple[int, int, int, int]] = []
        from_stream: list[tuple[int, int]] = []
        to_output: list[tuple[int, int]] = []
        self.arc_box: Index = np.full(len(network.arcs), -1, np.intp)  # the consumer, -1 for an output
        self._arc_port: Index = np.full(len(network.arcs), -1, np.intp)  # the flat port it leaves from, -1 for a stream
        self._arc_source: Index = np.zeros(len(network.arcs), np.intp)  # the box (or stream) it leaves from
        for arc in network.arcs:
            if arc.box is not None:
                self.arc_box[arc.number] = arc.box
            if arc.output is not None:
                to_output.append((arc.number, arc.output))
            if arc.source.stream is not None:
                self._arc_source[arc.number] = arc.source.stream
                from_stream.append((arc.number, arc.source.stream))
            elif arc.source.box is not None:
                port = int(starts[arc.source.box]) + arc.source.port
                self._arc_port[arc.number], self._arc_source[arc.number] = port, arc.source.box
                if arc.box is not None:
                    between.append((arc.number, port, arc.source.box, arc.box))
        self._ports = [slice(int(a), int(b)) for a, b in pairwise(starts)]  # flat, by box
        self._joins = [(n.number, n.in_arcs) for n in network.boxes if n.kind == "join" and len(n.in_arcs) > 1]
        self._from_stream, self._to_output = _pairs(from_stream), _pairs(to_output)
        self._backward = _levels(between, _heights(network), key=2)
        self._forward = _levels(between, _depths(network), key=3)

    def coefficients(
        self,
        cost_ns: Floats,
        port_selectivity: Floats,
        output_cost_ns: Floats | None = None,
        kept_on_arc: Floats | None = None,
    ) -> Coefficients:
        """Return the coefficients. ``cost_ns`` is the cost of a tuple by box (``Statistics.effective_cost_ns``),
        ``output_cost_ns`` the cost of its delivery by output, ``kept_on_arc`` the share that the arcs behind boxes keep
        (None: all)."""
        boxes = np.array(cost_ns, np.float64)
        kept = np.ones(self._arcs) if kept_on_arc is None else kept_on_arc
        ends, outputs = self._to_output
        delivery = np.zeros(self._arcs)
        if output_cost_ns is not None:
            delivery[ends] = output_cost_ns[outputs]
            last = ends[self._arc_port[ends] >= 0]
            passed = port_selectivity[self._arc_port[last]] * kept[last]
            np.add.at(boxes, self._arc_source[last], passed * delivery[last])
        for level in self._backward:
            passed = port_selectivity[level.ports] * kept[level.arcs]
            np.add.at(boxes, level.sources, passed * boxes[level.targets])
        arcs = np.where(self.arc_box >= 0, boxes[self.arc_box] if self._boxes else 0.0, delivery)
        numbers, streams = self._from_stream
        return Coefficients(_sums(streams, arcs[numbers], self._streams), arcs, boxes)

    def flow(self, rates: Floats, port_selectivity: Floats, kept_on_arc: Floats | None = None) -> Flow:
        """Return the flow when the streams admit ``rates`` and each arc keeps this share (None: all of it).

        A join makes pairs: when one input keeps a half and the other one too, a quarter of the pairs is left."""
        if kept_on_arc is None or not self._joins:
            return self._flow(rates, port_selectivity, kept_on_arc, None)
        return self._flow(rates, port_selectivity, kept_on_arc, self._flow(rates, port_selectivity, None, None))

    def unshed_factor(self, rates: Floats, port_selectivity: Floats, pair_rates: Floats) -> Floats:
        """Return, by box, the factor from its selectivity to the one at these rates without drops.

        It is 1 except for joins: as many pairs come out as follow from the ``pair_rates`` (NaN: not known) and the
        tuples of both inputs."""
        factor = np.ones(self._boxes)
        passes = port_selectivity.copy()
        for box, inputs in self._joins:  # numbers are topological: the joins before it have their factor
            now = float(port_selectivity[self._ports[box]].sum())
            if not np.isfinite(pair_rates[box]) or now <= 0 or len(inputs) != 2:
                continue
            left, right = self._flow(rates, passes, None, None).arcs[list(inputs)].tolist()
            if left > 0 and right > 0:
                factor[box] = pair_rates[box] * left * right / (left + right) / now
                passes[self._ports[box]] *= factor[box]
        return factor

    def _flow(self, rates: Floats, port_selectivity: Floats, kept_on_arc: Floats | None, whole: Flow | None) -> Flow:
        """Return the flow; ``whole`` is the flow without drops, where joins must know it."""
        kept = np.ones(self._arcs) if kept_on_arc is None else kept_on_arc
        arcs = np.zeros(self._arcs)
        numbers, streams = self._from_stream
        arcs[numbers] = np.asarray(rates, np.float64)[streams] * kept[numbers]
        into = np.zeros(self._boxes)
        fed = numbers[self.arc_box[numbers] >= 0]
        np.add.at(into, self.arc_box[fed], arcs[fed])
        for level in self._forward:
            through = into if whole is None else self._paired(into, arcs, whole)
            arcs[level.arcs] = through[level.sources] * port_selectivity[level.ports] * kept[level.arcs]
            np.add.at(into, level.targets, arcs[level.arcs])
        ends, outputs = self._to_output
        last = ends[self._arc_port[ends] >= 0]
        through = into if whole is None else self._paired(into, arcs, whole)
        arcs[last] = through[self._arc_source[last]] * port_selectivity[self._arc_port[last]] * kept[last]
        return Flow(arcs, into, _sums(outputs, arcs[ends], self._outputs))

    def _paired(self, into: Floats, arcs: Floats, whole: Flow) -> Floats:
        """Return the tuples into boxes, for joins as many as would bring the pairs that are left, were none dropped.
        It holds for the joins whose inputs are complete; the others come with a later level."""
        through = into.copy()
        for box, inputs in self._joins:
            through[box] = whole.boxes[box] * _kept_pairs(inputs, arcs, whole.arcs)
        return through

    def yields(self, on_arcs: Floats, port_selectivity: Floats) -> Floats:
        """Return, by output, how many tuples result from these numbers of tuples on the arcs."""
        into = np.zeros(self._boxes)
        fed = np.flatnonzero(self.arc_box >= 0)
        np.add.at(into, self.arc_box[fed], on_arcs[fed])
        for level in self._forward:
            np.add.at(into, level.targets, into[level.sources] * port_selectivity[level.ports])
        ends, outputs = self._to_output
        out = np.array(on_arcs[ends], np.float64)
        behind = self._arc_port[ends] >= 0
        last = ends[behind]
        out[behind] += into[self._arc_source[last]] * port_selectivity[self._arc_port[last]]
        return _sums(outputs, out, self._outputs)

    def passed_on(self, by_box: Floats, share_of_arc: Floats) -> Floats:
        """Return, by output, what reaches it when each box passes on all that it has, in these shares, by its arcs."""
        into = by_box.copy()
        for level in self._forward:
            np.add.at(into, level.targets, into[level.sources] * share_of_arc[level.arcs])
        ends, outputs = self._to_output
        behind = self._arc_port[ends] >= 0
        last = ends[behind]
        return _sums(outputs[behind], into[self._arc_source[last]] * share_of_arc[last], self._outputs)

    def shares_of_arcs(self, weights: Floats) -> Floats:
        """Return, by arc that leaves a box, its share of the weights of all arcs that leave the box."""
        behind = np.flatnonzero(self._arc_port >= 0)
        sources = self._arc_source[behind]
        whole = np.bincount(sources, weights[behind], self._boxes)[sources]
        shares = np.zeros(self._arcs)
        shares[behind] = np.divide(weights[behind], whole, out=np.zeros(len(behind)), where=whole > 0)
        return shares

    def offered(self, by_stream: Floats, by_port: Floats) -> Floats:
        """Return, by arc, the tuples that its stream or port emitted. Queues count only what passes through them, and
        inside a superbox nothing is queued."""
        arcs = np.zeros(self._arcs)
        numbers, streams = self._from_stream
        arcs[numbers] = by_stream[streams]
        behind = self._arc_port >= 0
        arcs[behind] = by_port[self._arc_port[behind]]
        return arcs

    def share_delivered(self, rates: Floats, port_selectivity: Floats, kept_on_arc: Floats) -> Floats:
        """Return, by output, the flow over the flow without shedding; 1 where there is none."""
        whole = self.flow(rates, port_selectivity).outputs
        left = self.flow(rates, port_selectivity, kept_on_arc).outputs
        return np.divide(left, whole, out=np.ones(self._outputs), where=whole > 0)

    def ideal_ns(self, cost_per_call_ns: Floats, cost_per_tuple_ns: Floats) -> Floats:
        """Return, by output, the time of a single tuple on an idle engine, along its longest path: the base of
        slowdown."""
        alone = cost_per_call_ns + cost_per_tuple_ns
        through = alone.copy()
        for level in self._forward:
            np.maximum.at(through, level.targets, through[level.sources] + alone[level.targets])
        out = np.zeros(self._outputs)
        numbers, outputs = self._to_output
        behind = self._arc_port[numbers] >= 0
        np.maximum.at(out, outputs[behind], through[self._arc_source[numbers[behind]]])
        return out


def _kept_pairs(inputs: tuple[int, ...], left: Floats, whole: Floats) -> float:
    """Return the share of the pairs of a join that these flows on its inputs leave."""
    kept = 1.0
    for arc in inputs:
        kept *= left[arc] / whole[arc] if whole[arc] > 0 else 1.0
    return float(kept)


def load_ratio(coefficients: Coefficients, rates: Floats, workers: int) -> float:
    """Return the arriving work over the work that can be done: above 1 the queues grow."""
    return float(np.dot(coefficients.streams, rates)) / (1e9 * max(1, workers))


def _sums(at: Index, values: Floats, count: int) -> Floats:
    return np.bincount(at, values, count).astype(np.float64)


def _pairs(pairs: list[tuple[int, int]]) -> tuple[Index, Index]:
    table = np.array(pairs, np.intp).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def _heights(network: Network) -> list[int]:
    """Return, by box, the steps to the farthest box behind it; 0 for a box that feeds none."""
    height = [0] * len(network.boxes)
    for box in reversed(range(len(height))):  # numbers are topological
        height[box] = max((1 + height[b] for b in network.fed[box]), default=0)
    return height


def _depths(network: Network) -> list[int]:
    """Return, by box, the steps from the farthest box before it; 0 for a box that only streams feed."""
    depth = [0] * len(network.boxes)
    for box in range(len(depth)):
        depth[box] = max((1 + depth[b] for b in network.feeders[box]), default=0)
    return depth


def _levels(arcs: list[tuple[int, int, int, int]], rank: list[int], key: int) -> tuple[_Level, ...]:
    """Group arcs by the rank of the box at ``key`` (2: source, 3: target), lowest first."""
    by_rank: dict[int, list[tuple[int, int, int, int]]] = {}
    for arc in arcs:
        by_rank.setdefault(rank[arc[key]], []).append(arc)
    return tuple(_Level(*np.array(by_rank[r], np.intp).T) for r in sorted(by_rank))
