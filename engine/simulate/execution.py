"""What a worker does with a plan (``engine/executable.py``: box after box, trains handed on without a queue where the
next box is in the plan), done on counts: a box call costs a + b*n, and its results leave when it is over.

Selectivities are exact and without chance, as the universal box has them: of the first k tuples floor(k * selectivity)
pass. So is what a drop on an arc keeps (``drops``).

The usual plan is a line of boxes that hand everything on to the next one. It is run at a stroke, unless somebody wants
to know what each box did (``is_counted``: the monitor of a simulation that sheds) or something is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from math import floor
from typing import NamedTuple

from catalog.network import Network
from catalog.stats import Statistics
from engine.simulate.drops import Drops
from engine.simulate.measure import Recorder
from engine.simulate.overheads import Overheads, Totals
from engine.simulate.storage import SimulatedTrain, join
from scheduler.loop import Claim
from storage.queue import COALESCE_BELOW

JOINED_TUPLES = 4 * COALESCE_BELOW  # storage joins short trains up to about this many tuples: one box call each


class BoxCounts:
    """What each box did so far, where it is counted."""

    def __init__(self, boxes: int, ports: int, outputs: int) -> None:
        self.calls = [0] * boxes
        self.tuples_in = [0] * boxes
        self.cost_ns = [0.0] * boxes
        self.out = [0] * ports  # by flat port
        self.emitted = [0] * outputs


class Ran(NamedTuple):
    """A plan, once it is reckoned: when it is over, and until when it holds Python's lock: the work on its tuples, for
    which it needs none, is taken as done at the end."""

    end_ns: int
    lock_ns: int


Port = tuple[float, tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""Selectivity, and the arcs: handed on within the plan, put on a queue, delivered."""

CompiledStep = tuple[int, tuple[int, ...], tuple[Port, ...]]
"""Box, the arcs it takes from, its ports."""


class Line(NamedTuple):
    """A plan whose boxes hand everything on to the next one: the usual plan, and it needs no inbox."""

    arc: int  # that the first box takes from
    boxes: tuple[tuple[int, float, float, float], ...]  # box, ns a call with its overhead, ns a tuple, selectivity
    queued: tuple[int, ...]  # where the last box puts tuples
    outputs: tuple[int, ...]


Effect = tuple[int, tuple[int, ...], int, SimulatedTrain]
"""When, the arcs that a train is put on or (where there are none) the output that it is delivered to, and the train."""

Put = Callable[[int, tuple[int, ...], SimulatedTrain], None]
"""At this time a train is put on these arcs."""


