"""A probe, and the places where it can be: on an arc, or in a plan. Changed only by the recorder, under its lock."""

from __future__ import annotations

from collections.abc import Callable

from engine.run.journeys.journey import Hop
from scheduler.plan import Plan
from storage.train import Train


class Probe:
    """A stamp that is looked for."""

    __slots__ = ("admitted_ns", "outputs", "places", "stamp_ns", "stream")

    def __init__(self, stream: int, stamp_ns: int, admitted_ns: int, outputs: tuple[int, ...]) -> None:
        self.stream = stream
        self.stamp_ns = stamp_ns
        self.admitted_ns = admitted_ns
        self.outputs = outputs  # where it may come out
        self.places = 0  # queues, plans and states that have it; a probe without a place is forgotten


class WaitingProbe:
    """A probe on an arc, with the hops that it has made before."""

    __slots__ = ("hops", "probe", "queued_ns")

    def __init__(self, probe: Probe, queued_ns: int, hops: tuple[Hop, ...]) -> None:
        self.probe = probe
        self.queued_ns = queued_ns
        self.hops = hops


class ProbedPlan:
    """A plan that has claimed probes."""

    __slots__ = ("costs_before_ns", "exited", "exits", "on_end", "plan", "probes")

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.probes: list[tuple[WaitingProbe, Hop]] = []
        self.exits: list[tuple[Hop, int, int]] = []  # hop, the box that it left from, when
        self.exited: set[int] = set()  # ids of the hops that have left by at least one way
        self.costs_before_ns: dict[int, int] = {}  # by box, when the plan began
        self.on_end: list[Callable[[], None]] = []  # called when the costs are known

    def record_exit(self, hop: Hop, box: int, now_ns: int) -> Hop:
        """Record that a probe leaves the plan from this box. Returns a hop for this way out."""
        out = hop.fork()
        self.exited.add(id(hop))
        self.exits.append((out, box, now_ns))
        return out


def has_stamp(train: Train, stamp_ns: int) -> bool:
    """Whether a tuple with this stamp is in the train."""
    arrival_ns = train.arrival_ns
    if not train.count:
        return False
    if arrival_ns.strides[0] == 0 or train.count == 1:
        return bool(arrival_ns[0] == stamp_ns)
    return bool((arrival_ns == stamp_ns).any())
