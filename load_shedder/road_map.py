"""The road map: what to give up next, and next, computed in advance.

Dropping at a place gains the work that the tuples would have caused behind it and loses utility by the slopes of the
loss graphs of the outputs behind it. The map is the list of moves of least loss over gain: each takes one place
further down, until one of the graphs has a corner, the place is empty, or a place behind it becomes the narrower one.
A plan that saves so much work is the beginning of that list.

Places that lie behind each other make this more than sorting. What counts is not the share that a place keeps but how
many tuples leave it: a place behind another that is narrower already loses nothing when the first one narrows, and so
the move costs only what the others behind it lose. In these terms load and delivery are linear, each move is the
cheapest there is, and on trees the plans are the best possible; with unions they are near it (a test compares with
brute force).

Everything is a share of what flows without shedding, so a map also holds when all rates rise together: only when the
mix or the costs change is it drawn again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from catalog.network import Network
from catalog.shed import NOTHING_SHED, Drop, Place, ShedPlan, Values
from catalog.stats import Floats
from load_shedder.graphs import FLAT, UNSEEN, cells, pieces
from load_shedder.segments import Costs, Segments, cut
from load_shedder.walk import CLOSE, Walk


class RoadMap:
    """Constant after it is made. Work in ns a second, at the rates that it was drawn for."""

    def __init__(self, segments: Segments, walk: Walk) -> None:
        moves = walk.moves
        self.places = segments.places
        self.load_ns = walk.load_ns  # nothing shed
        self.is_cut_short = walk.is_cut_short
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
        """More than this cannot be saved."""
        return float(self.saved_ns[-1])

    def kept(self, saving_ns: float) -> Floats:
        """By place: the share that it keeps when this much is to be saved."""
        at, into = self._find(saving_ns)
        flows = np.ones((len(self.places), 2))
        done, end = np.searchsorted(self._step, (at, at + 1)).tolist()
        flows[self._place[:done]] = self._after[:done]  # of several changes of a place the last one stays
        flows[self._place[done:end]] = (1 - into) * self._before[done:end] + into * self._after[done:end]
        reach, left = flows.T
        return np.clip(np.divide(left, reach, out=np.ones(len(reach)), where=reach > 0), 0.0, 1.0)

    def plan(self, saving_ns: float, *, number: int = 0, excess_ns: float = 0.0, why: str = "") -> ShedPlan:
        """The least loss that saves this much, or all there is."""
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
        """How many moves are done, and the share of the next one."""
        at = int(np.searchsorted(self.saved_ns, saving_ns, side="right")) - 1
        if at >= len(self._moves):
            return len(self._moves), 0.0
        return at, (saving_ns - float(self.saved_ns[at])) / max(self._moves[at].saved_ns, 1e-300)

    def _last_slopes(self, moves: int) -> dict[int, float]:
        return {m.place: m.loss / m.saved_ns for m in self._moves[:moves] if m.saved_ns > 0}


def draw_map(
    network: Network,
    places: Sequence[Place],
    costs: Costs,
    *,
    values: Mapping[int, Values] | None = None,
    read: Sequence[bool] | None = None,
) -> RoadMap:
    """``values`` by arc, of semantic places; ``read`` by output: what nobody reads is worth nothing and goes first."""
    segments = cut(network, places, costs)
    graphs = [
        pieces(o.qos.shed_by) if read is None or read[o.number] else FLAT for o in network.outputs
    ]  # fmt: skip
    known = values or {}
    worth = [cells(known.get(p.arc, UNSEEN) if p.manner == "semantic" else None) for p in segments.places]
    walk = Walk(segments, graphs, worth)
    walk.run()
    return RoadMap(segments, walk)
