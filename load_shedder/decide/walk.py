"""The walk down the road map: from nothing shed to all that may be shed, always by the move of least loss over gain.

Where a loss graph is flat, dropping costs nothing, but the flat stretch is limited. Among moves of equal loss (mostly
0) the walk prefers the move that uses up the least of such a stretch for its gain, priced at the slope where the graph
next falls (``later``). So a free share is spent where it saves the most work: on tuples of little worth, and on outputs
that can spare more than is asked of them.

Loss and gain of a move are constant until an *event*: an output reaches a corner of its loss graph, a place runs empty
or reaches tuples of more worth, or a place behind it is no longer the narrower one. After an event only the places that
lead to it are weighed again; in a network of chains a move touches one place. Where many paths lead to many outputs, a
weight that changed by less than ``SLIGHT`` is not propagated, so the order of the candidates is nearly right. The
saving and the loss of each move are exact: they are computed when the move is made.

A drop before one input of a join takes partners from the tuples of the other input, so what those cause is computed
anew after each move there. A place that leads to both inputs goes down by ``PART`` of its tuples at most in one move,
because its pairs fall by the square.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from catalog.stats import Floats
from load_shedder.decide.graphs import WALL, GraphPiece, WorthStep
from load_shedder.decide.segments import FlowSegment, FlowSegments, JoinInput

Index = npt.NDArray[np.intp]

DROP_NS = 5.0  # the cost of dropping one tuple: a place that saves less than this per tuple is not used
MOVES_A_PLACE = 64  # a safety limit: a map that reaches it ends there (``hit_limit``)
OPEN = WorthStep(1.0, 1.0, 0.0)  # before the first step: all are kept
SLIGHT = 0.05  # relative change of a weight since it was last propagated
PART = 0.05  # of the tuples of a place
CLOSE = 1e-9  # two events closer than this share of a flow count as one


class Move(NamedTuple):
    """One place goes further down, and the flows at the places behind it change with it."""

    place: int  # by index
    saved_ns: float
    loss: float
    flows: list[tuple[int, float, float, float, float]]  # place; tuples reaching and leaving it before, and after


class FlowChange(NamedTuple):
    """The change behind a place when one tuple less leaves it."""

    saved_ns: float
    outputs: Index
    worth: Floats  # by output
    places: Index
    reach: Floats  # by place
    proportional: Index  # places that keep a fixed share: less leaves them, in proportion
    kept_share: Floats  # and that share
    fixed: list[int]  # places that keep a fixed number of tuples
    joins: dict[JoinInput, float]  # tuples into joins


class Walk:
    """The state of the walk. Flows are in tuples per second, by index of the place or number of the output."""

    def __init__(
        self, segments: FlowSegments, graphs: Sequence[tuple[GraphPiece, ...]], worth: Sequence[tuple[WorthStep, ...]]
    ) -> None:
        self.graphs, self.worth = graphs, worth
        count = len(segments.places)
        flow = segments.flow(lambda _, tuples: tuples)
        reach, whole = flow.reach, [flow.outputs.get(o, 0.0) for o in range(len(graphs))]
        self._segments = segments
        self._into = flow.joins  # tuples that reach the joins now
        self.after = segments.expanded(self._into)
        self.full, self.whole = reach, whole  # without shedding: tuples at each place, and of each output
        self.reach, self.left = np.array(reach), np.array(reach)  # tuples that reach a place now, and that leave it
        self.delivered = np.array(whole)  # in tuples of mean worth
        self.load_ns = flow.work_ns
        self.cell = [0] * count  # the cell of tuples that the place gives up next
        # A place is *proportional* when it has given up whole cells, or nothing: when less reaches it, less leaves it
        # in proportion. Any other place is *fixed*: the same number of tuples leaves it while enough reach it.
        self.kept_share = [1.0] * count  # of a proportional place; 0: the place is fixed
        self.passed_on = [1.0] * count  # the worth lost behind a place when one tuple less reaches it
        self.piece = [0] * len(graphs)
        self.corner = np.zeros(len(graphs))  # the delivery at which the current piece ends
        self.moves: list[Move] = []
        self.hit_limit = False
        self._children = [_there(s.places) for s in self.after]
        self._ends = [self._outputs_of(s) for s in self.after]
        self._parents: list[list[int]] = [[] for _ in range(count)]
        self._before_output: list[list[int]] = [[] for _ in graphs]  # places with no other place in between
        for i, (children, ends) in enumerate(zip(self._children, self._ends, strict=True)):
            for child, _ in children:
                self._parents[child].append(i)
            for output, _ in ends:
                self._before_output[output].append(i)
        self.slope = [0.0] * len(graphs)  # utility lost per tuple
        self.later_slope = [0.0] * len(graphs)
        for output in range(len(graphs)):
            self._set_piece(output, 0)
        self._used_weights = [(0.0, 0.0, 0.0)] * count  # loss, later, gain: as the places before it have last used them
        self.loss, self.gain = (
            [0.0] * count,
            [0.0] * count,
        )  # when one tuple less leaves the place, at the present slopes
        self.later = [0.0] * count  # the loss at the slopes to come
        self._version = [0] * count
        self._candidates: list[tuple[float, float, float, int, int]] = []

        self._before_join: dict[int, set[int]] = {}  # by join: the places whose tuples make pairs there
        self._feeds_both = self._find_feeds()

    def run(self) -> None:
        for i in reversed(range(len(self.after))):
            self._weigh(i)
            self._used_weights[i] = self.loss[i], self.later[i], self.gain[i]
        self._candidates = [self._entry(i) for i in range(len(self.after)) if self._may_move(i)]
        heapify(self._candidates)
        left = MOVES_A_PLACE * (len(self.after) + 1)
        while self._candidates:
            *_, place, version = heappop(self._candidates)
            if version != self._version[place] or not self._may_move(place):
                continue
            if not left:
                self.hit_limit = True
                return
            left -= 1
            self._move(place)

    def _outputs_of(self, segment: FlowSegment) -> list[tuple[int, float]]:
        return [(o, tuples) for o, tuples in _there(segment.outputs) if self.whole[o] > 0]

    def _find_feeds(self) -> set[int]:
        """Find the places before each join. Return those that lead to two inputs of one join."""
        leads: list[set[JoinInput]] = [set() for _ in self.after]
        for i in reversed(range(len(self.after))):
            leads[i] = set(self.after[i].joins).union(*(leads[child] for child, _ in self._children[i]))
            for box, _ in self.after[i].joins:
                self._before_join.setdefault(box, set()).add(i)
        return {i for i, keys in enumerate(leads) if len({box for box, _ in keys}) < len(keys)}

    # -- weighing -----------------------------------------------------------------------------------------------------

    def _weigh(self, i: int) -> None:
        """Compute what is lost and gained behind a place when one tuple less leaves it."""
        loss, later, gain = 0.0, 0.0, self.after[i].cost_ns
        for output, part in self._ends[i]:
            loss += part * self.slope[output]
            later += part * self.later_slope[output]
        losses, laters, gains = self.loss, self.later, self.gain
        passed_on, kept_share = self.passed_on, self.kept_share
        for child, tuples in self._children[i]:
            worth = tuples * passed_on[child]
            if worth:
                loss += worth * losses[child]
                later += worth * laters[child]
                gain += tuples * kept_share[child] * gains[child]
        losses[i], laters[i], gains[i] = loss, later, gain

    def _entry(self, i: int) -> tuple[float, float, float, int, int]:
        """Return the sort key: least loss over gain first, then least later loss over gain, then the largest total
        gain."""
        each = self.worth[i][self.cell[i]].worth / self.gain[i]
        return self.loss[i] * each, self.later[i] * each, -self.gain[i] * float(self.left[i]), i, self._version[i]

    def _may_move(self, i: int) -> bool:
        return self.gain[i] > DROP_NS and bool(self.left[i] > CLOSE * self.full[i])

    def _reweigh(self, places: set[int]) -> None:
        """Weigh these places again, from last to first, and the places above them as far as weights change."""
        due = [-i for i in places]
        heapify(due)
        seen = set(places)
        while due:
            i = -heappop(due)
            self._weigh(i)
            if i not in places and self._is_slight(i):
                continue
            self._used_weights[i] = self.loss[i], self.later[i], self.gain[i]
            self._version[i] += 1
            if self._may_move(i):
                heappush(self._candidates, self._entry(i))
            for parent in self._parents[i]:
                if parent not in seen:
                    seen.add(parent)
                    heappush(due, -parent)

    def _is_slight(self, i: int) -> bool:
        """Return whether its weights are close to the ones that the places before it used."""
        loss, later, gain = self._used_weights[i]
        return (
            abs(self.loss[i] - loss) <= SLIGHT * loss
            and abs(self.gain[i] - gain) <= SLIGHT * gain
            and abs(self.later[i] - later) <= SLIGHT * later
        )

    # -- moving -------------------------------------------------------------------------------------------------------

    def _move(self, place: int) -> None:
        """Take the place down to the next event. Before a wall it stays: it is weighed again when a place behind it
        becomes the narrower one."""
        change = self._change_per_tuple(place)
        if any(self.graphs[o][self.piece[o]].slope >= WALL for o in change.outputs.tolist()):
            return
        far, events = self._next_events(place, change)
        if far > 0:
            shown = [place, *change.fixed]
            before = [(float(self.reach[i]), float(self.left[i])) for i in shown]
            self.delivered[change.outputs] -= far * change.worth
            self.reach[change.places] -= far * change.reach
            self.left[change.proportional] = change.kept_share * self.reach[change.proportional]
            self.left[place] -= far
            after = [(float(self.reach[i]), float(self.left[i])) for i in shown]
            flows = [(i, *b, *a) for i, b, a in zip(shown, before, after, strict=True)]
            lost = zip(change.outputs.tolist(), change.worth.tolist(), strict=True)
            loss = sum(worth * self.slope[output] for output, worth in lost)
            self.moves.append(Move(place, change.saved_ns * far, loss * far, flows))
        self._settle(place, events, self._take_partners(change.joins, far))

    def _take_partners(self, joins: Mapping[JoinInput, float], far: float) -> set[int]:
        """Take tuples from the inputs of joins. Return the places whose tuples make fewer pairs now."""
        if not joins or far <= 0:
            return set()
        for key, tuples in joins.items():
            self._into[key] = max(self._into[key] - far * tuples, 0.0)
        thinned = set[int]().union(*(self._before_join[box] for box, _ in joins))
        after = self._segments.expanded(self._into)
        for i in thinned:
            self.after[i] = after[i]
            self._children[i], self._ends[i] = _there(after[i].places), self._outputs_of(after[i])
        return thinned

    def _change_per_tuple(self, place: int) -> FlowChange:
        reach: dict[int, float] = {}
        worth: dict[int, float] = {}
        joins: dict[JoinInput, float] = {}
        saved_ns = 0.0
        due = [place]
        while due:
            i = heappop(due)
            if i == place:
                leaves, worths = 1.0, self.worth[i][self.cell[i]].worth
            else:
                leaves, worths = reach[i] * self.kept_share[i], reach[i] * self.passed_on[i]
            saved_ns += leaves * self.after[i].cost_ns
            for key, tuples in self.after[i].joins.items():
                joins[key] = joins.get(key, 0.0) + tuples * leaves
            for output, tuples in _there(self.after[i].outputs) if worths else ():
                worth[output] = worth.get(output, 0.0) + tuples * worths
            for child, tuples in self._children[i] if leaves else ():
                if child not in reach:
                    heappush(due, child)
                    reach[child] = tuples * leaves
                else:
                    reach[child] += tuples * leaves
        proportional = [i for i in reach if self.kept_share[i]]
        return FlowChange(
            saved_ns,
            np.fromiter(worth, np.intp, len(worth)),
            np.fromiter(worth.values(), np.float64, len(worth)),
            np.fromiter(reach, np.intp, len(reach)),
            np.fromiter(reach.values(), np.float64, len(reach)),
            np.array(proportional, np.intp),
            np.array([self.kept_share[i] for i in proportional]),
            [i for i in reach if not self.kept_share[i]],
            joins,
        )

    def _next_events(self, place: int, change: FlowChange) -> tuple[float, list[tuple[str, int]]]:
        """Return how many tuples per second the move goes, and the events at its end."""
        left, cell = float(self.left[place]), self.worth[place][self.cell[place]]
        events: list[tuple[float, str, int]] = [(left, "empty", place)]
        if place in self._feeds_both:
            events.append((max(PART * left, CLOSE * self.full[place]), "part", place))
        if cell.to > 0:
            events.append((max(0.0, left - cell.to * float(self.reach[place])), "cell", place))
        by = dict(zip(change.places.tolist(), change.reach.tolist(), strict=True)) if change.fixed else {}
        for i in change.fixed:  # fewer tuples reach it, so its kept share grows
            most = (self.worth[i][self.cell[i] - 1] if self.cell[i] else OPEN).to
            events.append((max(0.0, float(self.reach[i] - self.left[i] / most)) / by[i], "wide", i))
        ends = self.corner[change.outputs]
        until = np.maximum(self.delivered[change.outputs] - ends, 0.0) / change.worth
        until[ends <= 0] = np.inf
        far = min(min(e[0] for e in events), float(until.min()) if len(until) else np.inf)
        near = far + CLOSE * max(self.full[place], 1e-300)
        corners = [("corner", o) for o in change.outputs[until <= near].tolist()]
        return far, [(kind, number) for at, kind, number in events if at <= near] + corners

    def _settle(self, place: int, events: list[tuple[str, int]], thinned: set[int]) -> None:
        changed: set[int] = {place, *thinned}
        kept_share = self.kept_share[place]
        shaped: set[int] = set()
        if kept_share and self.left[place] < kept_share * self.reach[place] * (1 - CLOSE):
            self._make_fixed(place)
            shaped.add(place)
        for kind, number in events:
            if kind == "empty":
                self.left[place] = 0.0
            elif kind == "cell":
                cell = self.worth[place][self.cell[place]]
                self.cell[place] = min(self.cell[place] + 1, len(self.worth[place]) - 1)
                self._make_proportional(place, cell)
                shaped.add(place)
            elif kind == "corner":
                self._set_piece(number, min(self.piece[number] + 1, len(self.graphs[number]) - 1))
                changed.update(self._before_output[number])
            elif kind == "wide":
                cell = self.worth[number][self.cell[number] - 1] if self.cell[number] else OPEN
                self._make_proportional(number, cell)
                self.left[number] = cell.to * self.reach[number]
                shaped.add(number)
        changed.update(shaped, *(self._parents[i] for i in shaped))
        self._reweigh(changed)

    def _set_piece(self, output: int, piece: int) -> None:
        """Move an output to this piece of its loss graph."""
        graph, whole = self.graphs[output][piece:], self.whole[output]
        self.piece[output], self.corner[output] = piece, graph[0].to * whole
        if whole > 0:
            self.slope[output], self.later_slope[output] = graph[0].slope / whole, _next_slope(graph) / whole

    def _make_proportional(self, place: int, cell: WorthStep) -> None:
        """The place has given up all of this cell: from now on it keeps a fixed share."""
        self.kept_share[place], self.passed_on[place] = cell.to, cell.apart + cell.worth * cell.to

    def _make_fixed(self, place: int) -> None:
        """The place is the narrower one: when less reaches it, as many still leave it, chosen from fewer."""
        self.kept_share[place], self.passed_on[place] = 0.0, self.worth[place][self.cell[place]].apart


def _next_slope(graph: Sequence[GraphPiece]) -> float:
    """Return the slope of the first piece that is not flat."""
    return next((piece.slope for piece in graph if piece.slope > 0), 0.0)


def _there(tuples: Mapping[int, float]) -> list[tuple[int, float]]:
    return [(number, n) for number, n in tuples.items() if n]
