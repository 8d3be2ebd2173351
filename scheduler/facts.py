"""The numbers that policies and traversals read about boxes: computed from the statistics once, read many times.

D(b) is the part of the network downstream of box b up to its outputs, b included. A policy reads numbers over D(b) at
every step, and they change only when the statistics do. So each is computed here on its first use, and all are thrown
away when the statistics have changed (``StatisticsMoved``). They are plain lists: reading one float out of a numpy
array costs more than the arithmetic done with it.

Costs are in nanoseconds. ``cost_ns`` is the cost of one tuple at the train length that the box gets now (its tuples
share the cost of the call); ``call_ns`` and ``tuple_ns`` are the two parts of a call's cost, a + b*n.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from functools import cached_property, lru_cache
from itertools import chain
from math import ceil, isnan

from catalog.load import LoadModel
from catalog.network import Network
from catalog.qos import QoSGraph
from catalog.stats import Statistics
from scheduler.charts import Segment, chain_segments, line_segments, steepest
from scheduler.rates import join_selectivities, output_rates
from scheduler.superbox import lines

INFINITE_NS = 2**62
"""A time that never comes. An integer, so that keys compare exactly and fast."""


class Urgency:
    """How utility falls with the latency at the output, over all outputs that the tuples of a box reach.

    ``edges_ns`` are the latencies of the critical points of the outputs' graphs; ``losses[i]`` is the loss in a
    nanosecond left of ``edges_ns[i]`` and right of the edge before. With several outputs the losses add up and the
    nearest edge counts. They are then seen from the box: the graph of each output is shifted left by the time of the
    path to it.
    """

    __slots__ = ("edges_ns", "losses")

    def __init__(self, edges_ns: tuple[int, ...], losses: tuple[float, ...]) -> None:
        self.edges_ns = edges_ns  # integers: a float, added to a time of day, would be off by hundreds of nanoseconds
        self.losses = losses

    def at(self, latency_ns: int) -> tuple[float, int]:
        """Return the loss in a nanosecond of waiting, and the latency of the next critical point (infinite past the
        last)."""
        i = bisect_right(self.edges_ns, latency_ns)
        return self.losses[i], self.edges_ns[i] if i < len(self.edges_ns) else INFINITE_NS


def add_graphs(graphs: Iterable[tuple[QoSGraph | None, float]]) -> Urgency:
    """Add up graphs, each shifted left by its number of nanoseconds."""
    changes: dict[int, float] = {}
    for graph, ns in graphs:
        if graph is None:
            continue
        before = 0.0
        for (x, y), after in zip(graph.points, (*graph.points[1:], None), strict=True):
            loss = 0.0 if after is None else (y - after[1]) / (after[0] - x)
            edge = ceil(x - ns)
            changes[edge] = changes.get(edge, 0.0) + loss - before
            before = loss
    edges = sorted(changes)
    losses = [0.0]
    for edge in edges:
        # Sums and differences of slopes leave rounding errors, which must not look like a slope.
        loss = losses[-1] + changes[edge]
        losses.append(loss if loss > 1e-9 * max(losses) else 0.0)
    return Urgency(tuple(edges), tuple(losses))


@lru_cache(maxsize=65_536)
def of_graph(graph: QoSGraph | None) -> Urgency:
    """Return the urgency of one output. Its graph does not depend on the statistics, so this is computed once."""
    return add_graphs([(graph, 0.0)])


class Facts:
    """One version of the statistics. Lists are by box unless they say otherwise."""

    def __init__(self, network: Network, statistics: Statistics, load: LoadModel) -> None:
        self.network = network
        self._statistics = statistics
        self._load = load
        self._effective_ns = statistics.effective_cost_ns()
        self._port_selectivity = statistics.port_selectivity.copy()
        self._port_start: list[int] = statistics.port_start.tolist()
        self.cost_ns: list[float] = self._effective_ns.tolist()
        self.call_ns: list[float] = statistics.cost_per_call_ns.tolist()
        self.tuple_ns: list[float] = statistics.cost_per_tuple_ns.tolist()
        self.selectivity: list[float] = statistics.selectivity.tolist()
        self.train_tuples: list[float] = statistics.train_tuples.tolist()
        self.is_observed: list[bool] = (statistics.observed_calls > 0).tolist()
        self.tuple_bytes: list[float] = statistics.tuple_bytes.tolist()

    # -- along D(b) ---------------------------------------------------------------------------------------------------

    @cached_property
    def downstream_ns(self) -> list[float]:
        """C: the expected work that one tuple at b causes from b on, over all branches: c1 + s1 c2 + s1 s2 c3 ..."""
        costs = self._load.coefficients(self._effective_ns, self._port_selectivity)
        out: list[float] = costs.boxes.tolist()
        return out

    @cached_property
    def tuple_work_ns(self) -> list[float]:
        """The same without the cost of calls: what one more tuple in a train costs."""
        costs = self._load.coefficients(self._statistics.cost_per_tuple_ns, self._port_selectivity)
        out: list[float] = costs.boxes.tolist()
        return out

    @cached_property
    def call_work_ns(self) -> list[float]:
        """The cost of one call of each box in D(b), however long the train."""
        out = list(self.call_ns)
        for node in reversed(self.network.boxes):
            out[node.number] += sum([out[b] for b in self.network.fed[node.number]])
        return out

    @cached_property
    def arc_selectivity(self) -> list[float]:
        """By arc: how many tuples the box before it puts there for one that it takes. 1 for a stream's arc."""
        flat = self._port_selectivity.tolist()
        return [
            1.0 if arc.source.box is None else flat[self._port_start[arc.source.box] + arc.source.port]
            for arc in self.network.arcs
        ]

    @cached_property
    def paths_ns(self) -> list[dict[int, float]]:
        """By box, for each output that it reaches: how long the train that waits would take to it without any delay."""
        paths: list[dict[int, float]] = [{} for _ in self.network.boxes]
        for node in reversed(self.network.boxes):
            own_ns = self.call_ns[node.number] + self.tuple_ns[node.number] * self.train_tuples[node.number]
            reach = paths[node.number]
            for a in chain.from_iterable(node.out_arcs):
                arc = self.network.arcs[a]
                if arc.output is not None:
                    reach[arc.output] = max(own_ns, reach.get(arc.output, 0.0))
                elif arc.box is not None:
                    for output, ns in paths[arc.box].items():
                        reach[output] = max(own_ns + ns, reach.get(output, 0.0))
        return paths

    @cached_property
    def output_selectivity(self) -> list[float]:
        """o_sel(b): the tuples that leave the network for one tuple at b, over all branches."""
        out = [0.0] * len(self.network.boxes)
        arc_selectivity = self.arc_selectivity
        for node in reversed(self.network.boxes):
            for a in chain.from_iterable(node.out_arcs):
                arc = self.network.arcs[a]
                out[node.number] += arc_selectivity[a] * (1.0 if arc.box is None else out[arc.box])
        return out

    @cached_property
    def output_cost_ns(self) -> list[float]:
        """The cost of one tuple at the output that is made from tuples at b: the sum of cost(k)/o_sel(k) over D(b).

        Where D(b) is not a path, each of its boxes counts once.
        """
        each = [c / s if s > 0 else float("inf") for c, s in zip(self.cost_ns, self.output_selectivity, strict=True)]
        out = [0.0] * len(each)
        for node in reversed(self.network.boxes):
            fed = self.network.fed[node.number]
            if len(fed) <= 1:
                out[node.number] = each[node.number] + (out[fed[0]] if fed else 0.0)
            else:
                out[node.number] = sum(each[b] for b in self.downstream(node.number))
        return out

    def downstream(self, box: int) -> tuple[int, ...]:
        """Return the boxes of D(b) in ascending order: each after all boxes that feed it."""
        seen = {box}
        stack = [box]
        while stack:
            for fed in self.network.fed[stack.pop()]:
                if fed not in seen:
                    seen.add(fed)
                    stack.append(fed)
        return tuple(sorted(seen))

    @cached_property
    def memory_rate(self) -> list[float]:
        """mem_rr(b): bytes freed in a nanosecond of b's work."""
        return [
            size * (1.0 - s) / max(c, 1e-9)
            for size, s, c in zip(self.tuple_bytes, self.selectivity, self.cost_ns, strict=True)
        ]

    @cached_property
    def hop_ns(self) -> list[int]:
        """The shortest hop of the windows of event time in D(b); 0 where there is none."""
        hops = [windows[0] if (windows := node.box.windows_ns()) else 0 for node in self.network.boxes]
        for node in reversed(self.network.boxes):
            behind = [hops[b] for b in (node.number, *self.network.fed[node.number]) if hops[b]]
            hops[node.number] = min(behind, default=0)
        return hops

    # -- the outputs' QoS ---------------------------------------------------------------------------------------------

    @cached_property
    def deadline_ns(self) -> list[int]:
        """The tightest deadline of the outputs that a box reaches, counted from a tuple's arrival."""
        outputs = self.network.outputs
        return [
            min((d for o in reach if (d := outputs[o].qos.deadline_ns) is not None), default=INFINITE_NS)
            for reach in self.network.box_outputs
        ]

    @cached_property
    def critical(self) -> list[bool]:
        """Whether a box serves an output of the critical set of MUF: the outputs by rising deadline, as long as
        their load together is at most one processor.

        The load of an output is the flow times the cost over all boxes that lead to it. Boxes that outputs share count
        for each: P4 section 1.1 gives every query a stream of its own.
        """
        network = self.network
        flow = self._load.flow(self._statistics.rate_per_s, self._port_selectivity).boxes.tolist()
        load = [0.0] * len(network.outputs)
        for node in network.boxes:
            for output in network.box_outputs[node.number]:
                load[output] += flow[node.number] * self.cost_ns[node.number] / 1e9
        in_time = [(o.qos.deadline_ns, o.number) for o in network.outputs if o.qos.deadline_ns is not None]
        critical: set[int] = set()
        total = 0.0
        for _, output in sorted(in_time):
            total += load[output]
            if total > 1.0:
                break
            critical.add(output)
        return [not critical.isdisjoint(reach) for reach in network.box_outputs]

    @cached_property
    def tightest_ns(self) -> int:
        """The tightest deadline in the network that can be met at all."""
        outputs = self.network.outputs
        return min((o.qos.deadline_ns or 0 for o in outputs if self.feasible[o.number]), default=INFINITE_NS)

    @cached_property
    def feasible(self) -> list[bool]:
        """By output: whether a tuple that never waits is in time. Where it is not, shorter trains cannot help."""
        alone_ns = self._load.ideal_ns(self._statistics.cost_per_call_ns, self._statistics.cost_per_tuple_ns).tolist()
        outputs = self.network.outputs
        return [
            o.qos.deadline_ns is not None and ns < o.qos.deadline_ns for o, ns in zip(outputs, alone_ns, strict=True)
        ]

    @cached_property
    def urgency(self) -> list[tuple[Urgency, int]]:
        """The urgency of a box, and the time to add to the latency of its tuples before reading it.

        A box with one output, the usual case, shares the graph of the output with all other boxes that lead there.
        """
        outputs = self.network.outputs
        known: dict[tuple[tuple[int, int], ...], Urgency] = {}
        out: list[tuple[Urgency, int]] = []
        for paths in self.paths_ns:
            if len(paths) == 1:
                [(output, way_ns)] = paths.items()
                out.append((of_graph(outputs[output].qos.latency), int(way_ns)))
                continue
            key = tuple(sorted((o, int(ns)) for o, ns in paths.items()))
            if key not in known:
                known[key] = add_graphs((outputs[o].qos.latency, ns) for o, ns in key)
            out.append((known[key], 0))
        return out

    # -- priorities that depend on the statistics alone ---------------------------------------------------------------

    @cached_property
    def ideal_ns(self) -> list[float]:
        """T by output: the sum of the costs on the path of a tuple that is emitted there.

        Of several paths that meet in a union the most expensive counts. At a join both count: a joined tuple took both.
        """
        upto = [0.0] * len(self.network.boxes)
        for node in self.network.boxes:
            above = [upto[b] for b in self.network.feeders[node.number]]
            joins = len(node.in_arcs) > 1 and node.kind != "union"
            upto[node.number] = self.cost_ns[node.number] + (sum(above) if joins else max(above, default=0.0))
        out = []
        for output in self.network.outputs:
            box = self.network.arcs[output.arc].source.box
            out.append(max(upto[box] if box is not None else 0.0, 1e-9))
        return out

    @cached_property
    def box_ideal_ns(self) -> list[float]:
        """T by box: the shortest T of the outputs that it reaches. That output feels a wait most."""
        return [min((self.ideal_ns[o] for o in reach), default=1e9) for reach in self.network.box_outputs]

    @cached_property
    def input_factor(self) -> list[float]:
        """By arc: the selectivity of its box for the tuples of this arc, over the mean over all inputs. Measured where
        it can be, else by the occupancy of the windows of a join; 1 for all other boxes."""
        out = [1.0] * len(self.network.arcs)
        measured = self._statistics.input_selectivity.tolist()
        for node in self.network.boxes:
            mean = self.selectivity[node.number]
            if len(node.in_arcs) < 2 or node.kind == "union" or mean <= 0:
                continue
            by_input = [measured[a] for a in node.in_arcs]
            if any(isnan(s) for s in by_input):
                if len(node.in_arcs) != 2:
                    continue
                left, right = [self._flow[a] for a in node.in_arcs]
                estimated = join_selectivities(mean, (left, right), node.box.met_ns() or (1, 1))
                if estimated is None:
                    continue
                by_input = list(estimated)
            for a, s in zip(node.in_arcs, by_input, strict=True):
                out[a] = s / mean
        return out

    @cached_property
    def _flow(self) -> list[float]:
        """By arc: tuples in a second."""
        flow: list[float] = self._load.flow(self._statistics.rate_per_s, self._port_selectivity).arcs.tolist()
        return flow

    def _rates(self, weights: list[float]) -> list[float]:
        return output_rates(self.network, self.cost_ns, self.arc_selectivity, weights, self.input_factor)

    def _best_input(self, by_arc: list[float]) -> list[float]:
        return [max([by_arc[a] for a in node.in_arcs]) for node in self.network.boxes]

    @cached_property
    def arc_rate(self) -> list[float]:
        """By arc: S/C, by which HR ranks."""
        return self._rates([1.0] * len(self.network.outputs))

    @cached_property
    def arc_normalized_rate(self) -> list[float]:
        """By arc: S/(C T), by which HNR ranks."""
        return self._rates([1.0 / t for t in self.ideal_ns])

    @cached_property
    def balanced_rate(self) -> list[float]:
        """S/(C T^2), which BSD multiplies by the wait. Of several inputs the best counts."""
        return self._best_input(self._rates([1.0 / t**2 for t in self.ideal_ns]))

    @cached_property
    def rate(self) -> list[float]:
        """S/C of the best input."""
        return self._best_input(self.arc_rate)

    @cached_property
    def normalized_rate(self) -> list[float]:
        """S/(C T) of the best input."""
        return self._best_input(self.arc_normalized_rate)

    @cached_property
    def arc_segment(self) -> list[Segment | None]:
        """By arc: the segment of the lower envelope that its tuples begin with (Chain). None for an arc to an
        output."""
        return chain_segments(self.network, self.cost_ns, self.arc_selectivity, self.tuple_bytes, self.input_factor)

    @cached_property
    def chain_segment(self) -> list[Segment]:
        """The steepest segment of a box's inputs."""
        return [steepest([self.arc_segment[a] for a in node.in_arcs]) for node in self.network.boxes]

    @cached_property
    def line_segment(self) -> list[Segment]:
        """The same where each application is one virtual line (VPipe)."""
        return line_segments(self.network, [line.boxes for line in lines(self.network)], self.cost_ns, self._flow)
