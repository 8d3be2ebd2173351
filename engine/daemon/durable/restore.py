"""Putting a checkpoint back into an engine that has not started yet.

Everything is found by name: a stream, box, arc or output that the network no longer has is left out, with a warning
where that loses something. A box takes its state back only if its definition is the same (``cut.fingerprint``).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from catalog.network import Network
from engine.daemon.durable.checkpointer import KeptCounters
from engine.daemon.durable.cut import queue_obstacle, restore_queues, restore_runtime
from engine.daemon.durable.outbox import Outbox
from engine.run.core import Engine
from router.event_time import StreamClock
from storage.checkpoint import CheckpointError, FoundCheckpoint
from storage.files import Files, StorageError
from storage.source_numbers import SourceNumbers
from storage.tree import TreeError, decode_tree

log = logging.getLogger("aurorad.durable")


class SavedState:
    """A checkpoint as read from disk."""

    def __init__(self, found: FoundCheckpoint, files: Files) -> None:
        self._found = found
        self._files = files
        self.facts = found.facts
        self.queues: Mapping[str, Any] = self._part("queues")
        self.rest: Mapping[str, Any] = self._part("rest")

    def _part(self, name: str) -> Any:
        try:
            return decode_tree(self._found.parts[name])
        except (TreeError, KeyError) as error:
            place = self._files.where(f"checkpoint/{self._found.number:010d}.json")
            raise CheckpointError(place, 0, str(error)) from error

    def refuse_another_network(self, network: Network, root: str) -> None:
        """Raise StorageError if the folder is another network's: the next checkpoint would forget all that is in it."""
        known = list(self.rest["admission"])
        if known and not any(stream.name in known for stream in network.streams):
            raise StorageError(root, None, f"holds the state of another network, with the streams {', '.join(known)}")

    def refuse_changed_queues(self, engine: Engine, root: str) -> None:
        """Raise StorageError if tuples that wait in queues do not fit the network's fields any more."""
        if why := queue_obstacle(engine, self.queues):
            raise StorageError(root, None, f"{why}: start once with the network file before, and let them drain")

    def restore_boundary(
        self,
        network: Network,
        numbers: SourceNumbers,
        clocks: Sequence[StreamClock | None],
        outboxes: Sequence[Outbox],
        counters: KeptCounters,
    ) -> None:
        """Put back how far clients, clocks and named readers have come."""
        numbers.restore([stream.name for stream in network.streams], self.rest["admission"])
        for stream, clock in zip(network.streams, clocks, strict=True):
            if clock is not None and (data := self.rest["clocks"].get(stream.name)) is not None:
                clock.restore(data)
        for outbox in outboxes:
            if (data := self.rest["outputs"].get(outbox.output.name)) is not None:
                outbox.restore(data)
        counters.restore(self.rest["counters"])

    def restore_engine(self, engine: Engine) -> None:
        """Put back the drops, the boxes' states and the queues."""
        if "shed" in self.rest:
            engine.shedding.restore(self.rest["shed"])
        for runtime in engine.runtimes:
            name = f"box:{runtime.node.name}"
            restored = name in self._found.parts and restore_runtime(runtime, self._part(name))
            if not restored and runtime.state is not None:
                log.warning("box %s is new or has changed: it starts with an empty state", runtime.node.name)
        for sentence in restore_queues(engine, self.queues):
            log.warning("%s", sentence)
