"""Executables: a plan's sequence of boxes, compiled once into steps that a worker runs.

Compiling decides everything that follows from the sequence alone, so that no train pays for it: where the trains of
each step go (the table of ``engine/run/followers``, which the simulator reads too), and which chains run fused.

A step that calls code of users may never come back (``engine/operators/call_limits.py``). A plan with such a step runs
as a ``PlanRun``: it remembers which step and which train are under way, so that another worker can go on behind them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import count
from time import perf_counter_ns
from typing import Protocol

from catalog.network import Network, PortRef
from catalog.readings import train_bucket
from engine.operators.bounded.box import BoundedBox
from engine.operators.boxes.base import Emit
from engine.operators.call_limits import CallAbandonedError
from engine.run.followers import Followers, SequenceStep, sequence_steps
from engine.run.fuse import FusedChain, chain_length
from engine.run.runtime import BoxRuntime
from engine.run.taps import Taps, offer
from scheduler.claims import Claim
from scheduler.plan import Plan
from storage.queue import coalesce
from storage.train import NO_WATERMARK, Train

Sheds = Mapping[int, Callable[[Train], Train]]
"""By arc: a function that returns a train without the tuples that are dropped there."""

log = logging.getLogger("aurorad.worker")


class WorkerRoutes(Protocol):
    """What a worker needs of the router."""

    def enqueue(self, arcs: tuple[int, ...], train: Train) -> None: ...

    def deliver(self, output: int, train: Train) -> None: ...

    def unpin(self, arcs: Iterable[int]) -> None:
        """Free the trains that a plan has taken from these arcs: it has ended."""


class Inbox:
    """The trains that wait for the boxes of one plan while it runs."""

    __slots__ = ("backlogged", "called_ns", "claimed", "trains", "under_way")

    def __init__(self, claims: dict[int, Claim]) -> None:
        self.under_way: tuple[int, Train] | None = None  # port and train of a call that may not return
        self.called_ns = 0  # when that call began
        self.claimed = claims.keys()  # arcs, whose trains are pinned until the plan has ended
        self.trains: dict[int, list[Train]] = {a: c.trains for a, c in claims.items()}
        # Arcs whose queues were not emptied: a train that bypassed such a queue would overtake older ones.
        self.backlogged = {a for a, c in claims.items() if not c.emptied}


class Port:
    """One output port at one place in a plan. It knows where the port's trains go."""

    __slots__ = ("handed_on", "outputs", "queued", "routes", "tapped", "timed")

    def __init__(
        self, network: Network, arcs: Sequence[int], followers: Followers, routes: WorkerRoutes, taps: Taps
    ) -> None:
        self.handed_on = followers.handed_on
        self.queued = followers.queued
        self.outputs = tuple(o for a in followers.delivered if (o := network.arcs[a].output) is not None)
        self.timed = any(network.arcs[a].timed for a in arcs)
        self.tapped = tuple(watch for a in arcs for watch in taps.arcs.get(a, ()))
        self.routes = routes

    def send(self, train: Train, inbox: Inbox) -> None:
        if not train.count and not self.timed:
            return
        if self.tapped:
            offer(self.tapped, train)
        for arc in self.handed_on:
            if arc in inbox.backlogged:
                self.routes.enqueue((arc,), train)
            elif arc in inbox.trains:
                inbox.trains[arc].append(train)
            else:
                inbox.trains[arc] = [train]
        if self.queued:
            self.routes.enqueue(self.queued, train)
        if train.count:
            for output in self.outputs:
                self.routes.deliver(output, train)


class ShedPort(Port):
    """A port with drops on some of its arcs. Each arc drops on its own: a sibling may keep the same tuple."""

    __slots__ = ("ways",)

    def __init__(
        self,
        network: Network,
        arcs: Sequence[int],
        followers: Followers,
        routes: WorkerRoutes,
        taps: Taps,
        sheds: Sheds,
    ) -> None:
        super().__init__(network, arcs, followers.without(sheds), routes, taps)
        # A tap on an arc shows the tuples that are put on it, without those that are dropped there.
        self.tapped = tuple(watch for a in arcs if a not in sheds for watch in taps.arcs.get(a, ()))
        self.ways = [
            (network.arcs[a], a in followers.handed_on, sheds[a], taps.arcs.get(a, ())) for a in arcs if a in sheds
        ]

    def send(self, train: Train, inbox: Inbox) -> None:
        super().send(train, inbox)
        for arc, is_handed_on, keep, watches in self.ways:
            kept = keep(train)
            number = arc.number
            if watches:
                offer(watches, kept)
            if not kept.count and (not arc.timed or kept.watermark_ns == NO_WATERMARK):
                continue
            if arc.output is not None:
                if kept.count:
                    self.routes.deliver(arc.output, kept)
            elif is_handed_on and number not in inbox.backlogged:
                inbox.trains.setdefault(number, []).append(kept)
            else:
                self.routes.enqueue((number,), kept)