class Execution:
    """Owner: the simulation."""

    def __init__(
        self,
        network: Network,
        statistics: Statistics,
        overheads: Overheads,
        recorders: Sequence[Recorder],
        put: Put,
    ) -> None:
        self.network = network
        self.overheads = overheads
        self.totals = Totals()
        self.drops = Drops(len(network.arcs))
        self.counts = BoxCounts(len(network.boxes), len(statistics.port_box), len(network.outputs))
        self.is_counted = False
        self.effects: list[Effect] | None = None  # what comes of a plan, where its end is not known yet
        self._recorders = recorders
        self._put = put
        self._puts = 0  # trains that the running plan has put on queues
        self._stretch = 1.0
        self._call_ns: list[float] = statistics.cost_per_call_ns.tolist()
        self.tuple_ns: Sequence[float] = statistics.cost_per_tuple_ns.tolist()
        self._selectivity: list[float] = statistics.port_selectivity.tolist()
        self._port_start: list[int] = statistics.port_start.tolist()
        self._output_of = [-1 if a.output is None else a.output for a in network.arcs]
        self._seen = [0] * len(network.boxes)  # tuples that each box has taken
        self._compiled: dict[tuple[int, ...], tuple[CompiledStep, ...]] = {}
        self._lines: dict[tuple[int, ...], Line | None] = {}

    def run(self, boxes: tuple[int, ...], claims: Mapping[int, Claim], begun_ns: float, stretch: float = 1.0) -> Ran:
        """A plan that a worker or the I/O thread begins now; what it cost to decide on it comes first. Work on tuples
        takes ``stretch`` times as long where there are fewer cores than threads."""
        costs, totals = self.overheads, self.totals
        self._stretch = stretch
        claim_ns = costs.claim_ns * len(claims)
        totals.plans += 1
        totals.scheduler_ns += costs.step_ns
        totals.storage_ns += claim_ns
        totals.worker_ns += costs.plan_ns
        begun_ns += costs.step_ns + costs.plan_ns + claim_ns
        if not self.is_counted:
            try:
                line = self._lines[boxes]
            except KeyError:
                line = self._lines[boxes] = self._as_line(boxes)
            if line is not None and len(claims) == 1 and line.arc in claims:
                return self._run_line(line, claims[line.arc].trains, begun_ns)  # type: ignore[arg-type]
        inbox: dict[int, list[SimulatedTrain]] = {a: c.trains for a, c in claims.items()}  # type: ignore[misc]
        return self._run_steps(boxes, inbox, {a for a, c in claims.items() if not c.emptied}, begun_ns)

    def run_short(self, boxes: tuple[int, ...], arcs: tuple[int, ...], train: SimulatedTrain, begun_ns: float) -> Ran:
        """The short way: no queue and no decision."""
        self._stretch = 1.0
        self.totals.plans += 1
        self.totals.worker_ns += self.overheads.short_ns
        return self._run_steps(boxes, {a: [train] for a in arcs}, set(), begun_ns + self.overheads.short_ns)

    def _run_line(self, line: Line, taken: list[SimulatedTrain], now_ns: float) -> Ran:
        totals, seen = self.totals, self._seen
        if not taken:
            train, calls = SimulatedTrain(0, 0, 0, 0), 0
        else:
            train, calls = (taken[0], 1) if len(taken) == 1 else join_for_call(taken)
        count = train.count
        own_ns = tuples_ns = 0.0
        all_calls = 0
        for box, call_ns, tuple_ns, selectivity in line.boxes:
            if not calls:
                break
            own_ns += calls * call_ns
            tuples_ns += count * tuple_ns
            all_calls += calls
            calls = 1
            if selectivity != 1.0:
                before = seen[box]
                seen[box] = after = before + count
                count = int(after * selectivity) - int(before * selectivity)
                if not count:
                    break
        tuples_ns *= self._stretch
        now_ns += own_ns + tuples_ns
        if count:
            out = train if count == train.count else train.with_count(count)
            if line.queued:
                now_ns += self.overheads.claim_ns
                totals.storage_ns += self.overheads.claim_ns
                self._put_on(line.queued, out, now_ns)
            for output in line.outputs:
                self._deliver(output, out, now_ns)
        calls_ns = self.overheads.call_ns * all_calls
        totals.calls += all_calls
        totals.worker_ns += calls_ns
        totals.box_ns += own_ns - calls_ns + tuples_ns / self._stretch
        return Ran(int(now_ns), int(now_ns - tuples_ns))

    def _as_line(self, boxes: tuple[int, ...]) -> Line | None:
        steps = self._compile(boxes)
        if any(len(in_arcs) != 1 or len(ports) != 1 for _, in_arcs, ports in steps):
            return None
        for (_, _, ((_, bypass, queued, ends),)), (_, in_arcs, _) in pairwise(steps):
            if bypass != in_arcs or queued or ends:
                return None
        call_ns = self.overheads.call_ns
        _, _, ((_, bypass, queued, ends),) = steps[-1]
        assert not bypass
        each = tuple((b, self._call_ns[b] + call_ns, self.tuple_ns[b], ports[0][0]) for b, _, ports in steps)
        return Line(steps[0][1][0], each, queued, tuple(self._output_of[a] for a in ends))

    def _run_steps(
        self, boxes: tuple[int, ...], inbox: dict[int, list[SimulatedTrain]], cut: set[int], now_ns: float
    ) -> Ran:
        steps = self._compiled.get(boxes)
        if steps is None:
            steps = self._compiled[boxes] = self._compile(boxes)
        call_ns = self.overheads.call_ns
        box_ns = free_ns = 0.0
        all_calls = self._puts = 0
        for box, in_arcs, ports in steps:
            if len(in_arcs) == 1:
                taken = inbox.pop(in_arcs[0], None)
            else:
                taken = [t for a in in_arcs if a in inbox for t in inbox.pop(a)]
            if not taken:
                continue
            train, calls = (taken[0], 1) if len(taken) == 1 else join_for_call(taken)
            all_calls += calls
            own_ns, tuples_ns = calls * self._call_ns[box], train.count * self.tuple_ns[box]
            box_ns += own_ns + tuples_ns
            free_ns += tuples_ns * self._stretch
            now_ns += own_ns + calls * call_ns + tuples_ns * self._stretch
            if self.is_counted:
                counts = self.counts
                counts.calls[box] += calls
                counts.tuples_in[box] += train.count
                counts.cost_ns[box] += own_ns + tuples_ns
            now_ns = self._emit(box, ports, train, now_ns, inbox, cut)
        for arc, left in inbox.items():  # reached a box after its last turn in this plan
            for train in left:
                self._put_on((arc,), train, now_ns)
        totals = self.totals
        totals.calls += all_calls
        totals.storage_ns += self.overheads.claim_ns * self._puts
        totals.worker_ns += call_ns * all_calls
        totals.box_ns += box_ns
        return Ran(int(now_ns), int(now_ns - free_ns))

    def _emit(
        self,
        box: int,
        ports: tuple[Port, ...],
        train: SimulatedTrain,
        now_ns: float,
        inbox: dict[int, list[SimulatedTrain]],
        cut: set[int],
    ) -> float:
        """Send on what the box lets through; the time after that."""
        count = train.count
        seen = self._seen[box]
        self._seen[box] = seen + count
        kept = self.drops.kept
        for number, (selectivity, bypass, queued, ends) in enumerate(ports, self._port_start[box]):
            out = train
            if selectivity != 1.0:
                passed = floor((seen + count) * selectivity) - floor(seen * selectivity)
                if not passed:
                    continue
                out = train.with_count(passed)
            self.counts.out[number] += out.count
            if kept and not kept.keys().isdisjoint((*bypass, *queued, *ends)):
                now_ns = self._send_thinned(bypass, queued, ends, out, now_ns, inbox, cut)
                continue
            for arc in bypass:
                if arc in cut:
                    queued = (*queued, arc)
                elif arc in inbox:
                    inbox[arc] = [*inbox[arc], out]
                else:
                    inbox[arc] = [out]
            if queued:
                self._puts += 1
                now_ns += self.overheads.claim_ns
                self._put_on(queued, out, now_ns)
            for arc in ends:
                self._deliver(self._output_of[arc], out, now_ns)
        return now_ns

    def _send_thinned(
        self,
        bypass: tuple[int, ...],
        queued: tuple[int, ...],
        ends: tuple[int, ...],
        train: SimulatedTrain,
        now_ns: float,
        inbox: dict[int, list[SimulatedTrain]],
        cut: set[int],
    ) -> float:
        """What one arc drops its sibling keeps, so each gets a train of its own."""
        for arc in (*bypass, *queued, *ends):
            left = self.drops.thin(arc, train)
            if left is None:
                continue
            if arc in ends:
                self._deliver(self._output_of[arc], left, now_ns)
            elif arc in queued or arc in cut:
                self._puts += 1
                now_ns += self.overheads.claim_ns
                self._put_on((arc,), left, now_ns)
            else:
                inbox[arc] = [*inbox.get(arc, ()), left]
        return now_ns

    def _put_on(self, arcs: tuple[int, ...], train: SimulatedTrain, now_ns: float) -> None:
        if self.effects is None:
            self._put(int(now_ns), arcs, train)
        else:
            self.effects.append((int(now_ns), arcs, -1, train))

    def _deliver(self, output: int, train: SimulatedTrain, now_ns: float) -> None:
        self.counts.emitted[output] += train.count
        if self.effects is None:
            self._recorders[output].deliver(train, int(now_ns))
        else:
            self.effects.append((int(now_ns), (), output, train))

    def apply(self, effects: Sequence[Effect], now_ns: int, late_ns: int) -> None:
        """What has come of a plan, later by so much than was reckoned."""
        for when_ns, arcs, output, train in effects:
            if arcs:
                self._put(max(now_ns, when_ns + late_ns), arcs, train)
            else:
                self._recorders[output].deliver(train, when_ns + late_ns)

    def deliver_stream(self, arc: int, train: SimulatedTrain, now_ns: int) -> None:
        """A stream's train straight to an output."""
        left = self.drops.thin(arc, train)
        if left is not None:
            self._deliver(self._output_of[arc], left, now_ns)

    def _compile(self, boxes: tuple[int, ...]) -> tuple[CompiledStep, ...]:
        network = self.network
        later: set[int] = set()
        steps: list[CompiledStep] = []
        for box in reversed(boxes):
            node = network.boxes[box]
            ports: list[Port] = []
            for number, arcs in enumerate(node.out_arcs):
                known = [network.arcs[a] for a in arcs]
                selectivity = self._selectivity[self._port_start[box] + number]
                bypass = tuple(a.number for a in known if a.box in later)
                queued = tuple(a.number for a in known if a.box is not None and a.box not in later)
                ports.append((selectivity, bypass, queued, tuple(a.number for a in known if a.output is not None)))
            steps.append((box, node.in_arcs, tuple(ports)))
            later.add(box)
        return tuple(reversed(steps))


def join_for_call(trains: Sequence[SimulatedTrain]) -> tuple[SimulatedTrain, int]:
    """Trains taken together as one, and how many box calls they are: short ones are joined, long ones stay."""
    train = join(trains)
    if train.count <= JOINED_TUPLES:
        return train, 1
    short = sum([t.count for t in trains if t.count < COALESCE_BELOW])
    return train, sum([t.count >= COALESCE_BELOW for t in trains]) + -(-short // JOINED_TUPLES)
