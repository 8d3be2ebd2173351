"""The baseline of P0 figure 3: one OS thread for each box, blocking queues between them, and no scheduler.

The boxes, their runtimes and the way a box is called are the engine's own, so the only difference is who decides what
runs next: here the operating system does, by waking whoever has something in its queue. It exists to be measured
against; the daemon never runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from queue import Queue
from threading import Condition, Thread
from time import time_ns

from catalog.network import Network
from catalog.readings import BoxReading
from engine.executable import Executable, compile_sequence
from engine.runtime import BoxRuntime
from engine.taps import Taps
from scheduler.loop import Claim
from storage.train import Train

QUEUE_TRAINS = 1_024
"""A box that is too slow blocks those that feed it, as a pipe does. The network has no loops, so nobody waits for
himself."""


class ThreadPerBox:
    """Feed, drain, stop: as far as it goes, what ``Engine`` has."""

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
        taps = Taps(network)
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
        """Blocks while the first boxes are full."""
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

    def deliver(self, output: int, train: Train) -> None:
        self._outlets[output](train)

    def drain(self, timeout_s: float) -> bool:
        """Wait until nothing waits and nothing runs. False when time ran out or a box failed."""
        with self._quiet:
            self._quiet.wait_for(lambda: not self._under_way or self.failure is not None, timeout_s)
            return not self._under_way

    def is_quiet(self) -> bool:
        """Nothing waits and nothing runs."""
        return not self._under_way

    def stop(self) -> None:
        """Ends each thread after what is in its queue."""
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
                self.failure = error  # told to whoever drains; the thread goes on, or its feeders would block for good
            with self._quiet:
                self._under_way -= 1
                if not self._under_way or self.failure is not None:
                    self._quiet.notify_all()
