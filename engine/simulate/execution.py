"""What a worker does with a plan, done on counts instead of tuples.

A worker runs box after box and hands trains on without a queue where the next box is in the plan
(``engine/run/executable``). The simulator reads the same table of the plan (``sequences``). A box call costs a + b*n,
and its results leave the box when the call is over.

Selectivities are exact and deterministic, as in the universal box: of the first k tuples floor(k * selectivity) pass.
The share that a drop on an arc keeps is exact in the same way (``drops``).

The usual plan is a line of boxes that hand everything on to the next one. A line is run in one pass, unless something
is dropped or the boxes are counted one by one (``is_counted``: for the monitor of a simulation that sheds).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import floor
from typing import NamedTuple

from catalog.network import Network
from catalog.stats import Statistics
from engine.simulate.drops import Drops
from engine.simulate.interruptible import InterruptiblePlan
from engine.simulate.overheads import Overheads, Totals
from engine.simulate.partners import partners_of, train_pairs
from engine.simulate.quality import DeliveryRecorder
from engine.simulate.sequences import Line, Sequences, SimulatedPort, SimulatedStep
from engine.simulate.storage import SimulatedTrain, join
from scheduler.claims import Claim
from scheduler.plan import Plan
from storage.queue import COALESCE_BELOW

JOINED_TUPLES = 4 * COALESCE_BELOW  # storage joins short trains up to about this many tuples: one box call each


class BoxCounts:
    """What each box has done so far, where it is counted."""

    def __init__(self, boxes: int, ports: int, outputs: int) -> None:
        self.calls = [0] * boxes
        self.tuples_in = [0] * boxes
        self.cost_ns = [0.0] * boxes
        self.out = [0] * ports  # by flat port
        self.emitted = [0] * outputs


class PlanTimes(NamedTuple):
    """When a plan, or an operator of it, is over, and until when it holds the GIL. The work on its tuples, which needs
    no GIL, counts as done at the end."""

    end_ns: int
    lock_ns: int


Effect = tuple[int, tuple[int, ...], int, SimulatedTrain]
"""A result of a plan: when, the arcs on which a train is put, the output to which it is delivered (where there are no
arcs), and the train."""

Put = Callable[[int, tuple[int, ...], SimulatedTrain], None]
"""Put a train on these arcs at this time."""


class Execution:
    """Owner: the simulation."""

    def __init__(
        self,
        network: Network,
        statistics: Statistics,
        overheads: Overheads,
        recorders: Sequence[DeliveryRecorder],
        put: Put,
        fuses: bool = True,
    ) -> None:
        self.overheads = overheads
        self.totals = Totals()
        self.drops = Drops(len(network.arcs))
        self.counts = BoxCounts(len(network.boxes), len(statistics.port_box), len(network.outputs))
        self.is_counted = False
        self.effects: list[Effect] | None = None  # results of a plan whose end is not known yet
        self.tuple_ns: Sequence[float] = statistics.cost_per_tuple_ns.tolist()
        self._call_ns: list[float] = statistics.cost_per_call_ns.tolist()
        self._port_start: list[int] = statistics.port_start.tolist()
        self._sequences = Sequences(network, statistics, overheads.call_ns, fuses)
        self._recorders = recorders
        self._put = put
        self._puts = 0  # trains that the running plan has put on queues
        self._stretch = 1.0
        self._output_of = [-1 if a.output is None else a.output for a in network.arcs]
        self._seen = [0] * len(network.boxes)  # tuples that each box has taken
        self.partners = partners_of(network, statistics)

    def run(
        self, boxes: tuple[int, ...], claims: Mapping[int, Claim], begun_ns: float, stretch: float = 1.0
    ) -> PlanTimes:
        """Run a plan that a worker or the I/O thread begins now. The cost of deciding on it comes first.

        Work on tuples takes ``stretch`` times as long where there are more threads than cores.
        """
        self._stretch = stretch
        begun_ns += self._decided(claims)
        if not self.is_counted:
            line = self._sequences.line(boxes)
            if line is not None and len(claims) == 1 and line.arc in claims:
                return self._run_line(line, claims[line.arc].trains, begun_ns)  # type: ignore[arg-type]
        inbox: dict[int, list[SimulatedTrain]] = {a: c.trains for a, c in claims.items()}  # type: ignore[misc]
        backlogged = {a for a, c in claims.items() if not c.emptied}
        return self._run_all(self._sequences.steps(boxes), inbox, backlogged, begun_ns)

    def open(self, plan: Plan, claims: Mapping[int, Claim], begun_ns: float) -> InterruptiblePlan:
        """Return a plan that is run by ``run_operator``, because it may end between two operators."""
        return InterruptiblePlan(plan, claims, self._sequences.operators(plan.boxes), begun_ns)

    def run_operator(self, run: InterruptiblePlan, now_ns: float, stretch: float = 1.0) -> PlanTimes:
        """Run the next operator of a plan. The cost of deciding on the plan comes before the first one."""
        self._stretch = stretch
        if run.is_new:
            now_ns += self._decided(run.claims)
        return self._run_steps(run.next_operator(), run.inbox, run.backlogged, now_ns)

    def _decided(self, claims: Mapping[int, Claim]) -> float:
        """Count the cost of deciding on a plan, taking its trains and handing it to a worker; return it."""
        costs, totals = self.overheads, self.totals
        claim_ns = costs.claim_ns * len(claims)
        totals.plans += 1
        totals.scheduler_ns += costs.step_ns
        totals.storage_ns += claim_ns
        totals.worker_ns += costs.plan_ns
        return costs.step_ns + costs.plan_ns + claim_ns

    def run_idle(
        self, boxes: tuple[int, ...], arcs: tuple[int, ...], train: SimulatedTrain, begun_ns: float
    ) -> PlanTimes:
        """Run a train on the idle fast path: no queue and no decision."""
        self._stretch = 1.0
        self.totals.plans += 1
        self.totals.worker_ns += self.overheads.idle_path_ns
        steps, inbox = self._sequences.steps(boxes), {a: [train] for a in arcs}
        return self._run_all(steps, inbox, set(), begun_ns + self.overheads.idle_path_ns)

    def _run_line(self, line: Line, taken: list[SimulatedTrain], now_ns: float) -> PlanTimes:
        """Run a line of boxes in one pass: add up the costs, deliver once at the end."""
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
        return PlanTimes(int(now_ns), int(now_ns - tuples_ns))

    def _run_all(
        self, steps: Sequence[SimulatedStep], inbox: dict[int, list[SimulatedTrain]], nonempty: set[int], now_ns: float
    ) -> PlanTimes:
        """Run any plan, step by step."""
        times = self._run_steps(steps, inbox, nonempty, now_ns)
        for arc, left in inbox.items():  # reached a box after its last step in this plan
            for train in left:
                self._put_on((arc,), train, times.end_ns)
        return times

    def _run_steps(
        self, steps: Sequence[SimulatedStep], inbox: dict[int, list[SimulatedTrain]], nonempty: set[int], now_ns: float
    ) -> PlanTimes:
        """Run these steps of a plan. ``nonempty``: arcs whose queue was not emptied by the claims; a train that
        bypassed such a queue would overtake the tuples on it, so it is put on the queue."""
        call_ns = self.overheads.call_ns
        box_ns = free_ns = 0.0
        all_calls = self._puts = 0
        for box, in_arcs, ports in steps:
            pairs = None
            if len(in_arcs) == 1:
                taken = inbox.pop(in_arcs[0], None)
            else:
                if (partners := self.partners.get(box)) is not None:
                    pairs = train_pairs(partners, in_arcs, inbox)
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
            now_ns = self._emit(box, ports, train, pairs, now_ns, inbox, nonempty)
        totals = self.totals
        totals.calls += all_calls
        totals.storage_ns += self.overheads.claim_ns * self._puts
        totals.worker_ns += call_ns * all_calls
        totals.box_ns += box_ns
        return PlanTimes(int(now_ns), int(now_ns - free_ns))

    def _emit(
        self,
        box: int,
        ports: tuple[SimulatedPort, ...],
        train: SimulatedTrain,
        pairs: int | None,
        now_ns: float,
        inbox: dict[int, list[SimulatedTrain]],
        nonempty: set[int],
    ) -> float:
        """Send on the tuples that the box lets through, of a join its ``pairs``. Return the time after that."""
        count = train.count
        seen = self._seen[box]
        self._seen[box] = seen + count
        kept = self.drops.kept
        for number, port in enumerate(ports, self._port_start[box]):
            selectivity, handed_on, queued, delivered = port
            out = train
            if pairs is not None:
                if not pairs:
                    continue
                out = train.with_count(pairs)
            elif selectivity != 1.0:
                passed = floor((seen + count) * selectivity) - floor(seen * selectivity)
                if not passed:
                    continue
                out = train.with_count(passed)
            self.counts.out[number] += out.count
            if kept and not kept.keys().isdisjoint((*handed_on, *queued, *delivered)):
                now_ns = self._send_thinned(port, out, now_ns, inbox, nonempty)
                continue
            for arc in handed_on:
                if arc in nonempty:
                    queued = (*queued, arc)
                elif arc in inbox:
                    inbox[arc] = [*inbox[arc], out]
                else:
                    inbox[arc] = [out]
            if queued:
                self._puts += 1
                now_ns += self.overheads.claim_ns
                self._put_on(queued, out, now_ns)
            for arc in delivered:
                self._deliver(self._output_of[arc], out, now_ns)
        return now_ns

    def _send_thinned(
        self,
        port: SimulatedPort,
        train: SimulatedTrain,
        now_ns: float,
        inbox: dict[int, list[SimulatedTrain]],
        nonempty: set[int],
    ) -> float:
        """Send on a train of which arcs drop a part. What one arc drops its sibling keeps: each gets its own train."""
        for arc in (*port.handed_on, *port.queued, *port.delivered):
            left = self.drops.thin(arc, train)
            if left is None:
                continue
            if arc in port.delivered:
                self._deliver(self._output_of[arc], left, now_ns)
            elif arc in port.queued or arc in nonempty:
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
        """Apply the results of a plan that ended ``late_ns`` later than was computed."""
        for when_ns, arcs, output, train in effects:
            if arcs:
                self._put(max(now_ns, when_ns + late_ns), arcs, train)
            else:
                self._recorders[output].deliver(train, when_ns + late_ns)

    def deliver_stream(self, arc: int, train: SimulatedTrain, now_ns: int) -> None:
        """Deliver a stream's train straight to an output."""
        left = self.drops.thin(arc, train)
        if left is not None:
            self._deliver(self._output_of[arc], left, now_ns)


def join_for_call(trains: Sequence[SimulatedTrain]) -> tuple[SimulatedTrain, int]:
    """Join trains that a box takes together into one. Return it and the number of box calls: short trains share one."""
    train = join(trains)
    if train.count <= JOINED_TUPLES:
        return train, 1
    short = sum([t.count for t in trains if t.count < COALESCE_BELOW])
    return train, sum([t.count >= COALESCE_BELOW for t in trains]) + -(-short // JOINED_TUPLES)
