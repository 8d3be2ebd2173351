"""The partners of a join in the simulator: how many pairs come out follows from the tuples that both inputs bring.

A tuple of one side meets the tuples of the other side that have come, within the band of time. So twice the rate on
both sides makes four times the pairs, and a drop before one side takes pairs from the other one. The selectivity that
was learned holds at the rates that were learned with it: together they give the chance that two tuples of the same
time make a pair.

Tuples are counted by time, in bins of a sixteenth of the band. A bin is kept as long as a tuple of the other side may
still meet it, as the join keeps it until the watermark of both inputs has passed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from catalog.load import LoadModel
from catalog.network import Network
from catalog.stats import Statistics
from engine.simulate.storage import SimulatedTrain

BINS = 16  # for the width of the band
LEAST_NS = 1_000_000


class JoinPartners:
    """The state of one join. Owner: the simulation."""

    def __init__(self, chance: float, before_ns: int, after_ns: int) -> None:
        """``chance`` is that of a pair, for two tuples within the band. A right tuple is at most ``before_ns`` before
        its left one, and at most ``after_ns`` after it."""
        self._chance = chance
        self._bin_ns = max((before_ns + after_ns) // BINS, LEAST_NS)
        self._reach = ((before_ns, after_ns), (after_ns, before_ns))  # by side: how far back and ahead its tuples meet
        self._held: tuple[dict[int, float], dict[int, float]] = ({}, {})  # by side: tuples by number of the bin
        self._latest = [0, 0]  # by side: the newest bin
        self._owed = 0.0  # the part of a pair that rounding has held back
        self.counts = ([0, 0], [0, 0])  # by side: tuples that came, and pairs that they made when they came

    def pairs(self, side: int, train: SimulatedTrain) -> int:
        """Take a train of one side. Return how many pairs it makes with what the other side has brought."""
        bins = self._bins(train)
        others, (back_ns, ahead_ns) = self._held[1 - side], self._reach[side]
        back, ahead = back_ns / self._bin_ns, ahead_ns / self._bin_ns
        met = sum([count * _within(others, number - back, number + ahead) for number, count in bins.items()])
        held = self._held[side]
        for number, count in bins.items():
            held[number] = held.get(number, 0.0) + count
        self._latest[side] = max(self._latest[side], *bins)
        self._forget()
        self._owed += met * self._chance
        made = int(self._owed)
        self._owed -= made
        self.counts[side][0] += train.count
        self.counts[side][1] += made
        return made

    def _bins(self, train: SimulatedTrain) -> dict[int, float]:
        pieces = train.pieces or ((1, train.first_ns, train.last_ns),)
        weight = sum([p[0] for p in pieces])
        found: dict[int, float] = {}
        for part, first_ns, last_ns in pieces:
            first, last = first_ns // self._bin_ns, last_ns // self._bin_ns
            each = train.count * part / weight / (last - first + 1)
            for number in range(first, last + 1):
                found[number] = found.get(number, 0.0) + each
        return found

    def _forget(self) -> None:
        widest_ns = max(max(reach) for reach in self._reach)
        oldest = min(self._latest) - widest_ns // self._bin_ns - 1
        for held in self._held:
            if len(held) > 4 * BINS:
                for number in [n for n in held if n < oldest]:
                    del held[number]


def _within(held: Mapping[int, float], low: float, high: float) -> float:
    """Return the tuples between two times, in bins; of the bins at both ends a part."""
    first, last = int(low // 1), int(high // 1)
    met = 0.0
    for number in range(first, last + 1):
        if count := held.get(number):
            met += count * (min(high, number + 1.0) - max(low, float(number)))
    return met


def partners_of(network: Network, statistics: Statistics) -> dict[int, JoinPartners]:
    """Return, by box, the partners of each join whose chance of a pair is known: inner joins of two inputs that arrive
    at known rates. Others keep the selectivity that was learned."""
    rates = LoadModel(network).flow(statistics.rate_per_s, statistics.port_selectivity).arcs
    found = {}
    for node in network.boxes:
        reach = joined_ns(network, node.number)
        if reach is None:
            continue
        left, right = (float(rates[a]) for a in node.in_arcs)
        met_per_s = left * right * sum(reach) / 1e9
        made_per_s = float(statistics.selectivity[node.number]) * (left + right)
        if met_per_s > 0 and made_per_s > 0:
            found[node.number] = JoinPartners(made_per_s / met_per_s, *reach)
    return found


def joined_ns(network: Network, box: int) -> tuple[int, int] | None:
    """Return how far before and after a left tuple its partners may be; None for a box that makes no pairs."""
    node = network.boxes[box]
    if node.kind != "join" or len(node.in_arcs) != 2 or node.box.under_loss(0) != "subset":
        return None
    reach = node.box.met_ns()
    return None if reach is None or sum(reach) <= 1 or node.box.under_loss(1) != "subset" else reach


def train_pairs(partners: JoinPartners, in_arcs: Sequence[int], inbox: Mapping[int, Sequence[SimulatedTrain]]) -> int:
    """Return the pairs that the trains on a join's inputs make."""
    return sum([partners.pairs(side, t) for side, a in enumerate(in_arcs) for t in inbox.get(a, ())])
