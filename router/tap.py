"""A tap: watch the tuples that pass a place, without slowing them down.

The thread that moves a train calls ``offer``, which only keeps a reference: trains are immutable. When the watcher
reads too slowly, the tap drops tuples and shows the gap. A slow terminal must never hold up an arc.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from threading import Lock

import numpy as np

from catalog.describe import TapPlace
from router.client_protocol import encode_line
from router.codecs.ndjson import NdjsonEncoder
from storage.train import Train

Unregister = Callable[[], None]
TapSource = Callable[[TapPlace, Callable[[Train], None]], Unregister]
"""Registers a callback for every train that passes a place, on the thread that moves it. Returns the unregistration."""

KeepRows = Callable[[Train], Train]
"""Returns the tuples of a train that the watcher wants to see. Any thread."""

PENDING_TUPLES = 2_000
CHUNK_TUPLES = 500  # encoded in one go on the I/O thread: about 0.2 ms


class Tap:
    """The engine's threads call ``offer``; ``lines`` runs on the loop that constructed the tap.

    The tap keeps each ``every``-th tuple and ends after ``limit`` tuples; 0 means no limit. ``keep`` is asked first.
    """

    def __init__(self, place: TapPlace, every: int, limit: int, keep: KeepRows | None = None) -> None:
        assert every >= 1
        self._loop = asyncio.get_running_loop()
        self._ready = asyncio.Event()
        self._encoder = NdjsonEncoder(place.schema)
        self._every, self._limit = every, limit
        self._keep = keep
        self._lock = Lock()
        self._trains: deque[Train] = deque()
        self._pending = 0
        self._seen = 0
        self._lost = 0
        self._ended = False
        self._why = ""

    def end(self, why: str = "") -> None:
        """End the tap, because the server stops, or for the reason that its last line gives. On the loop's thread."""
        self._ended = True
        self._why = why
        self._ready.set()

    def offer(self, train: Train) -> None:
        """Keep as many tuples as there is room for. Any thread."""
        if self._keep is not None and train.count:
            train = self._keep(train)
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
        """Yield the tuples as ndjson, until the limit or the end. A gap line says how many tuples were dropped."""
        sent = 0
        while not self._limit or sent < self._limit:
            await self._ready.wait()
            if self._ended:
                if self._why:
                    yield encode_line(_end=self._why)
                return
            train, lost = self._next(self._limit - sent if self._limit else CHUNK_TUPLES)
            if lost:
                yield self._encoder.gap(lost)
            if train is not None:
                sent += train.count
                yield self._encoder.encode(train)

    def _next(self, at_most: int) -> tuple[Train | None, int]:
        """Return the next tuples, and the number of dropped tuples since the last call."""
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
