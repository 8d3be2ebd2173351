"""The baseline of P0 figure 3: one OS thread for each box, blocking queues between them, and no scheduler.

Boxes, runtimes and box calls are those of the engine. The only difference is that the operating system decides which
box runs next: it wakes a thread whose queue has a train. This engine exists for comparison; the daemon never runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from queue import Queue
from threading import Condition, Thread
from time import time_ns

from catalog.network import Network
from catalog.readings import BoxReading
from engine.run.executable import Executable, compile_sequence
from engine.run.runtime import BoxRuntime
from engine.run.taps import Taps
from scheduler.claims import Claim
from storage.train import Train

QUEUE_TRAINS = 1_024
"""A slow box blocks its feeders, as a pipe does. The network has no loops, so no thread waits for itself."""


class ThreadPerBox:
    """An engine without a scheduler: ``feed``, ``drain`` and ``stop`` do as those of ``Engine``."""

    def __init__(
        self,
        network: Network,
        outlets: Sequence[Callable[[Train], None]],
        *,
        now_ns: Callable[[], int] = time_ns,
        queue_trains: int = QUEUE_TRAINS,
    ) -> None:
        self.network = network
        self._outlets = outlets
        self.runtimes = [BoxRuntime(node) for node in network.boxes]
        self._queues: list[Queue[tuple[int, Train] | None]] = [Queue(queue_trains) for _ in network.boxes]
        taps = Taps(network, on_change=lambda: None, kept={})  # no taps are set here, so nothing is compiled again
        self._executables = [
            compile_sequence(network, self.runtimes, (node.number,), self, taps, now_ns) for node in network.boxes
        ]
        self._under_way = 0  # trains that wait or run
        self._quiet = Condition()
        self.failure: BaseException | None = None
        self._threads = [
            Thread(target=self._run, args=(queue, executable), name=f"aurorad-box-{node.name}", daemon=True)
            for node, queue, executable in zip(network.boxes, self._queues, self._executables, strict=True)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def feed(self, stream: int, train: Train, timeout_s: float | None = None) -> bool:
        """Put a train on the first queues; block while they are full."""
        arcs = self.network.streams[stream].arcs
        self.enqueue(tuple(a for a in arcs if self.network.arcs[a].box is not None), train)
        for a in arcs:
            output = self.network.arcs[a].output
            if output is not None and train.count:
                self.deliver(output, train)
        return True

    def enqueue(self, arcs: tuple[int, ...], train: Train) -> None:
        for a in arcs:
            box = self.network.arcs[a].box
            assert box is not None
            with self._quiet:
                self._under_way += 1
            self._queues[box].put((a, train))

    def unpin(self, arcs: Iterable[int]) -> None:
        """No budget here: nothing is pinned."""

    def deliver(self, output: int, train: Train) -> None:
        self._outlets[output](train)

    def drain(self, timeout_s: float) -> bool:
        """Wait until no train waits or runs. Return False after the timeout or if a box failed."""
        with self._quiet:
            self._quiet.wait_for(lambda: not self._under_way or self.failure is not None, timeout_s)
            return not self._under_way

    def is_quiet(self) -> bool:
        """Whether no train waits or runs."""
        return not self._under_way

    def stop(self) -> None:
        """End each thread after the trains in its queue."""
        for queue in self._queues:
            queue.put(None)
        for thread in self._threads:
            thread.join()

    def box_readings(self) -> list[BoxReading]:
        return [runtime.reading() for runtime in self.runtimes]

    def _run(self, queue: Queue[tuple[int, Train] | None], executable: Executable) -> None:
        while (item := queue.get()) is not None:
            arc, train = item
            try:
                executable.run({arc: Claim([train], True)})
            except Exception as error:  # noqa: BLE001
                self.failure = (
                    error  # ``drain`` returns False; the thread goes on, because its feeders would block for ever
                )
            with self._quiet:
                self._under_way -= 1
                if not self._under_way or self.failure is not None:
                    self._quiet.notify_all()