class SingleStep:
    """One box alone. Boxes with state or with several ports always run so; the others only where no chain is fused."""

    def __init__(self, runtime: BoxRuntime, ports: tuple[Port, ...], now_ns: Callable[[], int]) -> None:
        self.runtime = runtime
        self.ports = ports
        self.now_ns = now_ns
        self.arcs = runtime.node.in_arcs
        self.first = runtime.node.number  # the first box of the step
        self.merges = runtime.box.merges_inputs and len(self.arcs) > 1

    def run(self, inbox: Inbox) -> None:
        """Run the box once on everything that its feeders have left for it (P0's min cost); short trains are joined."""
        if self.merges:
            if inbox.trains.keys().isdisjoint(self.arcs):  # in a large superbox most boxes have no work
                return
            if trains := self._merged(inbox):
                for train in trains:
                    self._call(0, train, inbox)
                return
        for port, arc in enumerate(self.arcs):
            waiting = inbox.trains.pop(arc, None)
            if waiting is not None:
                for train in coalesce(waiting) if len(waiting) > 1 else waiting:
                    self._call(port, train, inbox)

    def _merged(self, inbox: Inbox) -> list[Train]:
        """Return the trains of all inputs as trains of one input.

        Empty when one of them advances event time, because a watermark belongs to its own input.
        """
        at_ns = self.runtime.port_watermarks_ns
        for port, arc in enumerate(self.arcs):
            if any(t.watermark_ns > at_ns[port] for t in inbox.trains.get(arc, ())):
                return []
        return coalesce([t for arc in self.arcs for t in inbox.trains.pop(arc, ())])

    def _call(self, port: int, train: Train, inbox: Inbox) -> None:
        runtime, box = self.runtime, self.runtime.box
        begun_ns = perf_counter_ns()
        # Emitted trains leave after the box's clock has stopped: routing and delivery are not the cost of the box.
        emitted: list[tuple[int, Train]] = []

        def emit(out_port: int, out: Train) -> None:
            emitted.append((out_port, out))

        failed = False
        try:
            if train.count:
                box.run(runtime.state, port, train, emit, runtime.tally)
            if train.watermark_ns > runtime.port_watermarks_ns[port]:
                self._advance(port, train.watermark_ns, emitted, emit)
            elif runtime.bounded is not None and not train.count:
                self._go_on(runtime.bounded, emit)
            if box.needs_clock:
                box.tick(runtime.state, self.now_ns(), emit, runtime.tally)
        except CallAbandonedError:
            raise  # another worker has gone on with the plan: this thread must touch nothing
        except BaseException:
            # A bug in a box, or in trusted Python code that it calls (``sys.exit()`` too), costs the tuples of this
            # train. They are counted, and the daemon goes on.
            log.exception("box %s failed on a train of %d tuples", runtime.node.name, train.count)
            emitted.clear()
            failed = True
        # A call is counted together with its cost, at its end. Otherwise a reading during a long call would see a call
        # without a cost.
        if train.count:
            runtime.calls += 1
            runtime.tuples_in += train.count
            runtime.train_counts[train_bucket(train.count)] += 1
            if runtime.by_input:
                came, made = runtime.by_input[port]
                runtime.by_input[port] = (came + train.count, made + sum([out.count for _, out in emitted]))
        runtime.cost_ns += perf_counter_ns() - begun_ns
        if failed:
            runtime.count_dead_after_failure()
        runtime.measure_after(train.count, advanced=train.watermark_ns != NO_WATERMARK)
        for out_port, out in emitted:
            runtime.tuples_out[out_port] += out.count
            self.ports[out_port].send(out, inbox)
        if runtime.wants_call:
            self.ports[0].routes.enqueue((self.arcs[0],), Train.empty(runtime.node.in_schemas[0]))

    def _go_on(self, box: BoundedBox, emit: Emit) -> None:
        """Let a box with state on disk go on with it. Until then its results hold back the watermark of its outputs."""
        runtime = self.runtime
        box.go_on(runtime.state, emit, runtime.tally)
        out_ns = box.out_watermark_ns(runtime.state, runtime.watermark_ns)
        if out_ns != runtime.announced_ns:
            runtime.closed_ns = box.closed_ns(runtime.state)
            self._announce(out_ns, (), emit)

    def _announce(self, out_ns: int, announced: Collection[int], emit: Emit) -> None:
        """Emit the watermark of the outputs on the ports that do not have it yet."""
        runtime = self.runtime
        runtime.announced_ns = out_ns
        for out_port, schema in enumerate(runtime.node.out_schemas):
            if self.ports[out_port].timed and out_port not in announced:
                emit(out_port, Train.empty(schema, out_ns))

    def _advance(self, port: int, watermark_ns: int, emitted: list[tuple[int, Train]], emit: Emit) -> None:
        """Advance event time on one input. The box's own event time is that of its slowest input."""
        runtime, box = self.runtime, self.runtime.box
        runtime.port_watermarks_ns[port] = watermark_ns
        lowest_ns = min(runtime.port_watermarks_ns)
        if lowest_ns <= runtime.watermark_ns:
            return
        runtime.watermark_ns = lowest_ns
        box.advance(runtime.state, lowest_ns, emit, runtime.tally)
        runtime.closed_ns = lowest_ns if runtime.bounded is None else runtime.bounded.closed_ns(runtime.state)
        out_ns = box.out_watermark_ns(runtime.state, lowest_ns)
        self._announce(out_ns, {out_port for out_port, out in emitted if out.watermark_ns >= out_ns}, emit)


