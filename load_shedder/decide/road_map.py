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

from collections.abc import Container, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from catalog.loss import ValueCells
from catalog.network import Network, Output
from catalog.qos import IN_PROPORTION
from catalog.stats import Floats
from load_shedder.decide.graphs import FLAT, UNSEEN, GraphPiece, cells, pieces, with_floor
from load_shedder.decide.segments import FlowSegments, ModelCosts, split_at_places
from load_shedder.decide.walk import CLOSE, Walk
from load_shedder.shed_plan import NOTHING_SHED, Drop, DropPlace, ShedPlan

HALVINGS = 12  # to find how far a plan with caps goes: to a part in 4,000


class CappedFlow(NamedTuple):
    """The flow when caps hold beside the moves of the map."""

    kept: Floats  # by place: the share that it keeps
    left: Floats  # by place: the share of all its tuples, shed further up or not, that leaves it
    saved_ns: float
    loss: float  # utility, in addition to that of the moves


class MapStep(NamedTuple):
    """A stretch of the map on which one place gives up more and more."""

    place: DropPlace
    saves: float  # share of all work that is saved at its end
    costs: float  # utility given up at its end


class RoadMap:
    """Immutable. Work is in ns per second, at the rates that the map was drawn for."""

    def __init__(self, segments: FlowSegments, walk: Walk) -> None:
        moves = walk.moves
        self.places = segments.places
        self._segments = segments
        self._graphs = walk.graphs
        self._full, self._whole = walk.full, walk.whole
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

    def flow_into_joins(self, network: Network) -> list[float]:
        """Return, by arc that leads to a join, its tuples per second without shedding; 0 for the others."""
        full = self._segments.full
        return [0.0 if a.box is None else full.get((a.box, a.port), 0.0) for a in network.arcs]

    def steps(self) -> list[MapStep]:
        """Return the map for people: from nothing to everything, moves of one place in a row taken together."""
        found: list[MapStep] = []
        for move, saved_ns, loss in zip(self._moves, self.saved_ns[1:].tolist(), self.loss[1:].tolist(), strict=True):
            step = MapStep(self.places[move.place], saved_ns / self.load_ns if self.load_ns > 0 else 0.0, loss)
            if found and found[-1].place == step.place:
                found.pop()
            found.append(step)
        return found

    def kept(self, saving_ns: float) -> Floats:
        """Return, by place, the share that it keeps when this much work must be saved."""
        at, into = self._find(saving_ns)
        flows = np.ones((len(self.places), 2))
        done, end = np.searchsorted(self._step, (at, at + 1)).tolist()
        flows[self._place[:done]] = self._after[:done]  # of several changes of a place the last one remains
        flows[self._place[done:end]] = (1 - into) * self._before[done:end] + into * self._after[done:end]
        reach, left = flows.T
        return np.clip(np.divide(left, reach, out=np.ones(len(reach)), where=reach > 0), 0.0, 1.0)

    def plan(
        self,
        saving_ns: float,
        caps: Mapping[int, float] | None = None,
        *,
        number: int = 0,
        excess_ns: float = 0.0,
        why: str = "",
    ) -> ShedPlan:
        """Return the plan of least loss that saves this much work, or as much as can be saved.

        ``caps`` says, by place, which share of its tuples may leave it at most, because one worker can do no more
        behind it. The caps save work too, so the rest of the plan goes less far."""
        needed_ns = saving_ns = max(0.0, min(saving_ns, self.most_ns))
        if (saving_ns <= 0 and not caps) or not self._moves:
            return NOTHING_SHED
        capped: CappedFlow | None = None
        if caps:
            saving_ns, capped = self._capped(needed_ns, caps)
        kept = self.kept(saving_ns) if capped is None else capped.kept
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
            level=min(1.0, (saving_ns if capped is None else capped.saved_ns) / self.most_ns),
            drops=tuple(sorted(drops, key=lambda d: d.place.arc)),
            excess_ns=excess_ns,
            saved_ns=saving_ns if capped is None else capped.saved_ns,
            loss=float(np.interp(saving_ns, self.saved_ns, self.loss)) + (0.0 if capped is None else capped.loss),
            why=why,
        )

    def caps(self, saving_ns: float, caps: Mapping[int, float]) -> dict[int, float]:
        """Return these caps and those that, in the cheapest way, save this much work together with them."""
        needed_ns = max(0.0, min(saving_ns, self.most_ns))
        if needed_ns <= 0 or not self._moves:
            return dict(caps)
        _, flow = self._capped(needed_ns, caps)
        narrowed = {i: float(flow.left[i]) for i in np.flatnonzero(flow.kept < 1.0 - CLOSE).tolist()}
        return {i: min(caps.get(i, 1.0), narrowed.get(i, 1.0)) for i in {*caps, *narrowed}}

    def _capped(self, needed_ns: float, caps: Mapping[int, float]) -> tuple[float, CappedFlow]:
        """Return how far the plan goes on the map so that, with the caps, this much work is saved; and its flow."""
        low, high = 0.0, needed_ns
        found = self._flow(self.kept(low), caps)
        if found.saved_ns >= needed_ns:
            return low, found
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            if self._flow(self.kept(middle), caps).saved_ns >= needed_ns:
                high = middle
            else:
                low = middle
        return high, self._flow(self.kept(high), caps)

    def _flow(self, kept: Floats, caps: Mapping[int, float]) -> CappedFlow:
        """Return what is left when each place keeps this share, and no more than its cap of all its tuples."""
        open_flow = self._segments.flow(lambda i, tuples: tuples * float(kept[i]))
        shares = kept.copy()

        def leaves(i: int, tuples: float) -> float:
            left = tuples * float(kept[i])
            if i in caps and left > caps[i] * self._full[i]:
                left = caps[i] * self._full[i]
                shares[i] = left / tuples
            return left

        flow = self._segments.flow(leaves)
        full = np.array(self._full)
        remains = np.divide(flow.left, full, out=np.ones(len(full)), where=full > 0)
        loss = 0.0
        for output, tuples in flow.outputs.items():
            if (whole := self._whole[output]) > 0 and tuples < (without := open_flow.outputs[output]):
                graph = self._graphs[output]
                loss += _loss(graph, tuples / whole) - _loss(graph, without / whole)
        return CappedFlow(shares, remains, self.load_ns - flow.work_ns, loss)

    def _find(self, saving_ns: float) -> tuple[int, float]:
        """Return how many moves are complete, and the share of the next one."""
        at = int(np.searchsorted(self.saved_ns, saving_ns, side="right")) - 1
        if at >= len(self._moves):
            return len(self._moves), 0.0
        return at, (saving_ns - float(self.saved_ns[at])) / max(self._moves[at].saved_ns, 1e-300)

    def _last_slopes(self, moves: int) -> dict[int, float]:
        return {m.place: m.loss / m.saved_ns for m in self._moves[:moves] if m.saved_ns > 0}


