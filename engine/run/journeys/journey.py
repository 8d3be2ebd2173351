"""One tuple's journey: its hops, and the parts of its latency that they are made of.

A hop is one plan: the tuple waited on a queue, then for a worker, then went through some boxes. The parts of all hops,
with the time before the first queue, add up to the latency, because every boundary between two parts is one reading of
one clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple


class PassedOver(NamedTuple):
    """The decisions for one other box while the tuple waited."""

    box: int  # the first box of the preferred plans
    times: int
    priority: Any  # the policy's key in the last of these decisions; None if the policy has no priorities


class Hop:
    """One plan with the tuple in it. The recorder fills it in until the tuple leaves; then it is constant."""

    __slots__ = (
        "arc", "boxes_in_plan", "decisions", "dispatched_ns", "held_by", "left_ns", "passed_over", "priority",
        "queued_ns", "services_ns", "started_ns", "train_tuples",
    )  # fmt: skip

    def __init__(self, arc: int, queued_ns: int, dispatched_ns: int, train_tuples: int) -> None:
        self.arc = arc
        self.queued_ns = queued_ns  # put on the arc
        self.dispatched_ns = dispatched_ns  # chosen by the scheduler
        self.started_ns = dispatched_ns  # a worker took the plan
        self.left_ns = dispatched_ns  # put on a queue or delivered; if it stays in a state: the end of the plan
        self.train_tuples = train_tuples  # claimed together with it
        self.boxes_in_plan = 0
        self.services_ns: tuple[tuple[int, int], ...] = ()  # (box, ns), along its way
        self.held_by: int | None = None  # the box whose state has it
        self.decisions = 0  # that passed it over
        self.passed_over: tuple[PassedOver, ...] = ()
        self.priority: Any = None  # when it was chosen

    def fork(self) -> Hop:
        """Copy the hop for another way out of its plan: each way has its own time of leaving."""
        other = Hop(self.arc, self.queued_ns, self.dispatched_ns, self.train_tuples)
        for name in self.__slots__:
            setattr(other, name, getattr(self, name))
        return other

    def close(self, left_ns: int, services_ns: list[tuple[int, int]]) -> None:
        """Record when the tuple left the plan, and how long its boxes took.

        A box may have served several trains of the plan, so the services are scaled down to the time in the plan.
        """
        self.left_ns = max(left_ns, self.started_ns)
        elapsed_ns, total_ns = self.left_ns - self.started_ns, sum(ns for _, ns in services_ns)
        scale = min(1.0, elapsed_ns / total_ns) if total_ns else 0.0
        self.services_ns = tuple((box, int(ns * scale)) for box, ns in services_ns)


class Stretch(NamedTuple):
    """A part of a tuple's latency."""

    kind: str  # admit | wait | worker | service | plan | held
    box: int | None  # the box that the tuple waited for, that served it, or that held it
    ns: int
    begun_ns: int


class Journey(NamedTuple):
    """A tuple that came out."""

    output: int
    stream: int
    arrival_ns: int
    admitted_ns: int
    delivered_ns: int
    hops: tuple[Hop, ...]
    row: tuple[Any, ...]  # its fields, in the order of the output's schema

    @property
    def latency_ns(self) -> int:
        return self.delivered_ns - self.arrival_ns

    def parts(self, box_of_arc: list[int | None]) -> Iterator[Stretch]:
        """Yield the parts in the order of time; they add up to the latency."""
        yield Stretch("admit", None, self.admitted_ns - self.arrival_ns, self.arrival_ns)
        now_ns = self.admitted_ns
        for hop in self.hops:
            box = box_of_arc[hop.arc]
            yield Stretch("wait", box, hop.dispatched_ns - now_ns, now_ns)
            yield Stretch("worker", box, hop.started_ns - hop.dispatched_ns, hop.dispatched_ns)
            now_ns = hop.started_ns
            for served_by, ns in hop.services_ns:
                yield Stretch("service", served_by, ns, now_ns)
                now_ns += ns
            yield Stretch("plan", box, hop.left_ns - now_ns, now_ns)
            now_ns = hop.left_ns
            if hop.held_by is not None:
                yield Stretch("held", hop.held_by, self.delivered_ns - now_ns, now_ns)
                return
        if now_ns != self.delivered_ns:  # from the last plan to the output
            yield Stretch("plan", None, self.delivered_ns - now_ns, now_ns)
