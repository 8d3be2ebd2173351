"""A tap: watching the tuples that pass a place, without standing in their way.

Trains are immutable, so a tap only keeps references; it is called on the thread that moves them and does next to
nothing there. What the watcher does not take in time is dropped and shown as a gap: a slow terminal must never hold up
an arc.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from threading import Lock

import numpy as np

from catalog.describe import Place
from router.codecs.ndjson import NdjsonEncoder
from storage.train import Train

Unregister = Callable[[], None]
TapSource = Callable[[Place, Callable[[Train], None]], Unregister]
"""Call back with every train that passes a place, on whatever thread moves it, until unregistered."""

PENDING_TUPLES = 2_000
CHUNK_TUPLES = 500  # encoded at once on the I/O thread: about 0.2 ms


class Tap:
    """``offer`` is called by the engine's threads, ``lines`` runs on the loop that made it.

    ``every`` keeps each n-th tuple; ``limit`` ends the tap after so many tuples, 0 never.
    """

    def __init__(self, place: Place, every: int, limit: int) -> None:
        assert every >= 1
        self._loop = asyncio.get_running_loop()
        self._ready = asyncio.Event()
        self._encoder = NdjsonEncoder(place.schema)
        self._every, self._limit = every, limit
        self._lock = Lock()
        self._trains: deque[Train] = deque()
        self._pending = 0
        self._seen = 0
        self._lost = 0
        self._ended = False

    def end(self) -> None:
        """No more, from the loop's thread: the server stops."""
        self._ended = True
        self._ready.set()

    def offer(self, train: Train) -> None:
        """Keep what there is room for. Any thread."""
        if train.count == 0:
            return
        with self._lock:
            first = -self._seen % self._every
            self._seen += train.count
            wanted = len(range(first, train.count, self._every))
            kept = min(wanted, PENDING_TUPLES - self._pending)
            self._lost += wanted - kept
            if kept <= 0:
                return
            self._pending += kept
            if self._every == 1:
                self._trains.append(train.slice(0, kept))
            else:
                self._trains.append(train.take(np.arange(first, train.count, self._every)[:kept]))
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._ready.set)

    async def lines(self) -> AsyncIterator[bytes]:
        """The tuples as ndjson, until the limit or the end. A gap line says how many were missed."""
        sent = 0
        while not self._limit or sent < self._limit:
            await self._ready.wait()
            if self._ended:
                return
            train, lost = self._next(self._limit - sent if self._limit else CHUNK_TUPLES)
            if lost:
                yield self._encoder.gap(lost)
            if train is not None:
                sent += train.count
                yield self._encoder.encode(train)

    def _next(self, at_most: int) -> tuple[Train | None, int]:
        with self._lock:
            lost, self._lost = self._lost, 0
            if not self._trains:
                self._ready.clear()
                return None, lost
            train = self._trains.popleft()
            size = min(at_most, CHUNK_TUPLES)
            if train.count > size:
                train, rest = train.split(size)
                self._trains.appendleft(rest)
            self._pending -= train.count
            return train, lost
