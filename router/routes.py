"""Where trains go inside the network: onto the queues of boxes, or to an output.

A train for a box goes on the arc's queue in storage, and an event about it goes into the scheduler's mailbox. A train
for an output goes straight to its delivery, without a queue. (``engine/run/ingress.py`` brings trains in.)

Threads: every worker, and every thread that admits trains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from storage.manager import StorageManager
from storage.train import Train

Announce = Callable[[tuple[int, ...], Train, int], None]


class OutputDelivery(Protocol):
    """An output as the routes see it."""

    def deliver(self, train: Train) -> None:
        """Take a train that has reached the output."""


class Routes:
    """``announce`` puts an event into the scheduler's mailbox: these arcs have a train of this many bytes. ``wake``
    wakes the scheduler, which reads its mailbox. ``deliveries`` take the trains of the outputs, by output number."""

    def __init__(
        self,
        storage: StorageManager,
        announce: Announce,
        wake: Callable[[], None],
        deliveries: Sequence[OutputDelivery],
    ) -> None:
        self._storage = storage
        self._announce = announce
        self._wake = wake
        self._deliveries = deliveries

    def enqueue_without_waking(self, arcs: tuple[int, ...], train: Train) -> None:
        """Put a train on these arcs. The caller wakes the scheduler, once for several trains."""
        self._announce(arcs, train, self._storage.enqueue(arcs, train))

    def enqueue(self, arcs: tuple[int, ...], train: Train) -> None:
        """Put a train on these arcs, and wake the scheduler."""
        self.enqueue_without_waking(arcs, train)
        self._wake()

    def unpin(self, arcs: Iterable[int]) -> None:
        """Free the trains that a plan has taken from these arcs: it has ended."""
        self._storage.unpin(arcs)

    def deliver(self, output: int, train: Train) -> None:
        """Hand a train to an output."""
        self._deliveries[output].deliver(train)
