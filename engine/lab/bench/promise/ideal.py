"""The ideal: the highest sum of utilities that any shedder could reach at a load, as a linear program.

The variables are the tuples a second that stay on each arc, the rows a second that are decoded, and the utilities. The
limits:

- No arc carries more than its stream or port gives it. The outputs of a box are its inputs times its selectivity; those
  of a join are limited by the share that either side keeps.
- All boxes together use the workers' time; one box alone uses one worker at most; the rows that are decoded use the
  edge (I/O and decoding). The knee was measured, so the fullest of these three is full there, by definition.
- The utility of an output lies below each linear piece of its graphs: the loss graph, applied to the worth that the
  best tuples carry. Without a loss graph utility is in proportion to the share delivered.

No kept tuple is late, and the plan is in force from the first tuple on. So no shedder can have more. A shedder that
does not know the future has less.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from catalog.network import Network
from catalog.qos import IN_PROPORTION
from engine.lab.bench.promise.packing import maximise
from load_shedder.decide.graphs import concave_hull

Floats = npt.NDArray[np.float64]
POINTS = 65  # of a utility over the share delivered, before its hull is taken


@dataclass(frozen=True)
class KneeCosts:
    """The measured use of the machine at the knee. Shares are of one thread's time."""

    per_s: Mapping[str, float]  # rows a second at the knee, by stream
    box_share: Sequence[float]  # by box
    selectivity: Sequence[Sequence[float]]  # by box and port
    edge_share: float  # of everything outside of the workers

    def fullest(self, workers: int) -> float:
        """Return the share of the resource that is full at the knee."""
        return max(sum(self.box_share) / workers, max(self.box_share, default=0.0), self.edge_share, 1e-9)


@dataclass(frozen=True)
class Ideal:
    utility: float
    outputs: Mapping[str, float]  # utility by output


def ideal(network: Network, costs: KneeCosts, load: float, worth: Mapping[str, Floats]) -> Ideal:
    """Compute the ideal at ``load`` times the knee. ``worth`` has, by output that values its tuples, the share of the
    worth that the best tuples carry (``truth.value_grid``)."""
    program = _Program(network, costs, load)
    for output in network.outputs:
        program.add_utility(output.number, _pieces(network, output.number, worth.get(output.name)))
    x = program.solve()
    utilities = {o.name: float(x[program.utilities + o.number]) for o in network.outputs}
    return Ideal(sum(utilities.values()), utilities)


