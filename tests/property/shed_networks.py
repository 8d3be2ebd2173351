"""Random small networks to shed, and the best that could be done with them: every combination of shares tried."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np

from catalog.network import Network
from catalog.qos import QoS, QoSGraph
from catalog.stats import Floats, Statistics
from engine.run.declared_costs import set_selectivity
from engine.simulate.sketch import NetworkSketch, SketchInput
from load_shedder.decide.places import find_places
from load_shedder.shed_plan import DropPlace

LEVELS = (0, 65, 33, 17, 11, 8, 6)  # by the number of places
ZOOMS = 8


def shedding(network: Network) -> Network:
    """The same, with every stream's ``overload: shed``."""
    return replace(network, streams=tuple(replace(s, overload="shed") for s in network.streams))


def concave_graph(random: Random) -> QoSGraph:
    """Up to three pieces, each steeper than the one right of it; often a good zone without loss."""
    xs = sorted({0.0, 1.0, *(round(random.uniform(0.1, 0.9), 2) for _ in range(random.randint(0, 2)))})
    slopes = sorted((random.uniform(0.1, 1.0) for _ in xs[1:]), reverse=True)
    if len(slopes) > 1 and random.random() < 0.5:
        slopes[-1] = 0.0
    ys = [0.0]
    for i, slope in enumerate(slopes):
        ys.append(ys[-1] + slope * (xs[i + 1] - xs[i]))
    return QoSGraph(tuple((x, y / ys[-1]) for x, y in zip(xs, ys, strict=True)))


def random_case(random: Random) -> tuple[Network, Statistics]:
    """Boxes that split and unite at random, one or two streams, two to five outputs."""
    sketch = NetworkSketch()
    taps = [sketch.stream() for _ in range(random.randint(1, 2))]
    open_ends: list[SketchInput] = []
    for _ in range(random.randint(2, 8)):
        above = random.sample(taps, k=2 if len(taps) > 1 and random.random() < 0.2 else 1)
        tap = sketch.box(*above, cost_ns=10 ** random.uniform(2, 4), selectivity=random.uniform(0.1, 1.0))
        open_ends = [t for t in open_ends if t not in above] + [tap]
        taps.append(tap)
    for tap in open_ends + random.sample(taps, k=random.randint(0, 1)):
        sketch.output(tap, QoS(loss=concave_graph(random)))
    network = shedding(sketch.network())
    statistics = Statistics(network)
    statistics.cost_per_call_ns[:] = 0.0
    for node in network.boxes:
        set_selectivity(statistics, node.number, float(node.selectivity or 0.0))
    statistics.rate_per_s[:] = [10 ** random.uniform(3, 5) for _ in network.streams]
    statistics.output_cost_ns[:] = [random.choice([0.0, 300.0]) for _ in network.outputs]
    return network, statistics


def with_joins(network: Network) -> Network:
    """The same, with every box of several inputs a join: it makes pairs."""
    boxes = tuple(replace(b, kind="join") if len(b.in_arcs) > 1 else b for b in network.boxes)
    return replace(network, boxes=boxes)


def random_cases(seed: int, count: int, places_at_most: int) -> list[tuple[Network, Statistics, tuple[DropPlace, ...]]]:
    random, found = Random(seed), []
    while len(found) < count:
        network, statistics = random_case(random)
        places = find_places(network)
        if 1 <= len(places) <= places_at_most:
            found.append((network, statistics, places))
    return found


class Judge:
    """Load and utility of many choices of shares at once, box by box: nothing of the road map or its model is in it."""

    def __init__(self, network: Network, statistics: Statistics, places: tuple[DropPlace, ...]) -> None:
        self.network, self.statistics, self.places = network, statistics, places
        self.whole = np.ones(len(network.outputs))
        self._full: dict[int, float] = {}  # by arc into a join: its tuples without drops
        self.whole = self._flow(np.ones((1, len(places))))[1][:, 0]

    def judge(self, kept: Floats) -> tuple[Floats, Floats]:
        """For each row (a share for each place): work in ns a second, and the sum of utilities."""
        load, delivered = self._flow(kept)
        utility = np.zeros(len(kept))
        for output in self.network.outputs:
            graph, whole = output.qos.shed_by, self.whole[output.number]
            assert graph is not None
            utility += graph.utilities(delivered[output.number] / whole if whole else np.ones(len(kept)))
        return load, utility

    def _flow(self, kept: Floats) -> tuple[Floats, Floats]:
        network, s = self.network, self.statistics
        share = {p.arc: kept[:, i] for i, p in enumerate(self.places)}
        into = np.zeros((len(network.boxes), len(kept)))
        delivered = np.zeros((len(network.outputs), len(kept)))
        pairs: dict[int, Floats | float] = {}  # by join: the share of its pairs that is left

        def send(arcs: tuple[int, ...], tuples: Floats) -> None:
            for a in arcs:
                left, arc = tuples * share.get(a, 1.0), network.arcs[a]
                if arc.box is not None:
                    into[arc.box] += left
                    if network.boxes[arc.box].kind == "join":
                        self._full.setdefault(a, float(left[0]))  # the first flow is the one without drops
                        full = self._full[a]
                        pairs[arc.box] = pairs.get(arc.box, 1.0) * (left / full if full else left)
                else:
                    delivered[arc.output or 0] += left

        for stream in network.streams:
            send(stream.arcs, np.full(len(kept), s.rate_per_s[stream.number]))
        for node in network.boxes:
            taken = into[node.number]
            if node.number in pairs:
                taken = sum(self._full[a] for a in node.in_arcs) * np.asarray(pairs[node.number])
            send(node.out_arcs[0], taken * s.selectivity[node.number])
        load: Floats = s.effective_cost_ns() @ into + s.output_cost_ns @ delivered
        return load, delivered

    def best(self, load_ns: float) -> float:
        """Every combination of levels, then finer and finer around the best one that the load allows."""
        count = len(self.places)
        levels = LEVELS[count]
        low, high = np.zeros(count), np.ones(count)
        best, at = -1.0, np.zeros(count)
        for _ in range(ZOOMS):
            axes = [np.linspace(a, b, levels) for a, b in zip(low, high, strict=True)]
            grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, count)
            load, utility = self.judge(grid)
            utility[load > load_ns * (1 + 1e-9)] = -1.0
            if utility.max() > best:
                best, at = float(utility.max()), grid[int(utility.argmax())]
            width = 1.5 * (high - low) / (levels - 1)
            low, high = np.clip(at - width, 0, 1), np.clip(at + width, 0, 1)
        return best
