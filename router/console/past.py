"""The last hour: the statistics of every ten seconds, compressed.

Counters are sums since the start, so the rates of any span are the difference of two records over the time between
them. A large network fills the memory for records before the hour is full; then the oldest go first.
"""

from __future__ import annotations

import asyncio
import contextlib
import zlib
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any, NamedTuple

import orjson
from starlette.concurrency import run_in_threadpool

EVERY_SECONDS = 10.0
KEPT = 361
MOST_BYTES = 16 * 1024**2


class PastRecord(NamedTuple):
    at_ns: int
    squeezed: bytes


class Past:
    """``note`` and ``at`` may be called on any thread."""

    def __init__(self, stats: Callable[[], Mapping[str, Any]], most_bytes: int = MOST_BYTES) -> None:
        self._stats = stats
        self._most_bytes = most_bytes
        self._records: deque[PastRecord] = deque()
        self._bytes = 0
        self._lock = Lock()

    def note(self) -> None:
        """Keep the statistics of this moment."""
        stats = self._stats()
        squeezed = zlib.compress(orjson.dumps(stats, option=orjson.OPT_SERIALIZE_NUMPY), 1)
        record = PastRecord(stats["engine"]["now_ns"], squeezed)
        with self._lock:
            self._records.append(record)
            self._bytes += len(record.squeezed)
            while len(self._records) > KEPT or (self._bytes > self._most_bytes and len(self._records) > 1):
                self._bytes -= len(self._records.popleft().squeezed)

    def times_ns(self) -> list[int]:
        with self._lock:
            return [record.at_ns for record in self._records]

    def at(self, at_ns: int) -> list[Mapping[str, Any]]:
        """Return the record of this time, after the one before it where there is one; the first if all are later."""
        with self._lock:
            records = list(self._records)
        number = max(bisect_right([record.at_ns for record in records], at_ns) - 1, 0)
        return [orjson.loads(zlib.decompress(r.squeezed)) for r in records[max(number - 1, 0) : number + 1]]

    async def record(self) -> None:
        """Note the statistics every ten seconds, until it is cancelled."""
        while True:
            with contextlib.suppress(RuntimeError):  # the pool is closed: the daemon stops
                await run_in_threadpool(self.note)
            await asyncio.sleep(EVERY_SECONDS)
