"""A plan: which boxes run, in which order, on how many tuples. The scheduler decides it and a worker runs it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Step(NamedTuple):
    """Run this box on at most this many of the tuples that wait on each of its inputs, and on all tuples that reach it
    within the plan."""

    box: int
    tuples: int


class Plan:
    """A sequence of steps that one worker runs without asking the scheduler again.

    A box may stand in it more than once (min_latency runs the root again and again). Trains for a box that comes later
    in the plan go straight to it and touch no queue.

    ``takes`` says by arc how many tuples to take, where one number for all inputs of a box is not enough (a batch of
    one interval of time); nothing is taken from an arc that is not in it. ``expired`` says by arc how many tuples to
    drop first: tuples at the head of the queue that cannot be in time any more.
    """

    __slots__ = (
        "boxes", "claims", "expired", "is_begun", "priorities", "rival", "steps", "takes", "traversal", "tuples",
        "units", "work_ns",
    )  # fmt: skip

    def __init__(
        self,
        steps: tuple[Step, ...],
        takes: Mapping[int, int] | None = None,
        expired: tuple[tuple[int, int], ...] = (),
        claims: tuple[Step, ...] | None = None,
        traversal: str = "min_cost",
    ) -> None:
        self.steps = steps
        self.takes = takes
        self.expired = expired
        self.traversal = traversal  # by which the steps were ordered
        self.boxes: tuple[int, ...] = tuple([box for box, _ in steps])  # as they run, repeats included
        # Each box once, at its first step: the tuples to take from its queues before the plan starts. The maker of the
        # plan may leave out boxes for which nothing waits.
        self.claims = claims if claims is not None else _first_visits(steps)
        # The state fills in:
        self.units: tuple[int, ...] | None = None  # held while the plan runs
        self.tuples = 0  # that were taken for it
        self.work_ns = 0.0  # for which it will keep its worker, as its units have done lately
        # A policy that preempts fills in (``scheduler/preemption``), and the worker reads between two steps:
        self.priorities: Mapping[int, float] | None = None  # of each box
        self.rival = 0.0  # the highest priority of a box that waits
        self.is_begun = False  # the worker fills in

    def __repr__(self) -> str:
        dropped = "".join(f" -{n}@{a}" for a, n in self.expired)
        return "Plan(" + " ".join(f"{b}x{n}" for b, n in self.steps) + dropped + ")"


def _first_visits(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    first: dict[int, Step] = {}
    for step in steps:
        first.setdefault(step.box, step)
    return tuple(first.values())
