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


class Claimed(NamedTuple):
    """The loop took this from an arc's queue for a plan."""

    arc: int
    tuples: int
    trains: int  # entries that left the queue whole


class Dispatched(NamedTuple):
    """A plan went on the execution queue: its boxes are taken until it is finished."""

    plan: Plan


class Finished(NamedTuple):
    """A worker is done with a plan. Every Enqueued of the plan was posted before."""

    plan: Plan


class OutputBlocked(NamedTuple):
    """An output takes no more for now: the boxes that feed it must rest."""

    output: int


class OutputFreed(NamedTuple):
    output: int


Event: TypeAlias = Enqueued | Claimed | Dispatched | Finished | OutputBlocked | OutputFreed
