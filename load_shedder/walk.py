"""The walk down the road map: from nothing shed to all that may be, always by the move of least loss over gain.

Where a graph is flat a tuple less costs nothing, but what may be lost for nothing is not without end. Of moves that
lose the same (nothing, mostly) the first is the one that uses up least of that for what it gains, at the price which it
will have where the graph next falls (``later``). So a free share is spent where it saves most: on tuples that are
worth little, and on outputs that can spare more than they are asked for.

Loss and gain of a move are constant until something happens: an output comes to a corner of its loss graph, a place
runs empty or comes to tuples of more worth, or a place behind it is no longer the narrower one. Then those that lead
there are weighed again, and nobody else: on a network of chains a move touches one place. Where many ways lead to many
outputs, what changes by less than ``SLIGHT`` is not passed on, so places stand in the queue by weights that are nearly
right. What a move saves and loses is exact: it is added up when it is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from catalog.stats import Floats
from load_shedder.graphs import Cell, Piece
from load_shedder.segments import Segments

Index = npt.NDArray[np.intp]

DROP_NS = 5.0  # what it costs to drop a tuple: a place that saves less of each is none
MOVES_A_PLACE = 64  # a limit, not a goal: a map that hits it ends there and says so
OPEN = Cell(1.0, 1.0, 0.0)  # above the first: all are kept
SLIGHT = 0.05  # of a weight, since it was last passed on
CLOSE = 1e-9  # two events within this share of a flow are one


class Move(NamedTuple):
    """One place goes further down; what flows at the places behind it changes along."""

    place: int  # by index
    saved_ns: float
    loss: float
    flows: list[tuple[int, float, float, float, float]]  # place: reach and leave it before, reach and leave it after


class Rates(NamedTuple):
    """For a tuple less that leaves a place: how much less there is behind it."""

    saved_ns: float
    outputs: Index
    worth: Floats  # by output
    places: Index
    reach: Floats  # by place
    riders: Index  # the places that go along: as much less leaves them, in proportion
    ride: Floats  # the share of it
    narrow: list[int]  # and those that do not


class Walk:
    """The state of the walk down. Flows in tuples a second, by index of the place or number of the output."""

    def __init__(
        self, segments: Segments, graphs: Sequence[tuple[Piece, ...]], worth: Sequence[tuple[Cell, ...]]
    ) -> None:
        self.after, self.graphs, self.worth = segments.after, graphs, worth
        count = len(segments.places)
        reach = [segments.base.places.get(i, 0.0) for i in range(count)]
        whole = [segments.base.outputs.get(o, 0.0) for o in range(len(graphs))]
        for i, segment in enumerate(segments.after):
            for child, tuples in segment.places.items():
                reach[child] += reach[i] * tuples
            for output, tuples in segment.outputs.items():
                whole[output] += reach[i] * tuples
        self.full, self.whole = reach, whole  # nothing shed: tuples at each place, and of each output
        self.reach, self.left = np.array(reach), np.array(reach)  # tuples that come to a place, and that leave it
        self.delivered = np.array(whole)  # in tuples of mean worth
        self.load_ns = segments.base.cost_ns + sum(
            tuples * s.cost_ns for tuples, s in zip(reach, segments.after, strict=True)
        )
        self.cell = [0] * count  # the tuples that it gives up next
        # A place *rides* when it keeps all that is worth more than what it has given up: when less reaches it, less
        # leaves it in proportion. So does one that drops nothing. The others keep what they keep, as long as they can.
        self.ride = [1.0] * count  # the share that it keeps so; 0: it does not ride
        self.passed_on = [1.0] * count  # the worth that leaves it less for a tuple less that reaches it
        self.piece = [0] * len(graphs)
        self.corner = np.zeros(len(graphs))  # where the piece ends
        self.moves: list[Move] = []
        self.is_cut_short = False
        self._children = [[(c, t) for c, t in s.places.items() if t] for s in segments.after]
        self._ends = [[(o, t) for o, t in s.outputs.items() if t and whole[o] > 0] for s in segments.after]
        self._parents: list[list[int]] = [[] for _ in range(count)]
        self._before_output: list[list[int]] = [[] for _ in graphs]  # places with nothing in between
        for i, (children, ends) in enumerate(zip(self._children, self._ends, strict=True)):
            for child, _ in children:
                self._parents[child].append(i)
            for output, _ in ends:
                self._before_output[output].append(i)
        self.slope = [0.0] * len(graphs)  # of a tuple less
        self.later_slope = [0.0] * len(graphs)
        for output in range(len(graphs)):
            self._set_piece(output, 0)
        self._told = [(0.0, 0.0, 0.0)] * count  # the weights that those before it have heard of
        self.loss, self.gain = [0.0] * count, [0.0] * count  # of a tuple less that leaves, at the slopes of now
        self.later = [0.0] * count  # the same at the slopes to come
        self._version = [0] * count
        self._due: list[tuple[float, float, float, int, int]] = []

    def run(self) -> None:
        for i in reversed(range(len(self.after))):
            self._weigh(i)
            self._told[i] = self.loss[i], self.later[i], self.gain[i]
        self._due = [self._entry(i) for i in range(len(self.after)) if self._may_move(i)]
        heapify(self._due)
        left = MOVES_A_PLACE * (len(self.after) + 1)
        while self._due:
            *_, place, version = heappop(self._due)
            if version != self._version[place] or not self._may_move(place):
                continue
            if not left:
                self.is_cut_short = True
                return
            left -= 1
            self._move(place)

    # -- weighing -----------------------------------------------------------------------------------------------------

    def _weigh(self, i: int) -> None:
        """What a tuple less that leaves this place loses and gains behind it."""
        loss, later, gain = 0.0, 0.0, self.after[i].cost_ns
        for output, part in self._ends[i]:
            loss += part * self.slope[output]
            later += part * self.later_slope[output]
        losses, laters, gains = self.loss, self.later, self.gain
        passed_on, ride = self.passed_on, self.ride
        for child, tuples in self._children[i]:
            worth = tuples * passed_on[child]
            if worth:
                loss += worth * losses[child]
                later += worth * laters[child]
                gain += tuples * ride[child] * gains[child]
        losses[i], laters[i], gains[i] = loss, later, gain

    def _entry(self, i: int) -> tuple[float, float, float, int, int]:
        """Least loss over gain first, then least of what is lost later; of equals the one that gains more at once."""
        each = self.worth[i][self.cell[i]].worth / self.gain[i]
        return self.loss[i] * each, self.later[i] * each, -self.gain[i] * float(self.left[i]), i, self._version[i]

    def _may_move(self, i: int) -> bool:
        return self.gain[i] > DROP_NS and bool(self.left[i] > CLOSE * self.full[i])

    def _changed(self, places: set[int]) -> None:
        """Weigh these again, from the last to the first, and as far up as it makes a difference."""
        due = [-i for i in places]
        heapify(due)
        seen = set(places)
        while due:
            i = -heappop(due)
            self._weigh(i)
            if i not in places and self._is_slight(i):
                continue
            self._told[i] = self.loss[i], self.later[i], self.gain[i]
            self._version[i] += 1
            if self._may_move(i):
                heappush(self._due, self._entry(i))
            for parent in self._parents[i]:
                if parent not in seen:
                    seen.add(parent)
                    heappush(due, -parent)

    def _is_slight(self, i: int) -> bool:
        """Whether its weights are nearly what those before it have heard."""
        loss, later, gain = self._told[i]
        return (
            abs(self.loss[i] - loss) <= SLIGHT * loss
            and abs(self.gain[i] - gain) <= SLIGHT * gain
            and abs(self.later[i] - later) <= SLIGHT * later
        )

    # -- moving -------------------------------------------------------------------------------------------------------

    def _move(self, place: int) -> None:
        """Down to the next event."""
        rates = self._rates(place)
        far, events = self._next_events(place, rates)
        if far > 0:
            shown = [place, *rates.narrow]
            before = [(float(self.reach[i]), float(self.left[i])) for i in shown]
            self.delivered[rates.outputs] -= far * rates.worth
            self.reach[rates.places] -= far * rates.reach
            self.left[rates.riders] = rates.ride * self.reach[rates.riders]
            self.left[place] -= far
            after = [(float(self.reach[i]), float(self.left[i])) for i in shown]
            flows = [(i, *b, *a) for i, b, a in zip(shown, before, after, strict=True)]
            lost = zip(rates.outputs.tolist(), rates.worth.tolist(), strict=True)
            loss = sum(worth * self.slope[output] for output, worth in lost)
            self.moves.append(Move(place, rates.saved_ns * far, loss * far, flows))
        self._settle(place, events)

    def _rates(self, place: int) -> Rates:
        reach: dict[int, float] = {}
        worth: dict[int, float] = {}
        saved_ns = 0.0
        due = [place]
        while due:
            i = heappop(due)
            if i == place:
                leaves, worths = 1.0, self.worth[i][self.cell[i]].worth
            else:
                leaves, worths = reach[i] * self.ride[i], reach[i] * self.passed_on[i]
            saved_ns += leaves * self.after[i].cost_ns
            for output, tuples in self.after[i].outputs.items() if worths else ():
                worth[output] = worth.get(output, 0.0) + tuples * worths
            for child, tuples in self._children[i] if leaves else ():
                if child not in reach:
                    heappush(due, child)
                    reach[child] = tuples * leaves
                else:
                    reach[child] += tuples * leaves
        riders = [i for i in reach if self.ride[i]]
        return Rates(
            saved_ns,
            np.fromiter(worth, np.intp, len(worth)),
            np.fromiter(worth.values(), np.float64, len(worth)),
            np.fromiter(reach, np.intp, len(reach)),
            np.fromiter(reach.values(), np.float64, len(reach)),
            np.array(riders, np.intp),
            np.array([self.ride[i] for i in riders]),
            [i for i in reach if not self.ride[i]],
        )

    def _next_events(self, place: int, rates: Rates) -> tuple[float, list[tuple[str, int]]]:
        """How far it goes, and what happens there."""
        left, cell = float(self.left[place]), self.worth[place][self.cell[place]]
        events: list[tuple[float, str, int]] = [(left, "empty", place)]
        if cell.to > 0:
            events.append((max(0.0, left - cell.to * float(self.reach[place])), "cell", place))
        by = dict(zip(rates.places.tolist(), rates.reach.tolist(), strict=True)) if rates.narrow else {}
        for i in rates.narrow:  # its share of what reaches it grows
            most = (self.worth[i][self.cell[i] - 1] if self.cell[i] else OPEN).to
            events.append((max(0.0, float(self.reach[i] - self.left[i] / most)) / by[i], "wide", i))
        ends = self.corner[rates.outputs]
        until = np.maximum(self.delivered[rates.outputs] - ends, 0.0) / rates.worth
        until[ends <= 0] = np.inf
        far = min(min(e[0] for e in events), float(until.min()) if len(until) else np.inf)
        near = far + CLOSE * max(self.full[place], 1e-300)
        corners = [("corner", o) for o in rates.outputs[until <= near].tolist()]
        return far, [(kind, number) for at, kind, number in events if at <= near] + corners

    def _settle(self, place: int, events: list[tuple[str, int]]) -> None:
        changed: set[int] = {place}
        ride = self.ride[place]
        shaped: set[int] = set()
        if ride and self.left[place] < ride * self.reach[place] * (1 - CLOSE):
            self._get_off(place)
            shaped.add(place)
        for kind, number in events:
            if kind == "empty":
                self.left[place] = 0.0
            elif kind == "cell":
                cell = self.worth[place][self.cell[place]]
                self.cell[place] = min(self.cell[place] + 1, len(self.worth[place]) - 1)
                self._get_on(place, cell)
                shaped.add(place)
            elif kind == "corner":
                self._set_piece(number, min(self.piece[number] + 1, len(self.graphs[number]) - 1))
                changed.update(self._before_output[number])
            else:
                cell = self.worth[number][self.cell[number] - 1] if self.cell[number] else OPEN
                self._get_on(number, cell)
                self.left[number] = cell.to * self.reach[number]
                shaped.add(number)
        changed.update(shaped, *(self._parents[i] for i in shaped))
        self._changed(changed)

    def _set_piece(self, output: int, piece: int) -> None:
        """Where its delivery now is on its loss graph."""
        graph, whole = self.graphs[output][piece:], self.whole[output]
        self.piece[output], self.corner[output] = piece, graph[0].to * whole
        if whole > 0:
            self.slope[output], self.later_slope[output] = graph[0].slope / whole, _next_slope(graph) / whole

    def _get_on(self, place: int, cell: Cell) -> None:
        """It has given up all of this cell: from here on it rides."""
        self.ride[place], self.passed_on[place] = cell.to, cell.apart + cell.worth * cell.to

    def _get_off(self, place: int) -> None:
        """It is the narrower one, and only has less to choose from."""
        self.ride[place], self.passed_on[place] = 0.0, self.worth[place][self.cell[place]].apart


def _next_slope(graph: Sequence[Piece]) -> float:
    """Where it next falls; of its first piece where that falls."""
    return next((piece.slope for piece in graph if piece.slope > 0), 0.0)