class LimitedStep(SingleStep):
    """A box that calls code of users. The trains that it has not taken yet stay in the inbox: see ``give_up``."""

    def run(self, inbox: Inbox) -> None:
        for port, arc in enumerate(self.arcs):
            waiting = inbox.trains.pop(arc, None)
            left = [] if waiting is None else coalesce(waiting)
            while left:
                train, left = left[0], left[1:]
                inbox.trains[arc] = left
                inbox.under_way, inbox.called_ns = (port, train), perf_counter_ns()
                self._call(port, train, inbox)
                inbox.under_way = None
            inbox.trains.pop(arc, None)

    def give_up(self, inbox: Inbox) -> None:
        """Count the train of a call that does not return as dead. On the worker that goes on with the plan."""
        assert inbox.under_way is not None
        runtime = self.runtime
        port, train = inbox.under_way
        inbox.under_way = None
        runtime.box.give_up(runtime.state)
        runtime.calls += 1
        runtime.tuples_in += train.count
        runtime.train_counts[train_bucket(train.count)] += 1
        runtime.cost_ns += perf_counter_ns() - inbox.called_ns
        runtime.tally.dead += train.count
        log.error(
            "box %s: a call does not return; its %d tuples are dead, and so are all that follow until a restart",
            runtime.node.name,
            train.count,
        )
        self._call(port, Train.empty(train.schema, train.watermark_ns), inbox)  # event time goes on


class FusedStep:
    """A chain of filters and maps in one pass. While a queue inside it has a backlog, the boxes run one by one."""

    def __init__(self, singles: tuple[SingleStep, ...]) -> None:
        self.singles = singles
        self.chain = FusedChain([s.runtime for s in singles])
        self.arcs = tuple(s.arcs[0] for s in singles)
        self.inner = frozenset(self.arcs[1:])
        self.port = singles[-1].ports[0]
        self.first = singles[0].first

    def run(self, inbox: Inbox) -> None:
        if not inbox.backlogged.isdisjoint(self.inner):
            for single in self.singles:
                single.run(inbox)
            return
        if len(inbox.trains) == 1 and (trains := inbox.trains.pop(self.arcs[0], None)):  # the usual case
            self._call(0, trains, inbox)
            return
        # From the end to the start: a train that waits further down is older and must come out first.
        for stage in range(len(self.arcs) - 1, -1, -1):
            if trains := inbox.trains.pop(self.arcs[stage], None):
                self._call(stage, trains, inbox)

    def _call(self, stage: int, trains: list[Train], inbox: Inbox) -> None:
        try:
            joined = coalesce(trains) if len(trains) > 1 else trains
            self.chain.run(stage, joined, lambda out: self.port.send(out, inbox))
        except BaseException:
            # As for one box: a bug costs the tuples of these trains. They are counted, and the daemon goes on.
            log.exception("fused chain %s failed", [s.runtime.node.name for s in self.singles])
            for single in self.singles[stage:]:
                single.runtime.count_dead_after_failure()


