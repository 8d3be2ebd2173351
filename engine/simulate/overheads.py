"""The engine's overhead beside its boxes: the costs that a simulation is given, and the totals that it counts."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import inf
from typing import Any


@dataclass(frozen=True, slots=True)
class Overheads:
    """The engine's overhead in ns, and the costs of the threads that a tuple meets on its way.

    ``measure_overheads`` measures them. The costs of threads are 0 in a simulation of a scheduler and its workers
    alone, as in the papers; ``DAEMON`` has them.
    """

    step_ns: float = 8_000.0  # a scheduling step: events, decision, dispatch
    claim_ns: float = 8_000.0  # to take from a queue, or to put on one
    plan_ns: float = 8_000.0  # for a worker to take a plan and to report its end
    call_ns: float = 1_500.0  # a box call, beside the cost that the box measures
    wake_ns: float = 0.0  # to wake a worker that sleeps, for the thread that wakes it
    woken_ns: tuple[float, ...] = (0.0,)  # until a thread that slept runs: a sample, each as frequent as the others
    admit_ns: float = 0.0  # to admit a read; 0: there is no I/O thread, and workers run every plan
    idle_path_ns: float = 0.0  # all overhead of a read on the idle fast path
    cold_ns: float = 0.0  # the extra cost of a read after the I/O thread has slept
    cores: float = inf  # shared by the threads
    sharing: float = 0.0  # of the time that other threads work, the share that a working thread loses to them


DAEMON = Overheads(
    step_ns=12_000.0, claim_ns=11_000.0, plan_ns=7_000.0, call_ns=1_500.0, wake_ns=20_000.0,
    woken_ns=(16e3, 21e3, 27e3, 32e3, 38e3, 47e3, 58e3, 71e3, 120e3, 400e3),
    admit_ns=24_000.0, idle_path_ns=26_000.0, cold_ns=28_000.0, sharing=0.26,
)  # fmt: skip
"""As measured on a machine of two cores. The caller sets ``cores``."""


def between(one: Overheads, other: Overheads) -> Overheads:
    """Return the middle between two measurements."""
    return Overheads(*[_half_way(getattr(one, f.name), getattr(other, f.name)) for f in fields(Overheads)])


def _half_way(one: Any, other: Any) -> Any:
    if isinstance(one, tuple):
        return tuple((a + b) / 2 for a, b in zip(one, other, strict=True))
    return (one + other) / 2


class Totals:
    """The time that was spent, by part of the engine, as in figure 9 of P0."""

    __slots__ = ("box_ns", "calls", "plans", "scheduler_ns", "storage_ns", "worker_ns")

    def __init__(self) -> None:
        self.box_ns = 0.0
        self.scheduler_ns = 0.0
        self.storage_ns = 0.0
        self.worker_ns = 0.0
        self.calls = 0
        self.plans = 0
