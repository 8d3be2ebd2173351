"""The spill thread, and the arcs that may spill.

The thread writes and reads the blocks of ``storage/spilling.py``, one at a time. Storage wakes it when there is work.
It also looks twice a second by itself, because a full disk may have room again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Lock, Thread

from catalog.network import Network
from storage.manager import StorageManager

LOOK_SECONDS = 0.5


def spillable_arcs(network: Network) -> list[bool]:
    """Tell for each arc whether it may spill: it has a queue, and a stream with ``overload: spill`` leads to it."""
    reached = [False] * len(network.arcs)
    stack = [a for stream in network.streams if stream.overload == "spill" for a in stream.arcs]
    while stack:
        a = stack.pop()
        box = network.arcs[a].box
        if not reached[a] and box is not None:
            reached[a] = True
            stack += [out for arcs in network.boxes[box].out_arcs for out in arcs]
    return reached


class Spiller:
    def __init__(self) -> None:
        self._work = Event()
        self._ended = Event()
        self._turn = Lock()  # held for one step
        self._is_paused = False
        self._thread = Thread(target=self._run, name="aurorad-spill", daemon=True)
        self.storage: StorageManager | None = None

    def wake(self) -> None:
        """Have the thread look for work. Any thread."""
        if not self._work.is_set():
            self._work.set()

    def start(self, storage: StorageManager) -> None:
        self.storage = storage
        self._thread.start()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Move no block meanwhile. Waits for the one under way."""
        self._is_paused = True  # else the thread could take turn after turn, and nobody else would get the lock
        try:
            with self._turn:
                yield
        finally:
            self._is_paused = False
            self.wake()

    def stop(self) -> None:
        """End the thread. Blocks that are on disk stay there."""
        self._ended.set()
        self._work.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        assert self.storage is not None
        while not self._ended.is_set():
            self._work.wait(LOOK_SECONDS)
            self._work.clear()
            while not self._ended.is_set() and not self._is_paused and self._step(self.storage):
                pass

    def _step(self, storage: StorageManager) -> bool:
        with self._turn:
            return storage.step()