class Executable:
    """A compiled sequence of boxes."""

    def __init__(self, steps: tuple[SingleStep | FusedStep, ...], routes: WorkerRoutes) -> None:
        self.steps = steps
        self.routes = routes
        self.is_limited = any(isinstance(step, LimitedStep) for step in steps)

    def open(self, claims: dict[int, Claim]) -> Inbox:
        """Return the inbox of one run."""
        return Inbox(claims)

    def run(self, claims: dict[int, Claim], plan: Plan | None = None) -> None:
        inbox = self.open(claims)
        if plan is None or plan.priorities is None:
            for step in self.steps:
                step.run(inbox)
        else:
            plan.is_begun = True
            for step in self.steps:
                if is_outranked(plan, step, inbox):
                    break
                step.run(inbox)
        self.finish(inbox)

    def finish(self, inbox: Inbox) -> None:
        for arc, trains in inbox.trains.items():  # they reached a box after its last step in this plan
            for train in trains:
                self.routes.enqueue((arc,), train)
        self.routes.unpin(inbox.claimed)


def is_outranked(plan: Plan, step: SingleStep | FusedStep, inbox: Inbox) -> bool:
    """Return whether a box of higher priority than the next one waits, and the plan can end here: the tuples that are
    left then go on the queues of their arcs.

    Tuples that were taken from a queue must reach their box first. Behind newer tuples they would be out of order.
    """
    assert plan.priorities is not None
    return plan.rival > plan.priorities[step.first] and inbox.claimed.isdisjoint(inbox.trains)


class PlanRun:
    """A plan with a step that may not return. Owner: the worker that runs it; then the one that takes it over."""

    def __init__(self, plan: Plan, executable: Executable, claims: dict[int, Claim]) -> None:
        self.plan = plan
        self.begun_ns = perf_counter_ns()
        self._executable = executable
        self._inbox = executable.open(claims)
        self._at = 0  # the step that is under way

    def go_on(self) -> None:
        """Run the steps from the one that is under way on."""
        self.plan.is_begun = True
        steps = self._executable.steps
        while self._at < len(steps):
            if self.plan.priorities is not None and is_outranked(self.plan, steps[self._at], self._inbox):
                break
            steps[self._at].run(self._inbox)
            self._at += 1
        self._executable.finish(self._inbox)

    def give_up_call(self) -> None:
        """Count the train of the call that does not return as dead. ``go_on`` takes the rest."""
        step = self._executable.steps[self._at]
        assert isinstance(step, LimitedStep)
        step.give_up(self._inbox)


def compile_sequence(
    network: Network,
    runtimes: Sequence[BoxRuntime],
    boxes: tuple[int, ...],
    routes: WorkerRoutes,
    taps: Taps,
    now_ns: Callable[[], int],
    sheds: Sheds | None = None,
) -> Executable:
    """Compile these boxes, in this order, with the taps and drops that exist now."""
    dropped: Sheds = sheds or {}
    table = sequence_steps(network, boxes)
    singles = [
        (LimitedStep if runtimes[step.box].box.calls_users else SingleStep)(
            runtimes[step.box], compile_ports(network, step, routes, taps, dropped), now_ns
        )
        for step in table
    ]
    kept = {arc for ref in taps.kept if ref.box is not None for arc in network.boxes[ref.box].out_arcs[ref.port]}
    unfused = taps.arcs.keys() | dropped.keys() | kept  # arcs that must carry trains of their own
    steps: list[SingleStep | FusedStep] = []
    i = 0
    while i < len(singles):
        length = chain_length(network, table, i, unfused)
        steps.append(FusedStep(tuple(singles[i : i + length])) if length > 1 else singles[i])
        i += length
    return Executable(tuple(steps), routes)


def compile_ports(
    network: Network, step: SequenceStep, routes: WorkerRoutes, taps: Taps, dropped: Sheds
) -> tuple[Port, ...]:
    """Return the output ports of a box at its place in a plan."""

    def port(number: int, arcs: Sequence[int], followers: Followers) -> Port:
        if dropped.keys().isdisjoint(arcs):
            made = Port(network, arcs, followers, routes, taps)
        else:
            made = ShedPort(network, arcs, followers, routes, taps, dropped)
        if (keep := taps.kept.get(PortRef(box=step.box, port=number))) is not None:
            made.tapped, made.timed = (keep, *made.tapped), True
        return made

    return tuple(map(port, count(), network.boxes[step.box].out_arcs, step.ports))
