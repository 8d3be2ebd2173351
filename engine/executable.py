"""From a plan's sequence of boxes to something a worker can run, compiled once and kept.

What is known from the sequence alone is decided here and not per train: which chains of boxes run fused, which arcs are
bypassed (a box that comes later in the plan takes its feeder's trains without a queue), and which go to storage or to
an output.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence, Set
from time import perf_counter_ns
from typing import Protocol

from catalog.network import Network
from catalog.readings import train_bucket
from engine.boxes.base import Emit
from engine.fuse import FusedChain, can_fuse
from engine.runtime import BoxRuntime
from engine.taps import Taps, offer
from scheduler.loop import Claim
from storage.queue import coalesce
from storage.train import NO_WATERMARK, Train

Sheds = Mapping[int, Callable[[Train], Train]]
"""By arc, a train without what is dropped there."""

log = logging.getLogger("aurorad.worker")


class Routes(Protocol):
    """What a worker needs of the router."""

    def enqueue(self, arcs: tuple[int, ...], train: Train) -> None: ...

    def deliver(self, output: int, train: Train) -> None: ...


class Inbox:
    """What waits for the boxes of one plan while it runs."""

    __slots__ = ("cut", "trains")

    def __init__(self, claims: dict[int, Claim]) -> None:
        self.trains: dict[int, list[Train]] = {a: c.trains for a, c in claims.items()}
        # Arcs on which something was left in the queue: a train that bypassed them would overtake it.
        self.cut = {a for a, c in claims.items() if not c.emptied}


class Port:
    """One output port at one place of a plan: where its trains go."""

    __slots__ = ("bypass", "later", "outputs", "queued", "routes", "tapped", "timed")

    def __init__(self, network: Network, arcs: Sequence[int], later: set[int], routes: Routes, taps: Taps) -> None:
        known = [network.arcs[a] for a in arcs]
        self.bypass = tuple(a.number for a in known if a.box in later)
        self.queued = tuple(a.number for a in known if a.box is not None and a.box not in later)
        self.outputs = tuple(a.output for a in known if a.output is not None)
        self.timed = any(a.timed for a in known)
        self.tapped = tuple(watch for a in arcs for watch in taps.arcs.get(a, ()))
        self.routes = routes
        self.later = later

    def send(self, train: Train, inbox: Inbox) -> None:
        if not train.count and not self.timed:
            return
        if self.tapped:
            offer(self.tapped, train)
        for arc in self.bypass:
            if arc in inbox.cut:
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
    """A port with drops on some of its arcs. What one arc drops its sibling keeps."""

    __slots__ = ("ways",)

    def __init__(
        self, network: Network, arcs: Sequence[int], later: set[int], routes: Routes, taps: Taps, sheds: Sheds
    ) -> None:
        super().__init__(network, arcs, later, routes, taps)
        # Who watches an arc sees what is put on it, and not what is dropped there.
        self.tapped = tuple(watch for a in arcs if a not in sheds for watch in taps.arcs.get(a, ()))
        self.ways = [(network.arcs[a], sheds[a], taps.arcs.get(a, ())) for a in arcs if a in sheds]
        self.bypass = tuple(a for a in self.bypass if a not in sheds)
        self.queued = tuple(a for a in self.queued if a not in sheds)
        self.outputs = tuple(o for a in arcs if a not in sheds and (o := network.arcs[a].output) is not None)

    def send(self, train: Train, inbox: Inbox) -> None:
        super().send(train, inbox)
        for arc, keep, watches in self.ways:
            kept = keep(train)
            number = arc.number
            if watches:
                offer(watches, kept)
            if not kept.count and (not arc.timed or kept.watermark_ns == NO_WATERMARK):
                continue
            if arc.output is not None:
                if kept.count:
                    self.routes.deliver(arc.output, kept)
            elif arc.box in self.later and number not in inbox.cut:
                inbox.trains.setdefault(number, []).append(kept)
            else:
                self.routes.enqueue((number,), kept)


class SingleStep:
    """One box by itself: the slow path, and the only one for boxes with state or several ports."""

    def __init__(self, runtime: BoxRuntime, ports: tuple[Port, ...], now_ns: Callable[[], int]) -> None:
        self.runtime = runtime
        self.ports = ports
        self.now_ns = now_ns
        self.arcs = runtime.node.in_arcs
        self.merges = runtime.box.merges_inputs and len(self.arcs) > 1

    def run(self, inbox: Inbox) -> None:
        """A box of a superbox runs once (P0's min cost): what several feeders have left for it is joined if short."""
        if self.merges:
            if inbox.trains.keys().isdisjoint(self.arcs):  # in a large superbox most boxes have nothing to do
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
        """The trains of all inputs as of one; none when one of them brings event time, which belongs to its input."""
        at_ns = self.runtime.port_watermarks_ns
        for port, arc in enumerate(self.arcs):
            if any(t.watermark_ns > at_ns[port] for t in inbox.trains.get(arc, ())):
                return []
        return coalesce([t for arc in self.arcs for t in inbox.trains.pop(arc, ())])

    def _call(self, port: int, train: Train, inbox: Inbox) -> None:
        runtime, box = self.runtime, self.runtime.box
        begun_ns = perf_counter_ns()
        # What the box emits leaves only after its clock has stopped: routing and delivery are not its cost.
        emitted: list[tuple[int, Train]] = []

        def emit(out_port: int, out: Train) -> None:
            emitted.append((out_port, out))

        failed = False
        try:
            if train.count:
                box.run(runtime.state, port, train, emit, runtime.tally)
            if train.watermark_ns > runtime.port_watermarks_ns[port]:
                self._advance(port, train.watermark_ns, emitted, emit)
            if box.needs_clock:
                box.tick(runtime.state, self.now_ns(), emit, runtime.tally)
        except Exception:
            # A bug in a box (or in trusted Python code that it calls) costs the tuples of this train, counted, and
            # not the daemon.
            log.exception("box %s failed on a train of %d tuples", runtime.node.name, train.count)
            emitted.clear()
            failed = True
        # A call counts when it has ended, with what it cost: a look in the middle of a long one would take it for free.
        if train.count:
            runtime.calls += 1
            runtime.tuples_in += train.count
            runtime.train_counts[train_bucket(train.count)] += 1
        runtime.cost_ns += perf_counter_ns() - begun_ns
        if failed:
            runtime.bury()
        for out_port, out in emitted:
            runtime.tuples_out[out_port] += out.count
            self.ports[out_port].send(out, inbox)

    def _advance(self, port: int, watermark_ns: int, emitted: list[tuple[int, Train]], emit: Emit) -> None:
        """Event time moves on one input; the box's own time is that of its slowest input."""
        runtime, box = self.runtime, self.runtime.box
        runtime.port_watermarks_ns[port] = watermark_ns
        lowest_ns = min(runtime.port_watermarks_ns)
        if lowest_ns <= runtime.watermark_ns:
            return
        runtime.watermark_ns = lowest_ns
        box.advance(runtime.state, lowest_ns, emit, runtime.tally)
        runtime.closed_ns = lowest_ns
        out_ns = box.out_watermark_ns(runtime.state, lowest_ns)
        told = {out_port for out_port, out in emitted if out.watermark_ns >= out_ns}
        for out_port, schema in enumerate(runtime.node.out_schemas):
            if self.ports[out_port].timed and out_port not in told:
                emit(out_port, Train.empty(schema, out_ns))


class FusedStep:
    """A chain of filters and maps in one pass. Falls back to single steps while a queue inside it is cut."""

    def __init__(self, singles: tuple[SingleStep, ...]) -> None:
        self.singles = singles
        self.chain = FusedChain([s.runtime for s in singles])
        self.arcs = tuple(s.arcs[0] for s in singles)
        self.inner = frozenset(self.arcs[1:])
        self.port = singles[-1].ports[0]

    def run(self, inbox: Inbox) -> None:
        if not inbox.cut.isdisjoint(self.inner):
            for single in self.singles:
                single.run(inbox)
            return
        if len(inbox.trains) == 1 and (trains := inbox.trains.pop(self.arcs[0], None)):  # as a rule
            self._call(0, trains, inbox)
            return
        # From the end to the start: what waits further down is older and must come out first.
        for stage in range(len(self.arcs) - 1, -1, -1):
            if trains := inbox.trains.pop(self.arcs[stage], None):
                self._call(stage, trains, inbox)

    def _call(self, stage: int, trains: list[Train], inbox: Inbox) -> None:
        try:
            self.chain.run(stage, trains, lambda out: self.port.send(out, inbox))
        except Exception:
            # As for one box: a bug costs the tuples of these trains, counted, and not the daemon.
            log.exception("fused chain %s failed", [s.runtime.node.name for s in self.singles])
            for single in self.singles[stage:]:
                single.runtime.bury()


class Executable:
    """A compiled sequence of boxes."""

    def __init__(self, steps: tuple[SingleStep | FusedStep, ...], routes: Routes) -> None:
        self.steps = steps
        self.routes = routes

    def run(self, claims: dict[int, Claim]) -> None:
        inbox = Inbox(claims)
        for step in self.steps:
            step.run(inbox)
        for arc, trains in inbox.trains.items():  # reached a box after its last turn in this plan
            for train in trains:
                self.routes.enqueue((arc,), train)


def compile_sequence(
    network: Network,
    runtimes: Sequence[BoxRuntime],
    boxes: tuple[int, ...],
    routes: Routes,
    taps: Taps,
    now_ns: Callable[[], int],
    sheds: Sheds | None = None,
) -> Executable:
    """An executable for these boxes in this order, with the drops that there are now."""
    dropped: Sheds = sheds or {}

    def port(arcs: Sequence[int], later: set[int]) -> Port:
        if dropped.keys().isdisjoint(arcs):
            return Port(network, arcs, later, routes, taps)
        return ShedPort(network, arcs, later, routes, taps, dropped)

    singles = [
        SingleStep(
            runtimes[box], tuple(port(arcs, set(boxes[i + 1 :])) for arcs in network.boxes[box].out_arcs), now_ns
        )
        for i, box in enumerate(boxes)
    ]
    apart = taps.arcs.keys() | dropped.keys()
    steps: list[SingleStep | FusedStep] = []
    i = 0
    while i < len(singles):
        length = _chain_length(network, runtimes, boxes, i, apart)
        steps.append(FusedStep(tuple(singles[i : i + length])) if length > 1 else singles[i])
        i += length
    return Executable(tuple(steps), routes)


def _chain_length(
    network: Network, runtimes: Sequence[BoxRuntime], boxes: tuple[int, ...], start: int, apart: Set[int]
) -> int:
    """How many boxes from ``start`` on form a chain that can run fused: each the only reader of the one before."""
    end = start
    while end + 1 < len(boxes):
        here, after = boxes[end], boxes[end + 1]
        if not (can_fuse(runtimes[here]) and can_fuse(runtimes[after])):
            break
        if network.boxes[here].out_arcs[0] != network.boxes[after].in_arcs:
            break
        if network.boxes[after].in_arcs[0] in apart:  # somebody watches it, or drops there
            break
        if boxes.count(here) > 1 or boxes.count(after) > 1:  # a box that runs twice meets its queue in between
            break
        end += 1
    return end - start + 1
