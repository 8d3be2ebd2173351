"""Following probes through the engine. See the package's head for what a probe is.

Threads: ``begin`` and ``queued`` on whoever puts a train on an arc, ``decided`` and ``claimed`` on whoever has the
scheduler's turn, ``riding`` and ``ended`` on workers, ``delivered`` on workers. What they share is behind one lock,
which is taken only when a probe is at hand; the looks before that (``waiting``, ``rides``, ``held``) are at plain
dictionaries, and one that is a moment old loses a sample and nothing else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from threading import Lock, get_ident
from typing import Any, Protocol

import numpy as np

from catalog.network import Network
from engine.journeys.journey import Hop, Journey, PassedOver
from engine.runtime import BoxRuntime
from scheduler.plan import Plan
from storage.train import Train

EVERY_NS = 5_000_000
"""A probe at most that often: 200 a second, of about 15 us each."""
TRAVELLING = 4
"""Probes under way at once. In an overloaded engine each is under way for seconds, and all places look for it."""
HELD = 64
"""Probes in windows; the oldest is forgotten for a new one."""
LOST_NS = 30_000_000_000
"""A probe that has been under way for so long is given up: its tuple was shed, or died in a box ..."""
MISSED_NS = 1_000_000_000
"""... and one that has waited for so long on a queue that was emptied without it, sooner."""
KEPT = 2_048
SLOWEST_EVERY_NS = 5_000_000_000
SLOWEST_KEPT = 13  # of each output: the slowest in each five seconds of the last minute
DECISIONS = 1_024


class Claim(Protocol):
    @property
    def trains(self) -> list[Train]: ...

    @property
    def emptied(self) -> bool: ...


class Probe:
    """A stamp that is looked for."""

    __slots__ = ("admitted_ns", "outputs", "places", "stamp_ns", "stream")

    def __init__(self, stream: int, stamp_ns: int, admitted_ns: int, outputs: tuple[int, ...]) -> None:
        self.stream = stream
        self.stamp_ns = stamp_ns
        self.admitted_ns = admitted_ns
        self.outputs = outputs  # where it may come out
        self.places = 0  # queues, plans and windows that have it


class Waiting:
    """A probe on an arc."""

    __slots__ = ("probe", "queued_ns", "trail")

    def __init__(self, probe: Probe, queued_ns: int, trail: tuple[Hop, ...]) -> None:
        self.probe = probe
        self.queued_ns = queued_ns
        self.trail = trail


class Ride:
    """A plan with probes in it."""

    __slots__ = ("before_ns", "boarded", "gone", "left", "plan")

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.boarded: list[tuple[Waiting, Hop]] = []
        self.left: list[tuple[Hop, int, int]] = []  # hop, the box that it left from, when
        self.before_ns: dict[int, int] = {}  # what the boxes had cost before
        self.gone: set[int] = set()  # hops (id) that something left

    def leave(self, hop: Hop, box: int, now_ns: int) -> Hop:
        """It leaves the plan from this box; the hop as that way out has it."""
        out = hop.fork()
        self.gone.add(id(hop))
        self.left.append((out, box, now_ns))
        return out


class Journeys:
    """Owner: the engine. All times are on the clock of the arrival stamps."""

    def __init__(self, network: Network, runtimes: Sequence[BoxRuntime], now_ns: Callable[[], int]) -> None:
        self.network = network
        self.now_ns = now_ns
        self.due_ns = 0  # no probe is begun before; 2**63 while enough are under way
        self.waiting: dict[int, list[Waiting]] = {}  # by arc
        self.expected: list[dict[int, Probe]] = [{} for _ in network.outputs]  # by output and stamp
        self.rides: dict[int, Ride] = {}  # by plan (id), dispatched and not ended
        self.held: dict[Probe, tuple[Hop, ...]] = {}  # in windows, with the hops until there
        self.begun = 0
        self.lost = 0
        self.finished: deque[Journey] = deque(maxlen=KEPT)
        self.slowest: list[deque[tuple[int, Journey]]] = [deque(maxlen=SLOWEST_KEPT) for _ in network.outputs]
        self._runtimes = runtimes
        self._lock = Lock()
        self._travelling: dict[Probe, None] = {}
        self._riding: dict[int, Ride] = {}  # by thread
        self._decisions: deque[tuple[int, Plan, Any]] = deque(maxlen=DECISIONS)
        self._below_of: dict[int, frozenset[int]] = {}  # as asked for
        self._box_of = [arc.box for arc in network.arcs]
        self._source = [arc.source for arc in network.arcs]

    # -- on a queue -------------------------------------------------------------------------------------------------

    def queued(self, arcs: tuple[int, ...], train: Train, first_ns: int) -> None:
        """A train is on these arcs. Called when a probe is due or a plan with one runs."""
        source = self._source[arcs[0]]
        if source.stream is not None:
            if first_ns >= self.due_ns:
                self._begin(source.stream, arcs, first_ns)
            return
        ride = self._riding.get(get_ident())
        if ride is None or source.box is None:
            return
        now_ns = self.now_ns()
        with self._lock:
            for waiting, hop in ride.boarded:
                if source.box in self._below(hop.arc) and has(train, waiting.probe.stamp_ns):
                    out = ride.leave(hop, source.box, now_ns)
                    for arc in arcs:
                        self._wait(arc, Waiting(waiting.probe, now_ns, (*waiting.trail, out)))

    def _begin(self, stream: int, arcs: tuple[int, ...], stamp_ns: int) -> None:
        """One arc of the stream's, each in turn: two hundred queries on one stream cost a probe as little as one."""
        with self._lock:
            now_ns = self.now_ns()
            self._give_up(now_ns)
            if len(self._travelling) >= TRAVELLING:
                self.due_ns = stamp_ns + EVERY_NS
                return
            arc = arcs[self.begun % len(arcs)]
            box = self._box_of[arc]
            assert box is not None
            probe = Probe(stream, stamp_ns, now_ns, self.network.box_outputs[box])
            self.due_ns = stamp_ns + EVERY_NS
            if any(stamp_ns in self.expected[output] for output in probe.outputs):
                return  # the same stamp is under way
            self.begun += 1
            self._travelling[probe] = None
            for output in probe.outputs:
                self.expected[output][stamp_ns] = probe
            self._wait(arc, Waiting(probe, now_ns, ()))

    def _wait(self, arc: int, waiting: Waiting) -> None:
        waiting.probe.places += 1
        self.waiting.setdefault(arc, []).append(waiting)

    # -- chosen -----------------------------------------------------------------------------------------------------

    def decided(self, plan: Plan, priority: Any, now_ns: int) -> None:
        """Called while a probe waits somewhere."""
        self._decisions.append((now_ns, plan, priority))

    def claimed(self, plan: Plan, claims: Mapping[int, Claim], now_ns: int) -> None:
        """A plan takes trains from its arcs; a probe may be among them.

        Stamps on an arc rise but for what overtook on the way here, so a claim that ends before the first probe's stamp
        is passed over with one look. A probe that this misses is a sample less.
        """
        for arc, claim in claims.items():
            if (there := self.waiting.get(arc)) is None or not claim.trains:
                continue
            newest = claim.trains[-1]
            if newest.count and newest.arrival_ns[-1] >= there[0].probe.stamp_ns:
                self._look_for(plan, arc, claim, now_ns)

    def _look_for(self, plan: Plan, arc: int, claim: Claim, now_ns: int) -> None:
        with self._lock:
            for waiting in list(self.waiting.get(arc, ())):
                if any(has(train, waiting.probe.stamp_ns) for train in claim.trains):
                    self._board(plan, arc, waiting, sum(t.count for t in claim.trains), now_ns)
                elif claim.emptied and now_ns - waiting.queued_ns > MISSED_NS:
                    self.lost += 1
                    self._leave_queue(arc, waiting)
                    self._left_place(waiting.probe)

    def _board(self, plan: Plan, arc: int, waiting: Waiting, tuples: int, now_ns: int) -> None:
        self._leave_queue(arc, waiting)
        hop = Hop(arc, waiting.queued_ns, max(now_ns, waiting.queued_ns), tuples)
        hop.boxes_in_plan = len(set(plan.boxes))
        self._count_passed_over(hop, plan)
        ride = self.rides.get(id(plan))
        if ride is None:
            ride = self.rides[id(plan)] = Ride(plan)
        ride.boarded.append((waiting, hop))

    def _leave_queue(self, arc: int, waiting: Waiting) -> None:
        left = [w for w in self.waiting[arc] if w is not waiting]
        if left:
            self.waiting[arc] = left
        else:
            del self.waiting[arc]

    def _count_passed_over(self, hop: Hop, plan: Plan) -> None:
        times: dict[int, int] = {}
        priorities: dict[int, Any] = {}
        for now_ns, other, priority in reversed(self._decisions):
            if now_ns < hop.queued_ns:
                break
            box = other.claims[0].box if other.claims else other.boxes[0]
            if other is plan and not priorities:
                hop.priority = priority
            else:
                times[box] = times.get(box, 0) + 1
            priorities.setdefault(box, priority)
        hop.decisions = sum(times.values())
        most = sorted(times, key=lambda box: (-times[box], box))[:8]
        hop.passed_over = tuple(PassedOver(box, times[box], priorities[box]) for box in most)

    # -- at work ----------------------------------------------------------------------------------------------------

    def riding(self, plan: Plan) -> Ride | None:
        """A worker begins a plan; the ride if there are probes in it."""
        ride = self.rides.get(id(plan))
        if ride is None:
            return None
        now_ns = self.now_ns()
        for _, hop in ride.boarded:
            hop.started_ns = max(now_ns, hop.dispatched_ns)
        ride.before_ns = {box: self._runtimes[box].cost_ns for box in plan.boxes}
        self._riding[get_ident()] = ride
        return ride

    def ended(self, ride: Ride) -> None:
        """The plan is done: what each box took is known, and what became of the probes that did not leave."""
        now_ns = self.now_ns()
        with self._lock:
            del self._riding[get_ident()]
            del self.rides[id(ride.plan)]
            cost_ns = {box: self._runtimes[box].cost_ns - before for box, before in ride.before_ns.items()}
            for hop, last, left_ns in ride.left:
                self._close(hop, last, left_ns, cost_ns)
            for waiting, hop in ride.boarded:
                if id(hop) not in ride.gone:
                    self._stayed(waiting, hop, now_ns, cost_ns)
                self._left_place(waiting.probe)

    def _close(self, hop: Hop, last: int, left_ns: int, cost_ns: Mapping[int, int]) -> None:
        below = self._below(hop.arc)
        hop.close(left_ns, [(b, ns) for b, ns in cost_ns.items() if b in below and last in self._below_box(b)])

    def _stayed(self, waiting: Waiting, hop: Hop, now_ns: int, cost_ns: Mapping[int, int]) -> None:
        """Filtered out, or in the state of a box."""
        below = self._below(hop.arc)
        keepers = [b for b in cost_ns if b in below and not self._runtimes[b].box.row_wise]
        if not keepers:
            return
        hop.held_by = keepers[0]
        self._close(hop, keepers[0], now_ns, cost_ns)
        while len(self.held) >= HELD:
            oldest = next(iter(self.held))
            del self.held[oldest]
            self._left_place(oldest)
        probe = waiting.probe
        if probe not in self.held:
            probe.places += 1
        self.held[probe] = (*waiting.trail, hop)
        self._travelling.pop(probe, None)

    # -- at an output -------------------------------------------------------------------------------------------------

    def delivered(self, output: int, train: Train, now_ns: int) -> None:
        """Called while a plan with a probe runs, or a window has one."""
        stamps = self.expected[output]
        found = [stamp for stamp in list(stamps) if has(train, stamp)]
        if not found:
            return
        ride = self._riding.get(get_ident())
        with self._lock:
            for stamp in found:
                probe = stamps.pop(stamp, None)
                if probe is not None:
                    self._arrive(output, probe, train, now_ns, ride)

    def _arrive(self, output: int, probe: Probe, train: Train, now_ns: int, ride: Ride | None) -> None:
        trail: tuple[Hop, ...] = ()
        for waiting, hop in ride.boarded if ride is not None else ():
            if waiting.probe is probe:
                assert ride is not None
                last = self._source[self.network.outputs[output].arc].box
                assert last is not None
                trail = (*waiting.trail, ride.leave(hop, last, now_ns))
        if not trail:
            trail = self.held.get(probe, ())
        if trail:
            self._keep(
                Journey(output, probe.stream, probe.stamp_ns, probe.admitted_ns, now_ns, trail, _row(train, probe))
            )
        if probe in self.held and not any(probe.stamp_ns in self.expected[o] for o in probe.outputs):
            del self.held[probe]
            self._left_place(probe)

    def _keep(self, journey: Journey) -> None:
        self.finished.append(journey)
        slowest, bucket = self.slowest[journey.output], journey.delivered_ns // SLOWEST_EVERY_NS
        if slowest and slowest[-1][0] == bucket:
            if journey.latency_ns > slowest[-1][1].latency_ns:
                slowest[-1] = (bucket, journey)
        else:
            slowest.append((bucket, journey))

    # -- the end of a probe -------------------------------------------------------------------------------------------

    def _left_place(self, probe: Probe) -> None:
        probe.places -= 1
        if probe.places <= 0:
            self._forget(probe)

    def _forget(self, probe: Probe) -> None:
        self._travelling.pop(probe, None)
        self.held.pop(probe, None)
        for output in probe.outputs:
            if self.expected[output].get(probe.stamp_ns) is probe:
                del self.expected[output][probe.stamp_ns]

    def _give_up(self, now_ns: int) -> None:
        """Forget probes that must have been lost on the way."""
        for probe in [p for p in self._travelling if now_ns - p.admitted_ns > LOST_NS]:
            self.lost += 1
            self._forget(probe)
            for arc, there in list(self.waiting.items()):
                for waiting in there:
                    if waiting.probe is probe:
                        self._leave_queue(arc, waiting)

    def _below(self, arc: int) -> frozenset[int]:
        """The boxes that a tuple on this arc can reach."""
        box = self._box_of[arc]
        assert box is not None
        return self._below_box(box)

    def _below_box(self, box: int) -> frozenset[int]:
        below = self._below_of.get(box)
        if below is None:
            below = self._below_of[box] = reachable(self.network, box)
        return below


def has(train: Train, stamp_ns: int) -> bool:
    """Whether a tuple with this stamp is in the train."""
    arrival_ns = train.arrival_ns
    if not train.count:
        return False
    if arrival_ns.strides[0] == 0 or train.count == 1:
        return bool(arrival_ns[0] == stamp_ns)
    return bool((arrival_ns == stamp_ns).any())


def _row(train: Train, probe: Probe) -> tuple[Any, ...]:
    at = int(np.argmax(train.arrival_ns == probe.stamp_ns))
    one = train.slice(at, at + 1)
    return tuple(one.to_pylist(i)[0] for i in range(len(one.columns)))


def reachable(network: Network, box: int) -> frozenset[int]:
    """The box and all that its tuples can reach."""
    seen = {box}
    left = [box]
    while left:
        for after in network.fed[left.pop()]:
            if after not in seen:
                seen.add(after)
                left.append(after)
    return frozenset(seen)