def _loss(graph: Sequence[GraphPiece], share: float) -> float:
    """Return the utility lost when this share is delivered."""
    lost, above = 0.0, 1.0
    for piece in graph:
        lost += piece.slope * (above - max(share, piece.to)) if share < above else 0.0
        above = piece.to
    return lost


def draw_map(
    network: Network,
    places: Sequence[DropPlace],
    costs: ModelCosts,
    *,
    values: Mapping[int, ValueCells] | None = None,
    read: Sequence[bool] | None = None,
    given_up: Container[int] = (),
    floors: Mapping[int, float] | None = None,
) -> RoadMap:
    """Draw the map. ``values`` holds the worth of tuples by arc, for semantic places. ``read`` says by output whether
    it has a reader: an output without one is worth nothing and is shed first. An output that is ``given_up`` has no
    loss graph, and is worth as much as the share of its tuples that it gets. No plan goes below the ``floors``, by
    output."""
    segments = split_at_places(network, places, costs)

    def graph(output: Output) -> tuple[GraphPiece, ...]:
        if read is not None and not read[output.number]:
            return FLAT
        if output.number in given_up:
            return pieces(IN_PROPORTION)
        return with_floor(pieces(output.qos.shed_by), (floors or {}).get(output.number, 0.0))

    graphs = [graph(o) for o in network.outputs]
    known = values or {}
    worth = [cells(known.get(p.arc, UNSEEN) if p.manner == "semantic" else None) for p in segments.places]
    walk = Walk(segments, graphs, worth)
    walk.run()
    return RoadMap(segments, walk)
