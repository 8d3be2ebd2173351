"""Tasks that fail once: the daemon's end of every part's first attempt is cut off, as by an executor that dies."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

from engine.daemon.daemon import Daemon
from router.spark.daemon.request import PortRequest
from router.spark.wire.peer import Peer

ALL = 1_000_000
"""Later than the last frame: everything is in, and the task dies before it hears so."""


class Flaky:
    """``frames``: after how many frames a part's first attempt is cut off."""

    def __init__(self, daemon: Daemon, frames: Callable[[int], int]) -> None:
        self._push = daemon.spark.intake.push
        self._frames = frames
        self.cut = 0
        self._seen: set[int] = set()
        self._lock = threading.Lock()
        daemon.spark.port._handlers = {**daemon.spark.port._handlers, "push": self.push}

    def push(self, peer: Peer, hello: PortRequest) -> None:
        number = hello.number("partition")
        with self._lock:
            first = number not in self._seen
            self._seen.add(number)
        if first:
            self._cut_off(peer, self._frames(number))
        self._push(peer, hello)

    def _cut_off(self, peer: Peer, after: int) -> None:
        whole, hear = peer.frames, peer.hear

        def some(limit: int) -> Iterator[memoryview]:
            for i, frame in enumerate(whole(limit)):
                if i == after:
                    self._end(peer)
                yield frame

        def heard() -> dict[str, Any]:
            told = hear()
            self._end(peer)
            return told

        peer.frames = some  # type: ignore[method-assign]
        peer.hear = heard  # type: ignore[method-assign]

    def _end(self, peer: Peer) -> None:
        self.cut += 1
        peer.close()
