"""The walk down the road map: from nothing shed to all that may be, always by the move of least loss over gain.

Loss and gain of a move are constant until something happens: an output comes to a corner of its loss graph, a place
runs empty or comes to tuples of more worth, or a place behind it is no longer the narrower one. Then those that lead
there are weighed again, and nobody else: on a network of chains a move touches one place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
CLOSE = 1e-9  # two events within this share of a flow are one


class Move(NamedTuple):
    """One place goes further down; what flows at the places behind it changes along."""

    place: int  # by index
    saved_ns: float
    loss: float
    flows: list[tuple[int, float, float, float, float]]  # place: reach and leave it before, reach and leave it after


class Rates(NamedTuple):
    """For a tuple less that leaves a place: how much less there is behind it."""

    outputs: Index
    worth: Floats  # by output
    places: Index
    reach: Floats  # by place; the ones that drop nothing let as much less leave
    open: Index  # those among the places
    narrow: list[int]  # and the others


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
        self.is_open = [True] * count  # drops nothing: what reaches it leaves it
        self.cell = [0] * count
        self.piece = [0] * len(graphs)
        self.corner = np.array([g[0].to * w for g, w in zip(graphs, whole, strict=True)])  # where the piece ends
        self.moves: list[Move] = []
        self.is_cut_short = False
        self._above_place = _ancestors([s.places for s in segments.after], count)
        self._above_output = _ancestors([s.outputs for s in segments.after], len(graphs), self._above_place)
        self.loss, self.gain = [0.0] * count, [0.0] * count  # of a tuple less that leaves, at the slopes of now
        self._version = [0] * count
        self._due: list[tuple[float, float, int, int]] = []
        self._rates_of: dict[int, Rates] = {}

    def run(self) -> None:
        for i in reversed(range(len(self.after))):
            self._weigh(i)
        self._due = [self._entry(i) for i in range(len(self.after)) if self._may_move(i)]
        heapify(self._due)
        left = MOVES_A_PLACE * (len(self.after) + 1)
        while self._due:
            _, _, place, version = heappop(self._due)
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
        segment, loss, gain = self.after[i], 0.0, self.after[i].cost_ns
        for output, tuples in segment.outputs.items():
            if self.whole[output] > 0:
                loss += tuples * self.graphs[output][self.piece[output]].slope / self.whole[output]
        for child, tuples in segment.places.items():
            if self.is_open[child]:
                loss += tuples * self.loss[child]
                gain += tuples * self.gain[child]
            else:  # the narrower one: it only has less to choose from
                loss += tuples * self.loss[child] * self.worth[child][self.cell[child]].apart
        self.loss[i], self.gain[i] = loss, gain

    def _entry(self, i: int) -> tuple[float, float, int, int]:
        """Least loss over gain first; of equals the one that gains more at once."""
        own = self.loss[i] * self.worth[i][self.cell[i]].worth
        return own / self.gain[i], -self.gain[i] * float(self.left[i]), i, self._version[i]

    def _may_move(self, i: int) -> bool:
        return self.gain[i] > DROP_NS and bool(self.left[i] > CLOSE * self.full[i])

    def _changed(self, places: set[int]) -> None:
        """Weigh these and all that lead to them again, from the last to the first."""
        for i in sorted(places.union(*(self._above_place[p] for p in places)), reverse=True):
            self._weigh(i)
            self._version[i] += 1
            if self._may_move(i):
                heappush(self._due, self._entry(i))

    # -- moving -------------------------------------------------------------------------------------------------------

    def _move(self, place: int) -> None:
        """Down to the next event."""
        rates = self._rates_of.get(place)
        if rates is None:
            rates = self._rates_of[place] = self._rates(place)
        far, events = self._next_events(place, rates)
        if far > 0:
            shown = [place, *rates.narrow]
            before = [(float(self.reach[i]), float(self.left[i])) for i in shown]
            self.delivered[rates.outputs] -= far * rates.worth
            self.reach[rates.places] -= far * rates.reach
            self.left[rates.open] = self.reach[rates.open]
            self.left[place] -= far
            after = [(float(self.reach[i]), float(self.left[i])) for i in shown]
            flows = [(i, *b, *a) for i, b, a in zip(shown, before, after, strict=True)]
            own = self.loss[place] * self.worth[place][self.cell[place]].worth
            self.moves.append(Move(place, self.gain[place] * far, own * far, flows))
        self._settle(place, events)

    def _rates(self, place: int) -> Rates:
        reach: dict[int, float] = {}
        worth: dict[int, float] = {}
        due = [place]
        while due:
            i = heappop(due)
            leaves = 1.0 if i == place else reach[i] if self.is_open[i] else 0.0
            cell = self.worth[i][self.cell[i]]
            worths = cell.worth if i == place else reach[i] * (1.0 if self.is_open[i] else cell.apart)
            for output, tuples in self.after[i].outputs.items() if worths else ():
                worth[output] = worth.get(output, 0.0) + tuples * worths
            for child, tuples in self.after[i].places.items() if leaves else ():
                if child not in reach:
                    heappush(due, child)
                reach[child] = reach.get(child, 0.0) + tuples * leaves
        return Rates(
            np.fromiter(worth, np.intp, len(worth)),
            np.fromiter(worth.values(), np.float64, len(worth)),
            np.fromiter(reach, np.intp, len(reach)),
            np.fromiter(reach.values(), np.float64, len(reach)),
            np.array([i for i in reach if self.is_open[i]], np.intp),
            [i for i in reach if not self.is_open[i]],
        )

    def _next_events(self, place: int, rates: Rates) -> tuple[float, list[tuple[str, int]]]:
        """How far it goes, and what happens there."""
        left, cell = float(self.left[place]), self.worth[place][self.cell[place]]
        events: list[tuple[float, str, int]] = [(left, "empty", place)]
        if cell.to > 0:
            events.append((max(0.0, left - cell.to * float(self.reach[place])), "cell", place))
        by = dict(zip(rates.places.tolist(), rates.reach.tolist(), strict=True)) if rates.narrow else {}
        for i in rates.narrow:  # its share of what reaches it grows
            most = self.worth[i][self.cell[i] - 1].to if self.cell[i] else 1.0
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
        was_open = self.is_open[place]
        self.is_open[place] = bool(self.left[place] >= self.reach[place] * (1 - CLOSE))
        shaped = {place} if was_open != self.is_open[place] else set()
        for kind, number in events:
            if kind == "empty":
                self.left[place] = 0.0
            elif kind == "cell":
                self.cell[place] = min(self.cell[place] + 1, len(self.worth[place]) - 1)
                shaped.add(place)
            elif kind == "corner":
                self.piece[number] = min(self.piece[number] + 1, len(self.graphs[number]) - 1)
                self.corner[number] = self.graphs[number][self.piece[number]].to * self.whole[number]
                changed |= self._above_output[number]
            else:
                changed.add(number)
                shaped.add(number)
                if self.cell[number]:
                    self.cell[number] -= 1
                else:
                    self.is_open[number] = True
                    self.left[number] = self.reach[number]
        for i in shaped:
            self._rates_of.pop(i, None)
            for above in self._above_place[i]:
                self._rates_of.pop(above, None)
        self._changed(changed)


def _ancestors(
    leads: Sequence[Mapping[int, float]], count: int, above: Sequence[set[int]] | None = None
) -> list[set[int]]:
    """For each target, the places that lead to it: directly, and by way of ``above`` (or of each other)."""
    found: list[set[int]] = [set() for _ in range(count)]
    ways = found if above is None else above
    for i, targets in enumerate(leads):
        for target in targets:
            found[target] |= {i} | ways[i]
    return found
