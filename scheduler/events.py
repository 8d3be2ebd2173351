"""The events that change the scheduler's state. ``SchedulerState.apply`` is their only reader.

They are named tuples because one is made for every train that moves: a frozen dataclass takes five times as long to
make.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from scheduler.plan import Plan
from storage.train import NO_WATERMARK


class Enqueued(NamedTuple):
    """A train is on these arcs. Posted after the storage manager has it, never before."""

    arcs: tuple[int, ...]
    tuples: int
    first_arrival_ns: int
    mean_arrival_ns: int
    nbytes: int
    watermark_ns: int = NO_WATERMARK


class Dispatched(NamedTuple):
    """A plan is about to go on the execution queue. Its boxes are in use until it is finished."""

    plan: Plan


class Claimed(NamedTuple):
    """The loop took tuples from an arc's queue for the plan that was dispatched last."""

    arc: int
    tuples: int
    trains: int  # entries that left the queue whole


class Expired(NamedTuple):
    """The loop dropped tuples from the head of an arc's queue: they could not be in time any more."""

    arc: int
    tuples: int
    trains: int


class Finished(NamedTuple):
    """A worker has ended a plan. Every Enqueued of the plan was posted before."""

    plan: Plan
    ran_ns: int = 0  # for which the plan kept its worker; 0: not measured


class OutputBlocked(NamedTuple):
    """An output takes no more for now. The boxes that feed it must not run."""

    output: int


class OutputFreed(NamedTuple):
    """An output takes tuples again."""

    output: int


class Clock(NamedTuple):
    """The time. Applied before each decision of a policy that keeps an index."""

    now_ns: int


class StatisticsMoved(NamedTuple):
    """The statistics have changed. All numbers that depend on them are computed anew."""


class MissedShares(NamedTuple):
    """How many tuples each output received late since the monitor's last tick."""

    missed: tuple[float, ...]  # by output, the share of tuples after their deadline; below 0: no tuple came


class MemoryShort(NamedTuple):
    """Storage has no room left, or has room again."""

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
    | StatisticsMoved
    | MissedShares
    | MemoryShort
)
