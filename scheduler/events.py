"""What the scheduler is told. ``SchedulerState.apply`` is the only reader.

Named tuples, because one is made for every train that moves: a frozen dataclass takes five times as long to make.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from scheduler.plan import Plan


class Enqueued(NamedTuple):
    """A train is on these arcs (posted after the storage manager has it, never before)."""

    arcs: tuple[int, ...]
    tuples: int
    first_arrival_ns: int
    mean_arrival_ns: int
    nbytes: int


class Dispatched(NamedTuple):
    """A plan is about to go on the execution queue: its boxes are taken until it is finished."""

    plan: Plan


class Claimed(NamedTuple):
    """The loop took this from an arc's queue for the plan that was dispatched last."""

    arc: int
    tuples: int
    trains: int  # entries that left the queue whole


class Expired(NamedTuple):
    """The loop dropped this from the head of an arc's queue: it could not be in time any more."""

    arc: int
    tuples: int
    trains: int


class Finished(NamedTuple):
    """A worker is done with a plan. Every Enqueued of the plan was posted before."""

    plan: Plan


class OutputBlocked(NamedTuple):
    """An output takes no more for now: the boxes that feed it must rest."""

    output: int


class OutputFreed(NamedTuple):
    output: int


class Clock(NamedTuple):
    """The time, told before each decision of a policy that keeps an index."""

    now_ns: int


class Measured(NamedTuple):
    """The statistics have moved: whatever was drawn from them is drawn anew."""


class Outcome(NamedTuple):
    """How the outputs did since the monitor's last tick."""

    missed: tuple[float, ...]  # by output, the share of tuples after their deadline; below 0 where none came


class MemoryShort(NamedTuple):
    """Storage has no room for more, or has it again."""

    short: bool


Event: TypeAlias = (
    Enqueued
    | Dispatched
    | Claimed
    | Expired
    | Finished
    | OutputBlocked
    | OutputFreed
    | Clock
    | Measured
    | Outcome
    | MemoryShort
)
