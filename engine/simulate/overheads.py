"""What the engine spends beside its boxes: given to a simulation, and counted by it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import inf
from typing import Any


@dataclass(frozen=True, slots=True)
class Overheads:
    """What the engine spends beside the boxes, in ns, and the threads that a tuple meets on its way.

    All are measured by ``at_rest.py``. Those of the threads are 0 where a simulation is of a scheduler and its
    workers alone, as the papers' are; ``DAEMON`` has them.
    """

    step_ns: float = 8_000.0  # a scheduling step: events, decision, dispatch
    claim_ns: float = 8_000.0  # taking from or putting on a queue, each
    plan_ns: float = 8_000.0  # a worker that takes up a plan and reports its end
    call_ns: float = 1_500.0  # a box call, beside what the box measures of itself
    wake_ns: float = 0.0  # waking a worker that sleeps, for whoever does
    woken_ns: tuple[float, ...] = (0.0,)  # until a thread that slept runs, each of these as often as the others
    admit_ns: float = 0.0  # a read on its way in; 0: there is no I/O thread, and workers run every plan
    short_ns: float = 0.0  # all that is beside the boxes for a read that goes the short way
    cold_ns: float = 0.0  # what a read takes more when the I/O thread has slept
    cores: float = inf  # that the threads share
    sharing: float = 0.0  # of the time that others are at work, what one at work loses to them, free cores or not


DAEMON = Overheads(
    step_ns=12_000.0, claim_ns=11_000.0, plan_ns=7_000.0, call_ns=1_500.0, wake_ns=20_000.0,
    woken_ns=(16e3, 21e3, 27e3, 32e3, 38e3, 47e3, 58e3, 71e3, 120e3, 400e3),
    admit_ns=24_000.0, short_ns=26_000.0, cold_ns=28_000.0, sharing=0.26,
)  # fmt: skip
"""As measured on a machine of two cores; how many there are is for whoever runs it to say."""


def between(one: Overheads, other: Overheads) -> Overheads:
    """Half way between two measurements."""
    return Overheads(*[_half_way(getattr(one, f.name), getattr(other, f.name)) for f in fields(Overheads)])


def _half_way(one: Any, other: Any) -> Any:
    if isinstance(one, tuple):
        return tuple((a + b) / 2 for a, b in zip(one, other, strict=True))
    return (one + other) / 2


class Totals:
    """Where the time went, as in figure 9 of P0."""

    __slots__ = ("box_ns", "calls", "plans", "scheduler_ns", "storage_ns", "worker_ns")

    def __init__(self) -> None:
        self.box_ns = 0.0
        self.scheduler_ns = 0.0
        self.storage_ns = 0.0
        self.worker_ns = 0.0
        self.calls = 0
        self.plans = 0
