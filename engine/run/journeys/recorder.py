"""The recorder of journeys: it follows probes through the engine. The package's docstring says what a probe is.

Threads: ``note_queued`` on the thread that puts a train on an arc; ``note_decision`` and ``note_claims`` on the thread
that has the scheduler's turn; ``begin_plan``, ``end_plan`` and ``note_delivered`` on the thread that runs a plan. One
lock covers everything that they share. It is taken only when a probe is at hand: the callers first look at plain
dictionaries (``waiting``, ``probed_plans``, ``in_state``). A look that is a moment too early loses a sample and nothing
else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from threading import Lock, get_ident
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from catalog.network import Network
from engine.run.journeys.journey import Hop, Journey, PassedOver
from engine.run.journeys.probe import Probe, ProbedPlan, WaitingProbe, has_stamp
from engine.run.runtime import BoxRuntime
from scheduler.plan import Plan
from storage.train import Train

PROBE_EVERY_NS = 5_000_000
"""The shortest time between two probes: 200 a second, of about 15 us each."""
UNDER_WAY_AT_MOST = 4
"""Probes in queues and plans at once. In an overloaded engine each is under way for seconds, and every train is
searched for it."""
IN_STATE_AT_MOST = 64
"""Probes in the states of boxes. The oldest is forgotten for a new one."""
LOST_NS = 30_000_000_000
"""A probe that has been under way for this long is forgotten: its tuple was shed, or died in a box ..."""
MISSED_NS = 1_000_000_000
"""... and sooner, after this long, if its queue was emptied and it was not found."""
FOLLOWED_AT_MOST = 256
"""Probes in queues and plans at once while a user follows an output: every train that may reach it gives one."""
JOURNEYS_KEPT = 2_048
SLOWEST_EVERY_NS = 5_000_000_000
SLOWEST_KEPT = 13  # of each output: the slowest in each five seconds of the last minute
DECISIONS_KEPT = 1_024


class ClaimedTrains(Protocol):
    """A claim of the scheduler: the trains that a plan takes from one arc."""

    @property
    def trains(self) -> list[Train]: ...

    @property
    def emptied(self) -> bool: ...


class Follower(NamedTuple):
    """A user who waits for the next tuple of an output. ``matches`` returns the places of its tuples in a train."""

    output: int
    matches: Callable[[Train], npt.NDArray[np.intp]]
    found: Callable[[Journey], None]


class Journeys:
    """Owner: the engine. All times are on the clock of the arrival stamps."""

    def __init__(self, network: Network, runtimes: Sequence[BoxRuntime], now_ns: Callable[[], int]) -> None:
        self.network = network
        self.now_ns = now_ns
        self.due_ns = 0  # an arrival from here on may become a probe
        self.waiting: dict[int, list[WaitingProbe]] = {}  # by arc
        self.expected: list[dict[int, Probe]] = [{} for _ in network.outputs]  # by output and stamp
        self.probed_plans: dict[int, ProbedPlan] = {}  # by the plan's id; dispatched and not ended
        self.in_state: dict[Probe, tuple[Hop, ...]] = {}  # probes in states of boxes, with the hops before
        self.begun = 0
        self.lost = 0
        self.finished: deque[Journey] = deque(maxlen=JOURNEYS_KEPT)
        self.slowest: list[deque[tuple[int, Journey]]] = [deque(maxlen=SLOWEST_KEPT) for _ in network.outputs]
        self._runtimes = runtimes
        self._lock = Lock()
        self._followers: list[Follower] = []
        self._sample_due_ns = 0  # ``due_ns`` without followers
        self._under_way: dict[Probe, None] = {}  # on a queue or in a plan; the oldest first
        self._running: dict[int, ProbedPlan] = {}  # by thread
        self._decisions: deque[tuple[int, Plan, Any]] = deque(maxlen=DECISIONS_KEPT)
        self._reachable: dict[int, frozenset[int]] = {}  # by box, computed on first use
        self._box_of = [arc.box for arc in network.arcs]
        self._source = [arc.source for arc in network.arcs]

    # -- on demand --------------------------------------------------------------------------------------------------

    def follow(self, follower: Follower) -> Callable[[], None]:
        """Follow every train that may reach an output until the returned callable is called. Any thread."""
        with self._lock:
            self._followers = [*self._followers, follower]
            self.due_ns = 0

        def stop() -> None:
            with self._lock:
                self._followers = [f for f in self._followers if f is not follower]

        return stop

    # -- on a queue -------------------------------------------------------------------------------------------------

    def note_queued(self, arcs: tuple[int, ...], train: Train, first_ns: int) -> None:
        """Look for probes in a train that is put on these arcs; a train of a stream may become a probe itself.

        Called only when a probe is due or a plan with a probe runs.
        """
        source = self._source[arcs[0]]
        if source.stream is not None:
            if first_ns >= self.due_ns:
                self._begin(source.stream, arcs, first_ns)
            return
        probed = self._running.get(get_ident())
        if probed is None or source.box is None:
            return
        now_ns = self.now_ns()
        with self._lock:
            for waiting, hop in probed.probes:
                if source.box in self._reachable_from(hop.arc) and has_stamp(train, waiting.probe.stamp_ns):
                    out = probed.record_exit(hop, source.box, now_ns)
                    for arc in arcs:
                        self._wait(arc, WaitingProbe(waiting.probe, now_ns, (*waiting.hops, out)))

    def _begin(self, stream: int, arcs: tuple[int, ...], stamp_ns: int) -> None:
        """Begin a probe on one arc of the stream, the arcs in turn: on a stream with two hundred queries it then costs
        as little as on a stream with one."""
        with self._lock:
            now_ns = self.now_ns()
            self._forget_lost(now_ns)
            followed = self._followed(arcs)
            if not followed and stamp_ns < self._sample_due_ns:
                return
            self._sample_due_ns = stamp_ns + PROBE_EVERY_NS
            self.due_ns = 0 if self._followers else self._sample_due_ns
            if len(self._under_way) >= (FOLLOWED_AT_MOST if followed else UNDER_WAY_AT_MOST):
                return
            begins_on = followed or [arcs[self.begun % len(arcs)]]
            outputs = {output for arc in begins_on for output in self._outputs_behind(arc)}
            if any(stamp_ns in self.expected[output] for output in outputs):
                return  # a probe with the same stamp is under way
            probe = Probe(stream, stamp_ns, now_ns, tuple(sorted(outputs)))
            self.begun += 1
            self._under_way[probe] = None
            for output in probe.outputs:
                self.expected[output][stamp_ns] = probe
            for arc in begins_on:
                self._wait(arc, WaitingProbe(probe, now_ns, ()))

    def _followed(self, arcs: tuple[int, ...]) -> list[int]:
        """Return the arcs that lead to an output that someone follows."""
        wanted = {follower.output for follower in self._followers}
        return [arc for arc in arcs if not wanted.isdisjoint(self._outputs_behind(arc))] if wanted else []

    def _outputs_behind(self, arc: int) -> tuple[int, ...]:
        box = self._box_of[arc]
        assert box is not None
        return self.network.box_outputs[box]

    def _wait(self, arc: int, waiting: WaitingProbe) -> None:
        waiting.probe.places += 1
        self.waiting.setdefault(arc, []).append(waiting)

    # -- chosen -----------------------------------------------------------------------------------------------------

    def note_decision(self, plan: Plan, priority: Any, now_ns: int) -> None:
        """Keep a decision of the scheduler. Called only while a probe waits on some arc."""
        self._decisions.append((now_ns, plan, priority))

    def note_claims(self, plan: Plan, claims: Mapping[int, ClaimedTrains], now_ns: int) -> None:
        """Look for probes in the trains that a plan takes from its arcs.

        Stamps on an arc rise, except where trains overtook each other on the way. So one comparison is enough for a
        claim that ends before the first probe's stamp. A probe that this misses is one sample less.
        """
        for arc, claim in claims.items():
            if (there := self.waiting.get(arc)) is None or not claim.trains:
                continue
            newest = claim.trains[-1]
            if newest.count and newest.arrival_ns[-1] >= there[0].probe.stamp_ns:
                self._search_claim(plan, arc, claim, now_ns)

    def _search_claim(self, plan: Plan, arc: int, claim: ClaimedTrains, now_ns: int) -> None:
        with self._lock:
            for waiting in list(self.waiting.get(arc, ())):
                if any(has_stamp(train, waiting.probe.stamp_ns) for train in claim.trains):
                    self._enter_plan(plan, arc, waiting, sum(t.count for t in claim.trains), now_ns)
                elif claim.emptied and now_ns - waiting.queued_ns > MISSED_NS:
                    self.lost += 1
                    self._leave_queue(arc, waiting)
                    self._leave_place(waiting.probe)

    def _enter_plan(self, plan: Plan, arc: int, waiting: WaitingProbe, tuples: int, now_ns: int) -> None:
        self._leave_queue(arc, waiting)
        hop = Hop(arc, waiting.queued_ns, max(now_ns, waiting.queued_ns), tuples)
        hop.boxes_in_plan = len(set(plan.boxes))
        self._count_passed_over(hop, plan)
        probed = self.probed_plans.get(id(plan))
        if probed is None:
            probed = self.probed_plans[id(plan)] = ProbedPlan(plan)
        probed.probes.append((waiting, hop))

    def _leave_queue(self, arc: int, waiting: WaitingProbe) -> None:
        left = [w for w in self.waiting[arc] if w is not waiting]
        if left:
            self.waiting[arc] = left
        else:
            del self.waiting[arc]

    def _count_passed_over(self, hop: Hop, plan: Plan) -> None:
        """Count, by box, the decisions since the probe was queued that preferred another plan."""
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

    # -- run ----------------------------------------------------------------------------------------------------------

    def begin_plan(self, plan: Plan) -> ProbedPlan | None:
        """Note that this thread begins to run a plan. Returns None when there is no probe in it."""
        probed = self.probed_plans.get(id(plan))
        if probed is None:
            return None
        now_ns = self.now_ns()
        for _, hop in probed.probes:
            hop.started_ns = max(now_ns, hop.dispatched_ns)
        probed.costs_before_ns = {box: self._runtimes[box].cost_ns for box in plan.boxes}
        self._running[get_ident()] = probed
        return probed

    def take_over_plan(self, thread: int) -> ProbedPlan | None:
        """Note that this thread goes on with the plan that another one has not finished. Returns its probes."""
        probed = self._running.pop(thread, None)
        if probed is not None:
            self._running[get_ident()] = probed
        return probed

    def end_plan(self, probed: ProbedPlan) -> None:
        """Note that the plan has ended: the costs of its boxes are known, and which probes did not leave it."""
        now_ns = self.now_ns()
        with self._lock:
            del self._running[get_ident()]
            del self.probed_plans[id(probed.plan)]
            costs_ns = {box: self._runtimes[box].cost_ns - before for box, before in probed.costs_before_ns.items()}
            for hop, last, left_ns in probed.exits:
                self._close(hop, last, left_ns, costs_ns)
            for waiting, hop in probed.probes:
                if id(hop) not in probed.exited:
                    self._keep_in_state(waiting, hop, now_ns, costs_ns)
                self._leave_place(waiting.probe)
        for report in probed.on_end:
            report()

    def _close(self, hop: Hop, last: int, left_ns: int, costs_ns: Mapping[int, int]) -> None:
        """Close a hop that left from the box ``last``: the boxes between its arc and that box have served it."""
        reached = self._reachable_from(hop.arc)
        served = [(b, ns) for b, ns in costs_ns.items() if b in reached and last in self._reachable_from_box(b)]
        hop.close(left_ns, served)

    def _keep_in_state(self, waiting: WaitingProbe, hop: Hop, now_ns: int, costs_ns: Mapping[int, int]) -> None:
        """Keep a probe that did not leave its plan, if a box with state may have it. Otherwise it was filtered out."""
        reached = self._reachable_from(hop.arc)
        holders = [b for b in costs_ns if b in reached and not self._runtimes[b].box.row_wise]
        if not holders:
            return
        hop.held_by = holders[0]
        self._close(hop, holders[0], now_ns, costs_ns)
        while len(self.in_state) >= IN_STATE_AT_MOST:
            oldest = next(iter(self.in_state))
            del self.in_state[oldest]
            self._leave_place(oldest)
        probe = waiting.probe
        if probe not in self.in_state:
            probe.places += 1
        self.in_state[probe] = (*waiting.hops, hop)
        self._under_way.pop(probe, None)

    # -- at an output -------------------------------------------------------------------------------------------------

    def note_delivered(self, output: int, train: Train, now_ns: int) -> None:
        """Look for probes in a train at an output. Called only while a plan with a probe runs, or a state has one."""
        stamps = self.expected[output]
        found = [stamp for stamp in list(stamps) if has_stamp(train, stamp)]
        if not found:
            return
        probed = self._running.get(get_ident())
        followers = [f for f in self._followers if f.output == output]
        places = [follower.matches(train) for follower in followers]
        with self._lock:
            for stamp in found:
                row, wanted_by = _choose_row(train, stamp, list(zip(followers, places, strict=True)))
                if followers and not wanted_by:
                    continue  # another tuple with this stamp may be the one that is waited for
                probe = stamps.pop(stamp, None)
                if probe is not None:
                    journey = self._complete(output, probe, train.slice(row, row + 1), now_ns, probed)
                    if journey is not None:
                        self._report(journey, wanted_by, probed)

    def _complete(
        self, output: int, probe: Probe, tuple_: Train, now_ns: int, probed: ProbedPlan | None
    ) -> Journey | None:
        hops: tuple[Hop, ...] = ()
        for waiting, hop in probed.probes if probed is not None else ():
            if waiting.probe is probe:
                assert probed is not None
                last = self._source[self.network.outputs[output].arc].box
                assert last is not None
                hops = (*waiting.hops, probed.record_exit(hop, last, now_ns))
        if not hops:
            hops = self.in_state.get(probe, ())
        journey = None
        if hops:
            row = tuple(tuple_.to_pylist(i)[0] for i in range(len(tuple_.columns)))
            journey = Journey(output, probe.stream, probe.stamp_ns, probe.admitted_ns, now_ns, hops, row)
            self._keep(journey)
        if probe in self.in_state and not any(probe.stamp_ns in self.expected[o] for o in probe.outputs):
            del self.in_state[probe]
            self._leave_place(probe)
        return journey

    @staticmethod
    def _report(journey: Journey, followers: Sequence[Follower], probed: ProbedPlan | None) -> None:
        """Hand a journey to its followers; if its last plan still runs, when that has ended and its costs are known."""
        for follower in followers:
            if probed is None:
                follower.found(journey)
            else:
                probed.on_end.append(partial(follower.found, journey))

    def _keep(self, journey: Journey) -> None:
        self.finished.append(journey)
        slowest, bucket = self.slowest[journey.output], journey.delivered_ns // SLOWEST_EVERY_NS
        if slowest and slowest[-1][0] == bucket:
            if journey.latency_ns > slowest[-1][1].latency_ns:
                slowest[-1] = (bucket, journey)
        else:
            slowest.append((bucket, journey))

    # -- the end of a probe -------------------------------------------------------------------------------------------

    def _leave_place(self, probe: Probe) -> None:
        """Note that a queue, a plan or a state no longer has the probe. Without a place it is forgotten."""
        probe.places -= 1
        if probe.places <= 0:
            self._forget(probe)

    def _forget(self, probe: Probe) -> None:
        self._under_way.pop(probe, None)
        self.in_state.pop(probe, None)
        for output in probe.outputs:
            if self.expected[output].get(probe.stamp_ns) is probe:
                del self.expected[output][probe.stamp_ns]

    def _forget_lost(self, now_ns: int) -> None:
        """Forget probes that have been under way for so long that their tuples must be gone."""
        for probe in [p for p in self._under_way if now_ns - p.admitted_ns > LOST_NS]:
            self.lost += 1
            self._forget(probe)
            for arc, there in list(self.waiting.items()):
                for waiting in there:
                    if waiting.probe is probe:
                        self._leave_queue(arc, waiting)

    # -- the network --------------------------------------------------------------------------------------------------

    def _reachable_from(self, arc: int) -> frozenset[int]:
        """Return the boxes that a tuple on this arc can reach."""
        box = self._box_of[arc]
        assert box is not None
        return self._reachable_from_box(box)

    def _reachable_from_box(self, box: int) -> frozenset[int]:
        reached = self._reachable.get(box)
        if reached is None:
            reached = self._reachable[box] = reachable(self.network, box)
        return reached


def _choose_row(
    train: Train, stamp_ns: int, wanted: Sequence[tuple[Follower, npt.NDArray[np.intp]]]
) -> tuple[int, list[Follower]]:
    """Return the place of a tuple with this stamp, one that a follower waits for if there is any, and who waits."""
    for _, places in wanted:
        if (hits := places[train.arrival_ns[places] == stamp_ns]).size:
            row = int(hits[0])
            return row, [other for other, theirs in wanted if row in theirs]
    return int(np.argmax(train.arrival_ns == stamp_ns)), []


def reachable(network: Network, box: int) -> frozenset[int]:
    """Return the box and all boxes that its tuples can reach."""
    seen = {box}
    left = [box]
    while left:
        for after in network.fed[left.pop()]:
            if after not in seen:
                seen.add(after)
                left.append(after)
    return frozenset(seen)
