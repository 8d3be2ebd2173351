"""The road map: the list of what to give up first, second, third, computed in advance.

A drop at a place gains the work that its tuples would have caused behind it. It loses utility, by the slopes of the
loss graphs of the outputs behind it. The map is the list of *moves* in order of loss over gain. Each move takes one
place further down, until a graph has a corner, the place is empty, or a place behind it becomes the narrower one. The
plan that saves a given amount of work is the beginning of that list.

Places that lie behind each other make this more than sorting. The right quantity is the number of tuples that leave a
place, not the share that it keeps: when a place narrows, a narrower place behind it loses nothing, and the move costs
only the loss of the other outputs. In these terms work and delivery are linear, and each move is the cheapest that
exists. On trees the plans are optimal; with unions they are near the optimum (a test compares with brute force).

All numbers are shares of the flow without shedding, so a map stays valid when all rates rise together. It is drawn
again only when the mix of rates or the costs change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from catalog.loss import ValueCells
from catalog.network import Network
from catalog.stats import Floats
from load_shedder.decide.graphs import FLAT, UNSEEN, cells, pieces
from load_shedder.decide.segments import FlowSegments, ModelCosts, split_at_places
from load_shedder.decide.walk import CLOSE, Walk
from load_shedder.shed_plan import NOTHING_SHED, Drop, DropPlace, ShedPlan


class RoadMap:
    """Immutable. Work is in ns per second, at the rates that the map was drawn for."""

    def __init__(self, segments: FlowSegments, walk: Walk) -> None:
        moves = walk.moves
        self.places = segments.places
        self.load_ns = walk.load_ns  # without shedding
        self.hit_limit = walk.hit_limit
        self.saved_ns: Floats = np.cumsum([0.0] + [m.saved_ns for m in moves])
        self.loss: Floats = np.cumsum([0.0] + [m.loss for m in moves])
        self._moves = moves
        self._mover = np.array([m.place for m in moves], np.intp)
        changes = [(i, *flows) for i, m in enumerate(moves) for flows in m.flows]
        table = np.array(changes, np.float64).reshape(-1, 6)
        self._step, self._place = table[:, 0].astype(np.intp), table[:, 1].astype(np.intp)
        self._before, self._after = table[:, 2:4], table[:, 4:]

    @property
    def most_ns(self) -> float:
        """The most work that any plan saves."""
        return float(self.saved_ns[-1])

    def kept(self, saving_ns: float) -> Floats:
        """Return, by place, the share that it keeps when this much work must be saved."""
        at, into = self._find(saving_ns)
        flows = np.ones((len(self.places), 2))
        done, end = np.searchsorted(self._step, (at, at + 1)).tolist()
        flows[self._place[:done]] = self._after[:done]  # of several changes of a place the last one remains
        flows[self._place[done:end]] = (1 - into) * self._before[done:end] + into * self._after[done:end]
        reach, left = flows.T
        return np.clip(np.divide(left, reach, out=np.ones(len(reach)), where=reach > 0), 0.0, 1.0)

    def plan(self, saving_ns: float, *, number: int = 0, excess_ns: float = 0.0, why: str = "") -> ShedPlan:
        """Return the plan of least loss that saves this much work, or as much as can be saved."""
        saving_ns = min(saving_ns, self.most_ns)
        if saving_ns <= 0 or not self._moves:
            return NOTHING_SHED
        kept = self.kept(saving_ns)
        at, into = self._find(saving_ns)
        done = np.concatenate([np.ones(at), [into] if at < len(self._moves) else []])
        count = len(self.places)
        movers = self._mover[: len(done)]
        gains = np.bincount(movers, np.diff(self.saved_ns)[: len(done)] * done, count)
        losses = np.bincount(movers, np.diff(self.loss)[: len(done)] * done, count)
        slopes = self._last_slopes(len(done))
        drops = [
            Drop(self.places[i], float(1 - kept[i]), float(gains[i]), float(losses[i]), slopes.get(i, 0.0))
            for i in np.flatnonzero(kept < 1.0 - CLOSE).tolist()
        ]
        return ShedPlan(
            number=number,
            level=saving_ns / self.most_ns,
            drops=tuple(sorted(drops, key=lambda d: d.place.arc)),
            excess_ns=excess_ns,
            saved_ns=saving_ns,
            loss=float(np.interp(saving_ns, self.saved_ns, self.loss)),
            why=why,
        )

    def _find(self, saving_ns: float) -> tuple[int, float]:
        """Return how many moves are complete, and the share of the next one."""
        at = int(np.searchsorted(self.saved_ns, saving_ns, side="right")) - 1
        if at >= len(self._moves):
            return len(self._moves), 0.0
        return at, (saving_ns - float(self.saved_ns[at])) / max(self._moves[at].saved_ns, 1e-300)

    def _last_slopes(self, moves: int) -> dict[int, float]:
        return {m.place: m.loss / m.saved_ns for m in self._moves[:moves] if m.saved_ns > 0}


def draw_map(
    network: Network,
    places: Sequence[DropPlace],
    costs: ModelCosts,
    *,
    values: Mapping[int, ValueCells] | None = None,
    read: Sequence[bool] | None = None,
) -> RoadMap:
    """Draw the map. ``values`` holds the worth of tuples by arc, for semantic places. ``read`` says by output whether
    it has a reader: an output without one is worth nothing and is shed first."""
    segments = split_at_places(network, places, costs)
    graphs = [
        pieces(o.qos.shed_by) if read is None or read[o.number] else FLAT for o in network.outputs
    ]  # fmt: skip
    known = values or {}
    worth = [cells(known.get(p.arc, UNSEEN) if p.manner == "semantic" else None) for p in segments.places]
    walk = Walk(segments, graphs, worth)
    walk.run()
    return RoadMap(segments, walk)