class _Program:
    def __init__(self, network: Network, costs: KneeCosts, load: float) -> None:
        self._network = network
        arcs, streams = len(network.arcs), len(network.streams)
        self.utilities = arcs + streams  # where the utilities begin; before them the arcs, then the rows decoded
        self._width = self.utilities + len(network.outputs)
        self._rows: list[Floats] = []
        self._limits: list[float] = []
        self._full = self._flow(costs, load)
        workers = network.config.engine.sure_workers
        fullest = costs.fullest(workers)
        at_knee = self._flow(costs, 1.0)
        self._add_flows(costs, load)
        each = np.zeros((len(network.boxes), self._width))  # use of one worker, by box
        for node in network.boxes:
            taken = sum(at_knee[a] for a in node.in_arcs)
            for a in node.in_arcs if taken > 0 else ():
                each[node.number, a] = costs.box_share[node.number] / taken
        for row in each:
            self._add(row, fullest)
        self._add(each.sum(axis=0), fullest * workers)
        edge = np.zeros(self._width)
        total = sum(costs.per_s.values())
        edge[arcs : arcs + streams] = costs.edge_share / max(total, 1e-9)
        self._add(edge, fullest)

    def _add(self, row: Floats, at_most: float) -> None:
        self._rows.append(row)
        self._limits.append(at_most)

    def _selectivity(self, costs: KneeCosts, box: int, port: int, load: float) -> float:
        node = self._network.boxes[box]
        grows = load if node.box.kind == "join" else 1.0  # each tuple meets as many more partners
        return costs.selectivity[box][port] * grows

    def _flow(self, costs: KneeCosts, load: float) -> Floats:
        """Return the tuples a second on each arc when nothing is dropped."""
        network = self._network
        arcs = np.zeros(len(network.arcs))
        for stream in network.streams:
            arcs[list(stream.arcs)] = costs.per_s[stream.name] * load
        for node in network.boxes:  # numbers are topological
            taken = sum(arcs[a] for a in node.in_arcs)
            for port, leaving in enumerate(node.out_arcs):
                arcs[list(leaving)] = taken * self._selectivity(costs, node.number, port, load)
        return arcs

    def _add_flows(self, costs: KneeCosts, load: float) -> None:
        network = self._network
        for stream in network.streams:
            decoded = len(network.arcs) + stream.number
            self._add(self._unit(decoded), costs.per_s[stream.name] * load)
            for a in stream.arcs:
                self._add(self._unit(a) - self._unit(decoded), 0.0)
        for node in network.boxes:
            for port, leaving in enumerate(node.out_arcs):
                for a in leaving:
                    for fed in self._feeds(node.number):
                        row = self._unit(a)
                        for b in fed:
                            whole = self._full[b] if len(fed) == 1 < len(node.in_arcs) else 0.0
                            passed = (
                                self._full[a] / whole
                                if whole > 0
                                else self._selectivity(costs, node.number, port, load)
                            )
                            row[b] -= passed
                        self._add(row, 0.0)

    def _feeds(self, box: int) -> list[list[int]]:
        """Return the groups of inputs that each limit what leaves the box: for a join each side, else all together."""
        node = self._network.boxes[box]
        if node.box.kind == "join":
            return [[a] for a in node.in_arcs]
        return [list(node.in_arcs)]

    def _unit(self, at: int) -> Floats:
        row = np.zeros(self._width)
        row[at] = 1.0
        return row

    def add_utility(self, output: int, pieces: Sequence[tuple[float, float]]) -> None:
        """Limit the utility of an output by lines of its share delivered, each with a height at 0 and a slope."""
        arc = self._network.outputs[output].arc
        whole = max(float(self._full[arc]), 1e-9)
        for height, slope in pieces:
            row = self._unit(self.utilities + output)
            row[arc] = -slope / whole
            self._add(row, max(height, 0.0))

    def solve(self) -> Floats:
        # Rows are scaled to a largest entry of 1: flows are in the thousands, shares below 1.
        table, limits = np.array(self._rows), np.array(self._limits)
        flows = np.concatenate([np.maximum(self._full, 1e-9), np.ones(self._width - len(self._full))])
        flows[len(self._full) : self.utilities] = [max(v, 1e-9) for v in self._stream_rates()]
        scaled = table * flows  # each flow as a share of its greatest
        scale = np.maximum(np.abs(scaled).max(axis=1), 1e-12)
        gains = np.zeros(self._width)
        gains[self.utilities :] = 1.0
        found: Floats = maximise(gains, scaled / scale[:, None], limits / scale) * flows
        return found

    def _stream_rates(self) -> list[float]:
        return [float(self._full[s.arcs[0]]) if s.arcs else 0.0 for s in self._network.streams]


def _pieces(network: Network, number: int, worth: Floats | None) -> list[tuple[float, float]]:
    """Return the lines (height at share 0, slope) of an output's utility over the share delivered."""
    qos = network.outputs[number].qos
    shares = np.linspace(0, 1, POINTS)
    best = 1.0 if qos.latency is None else qos.latency.points[0][1]
    loss = qos.shed_by or IN_PROPORTION
    known = shares if worth is None else np.interp(shares, np.linspace(0, 1, len(worth)), worth)
    corners = sorted({*zip(shares.tolist(), (best * loss.utilities(known)).tolist(), strict=True), *(
        (x, best * y) for x, y in loss.points if worth is None and 0 <= x <= 1)})  # fmt: skip
    hull = concave_hull([c for i, c in enumerate(corners) if i + 1 == len(corners) or corners[i + 1][0] > c[0]])
    lines = []
    for (x0, y0), (x1, y1) in pairwise(hull):
        slope = (y1 - y0) / (x1 - x0)
        lines.append((y0 - slope * x0, slope))
    return lines or [(hull[0][1], 0.0)]
