"""One plain reader of an output: what waits for it, what its transport has, and its counts.

Readers share the bytes of a train. The account counts the bytes of a chunk once, from the first queue that it enters
until the last transport has sent it.

The outlet's lock (``subscribers.py``) guards everything here but the transport.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import NamedTuple

from catalog.readings import SubscriberReading


class EncodedTrain:
    """The bytes of a train, encoded once for all readers of an output."""

    __slots__ = ("data", "holders", "number", "since_ns", "tuples")

    def __init__(self, data: bytes, tuples: int, since_ns: int, number: int) -> None:
        self.data = data
        self.tuples = tuples
        self.since_ns = since_ns  # since when it waits
        self.number = number  # of all chunks of the output, in order
        self.holders = 0  # subscribers that have it in their queue or transport


class EncodedAccount:
    """The bytes of all chunks that some reader of an output holds."""

    def __init__(self) -> None:
        self.nbytes = 0
        self._number = 0

    def chunk(self, data: bytes, tuples: int, since_ns: int) -> EncodedTrain:
        self._number += 1
        return EncodedTrain(data, tuples, since_ns, self._number)

    def hold(self, chunk: EncodedTrain) -> None:
        if not chunk.holders:
            self.nbytes += len(chunk.data)
        chunk.holders += 1

    def free(self, chunk: EncodedTrain) -> None:
        chunk.holders -= 1
        if not chunk.holders:
            self.nbytes -= len(chunk.data)


class Handed(NamedTuple):
    """What the transport got in one write."""

    upto_bytes: int  # ``handed_bytes`` behind it
    tuples: int
    since_ns: int
    chunks: tuple[EncodedTrain, ...]


class Subscriber:
    """One plain reader on a socket."""

    __slots__ = (
        "_account", "delivered", "disconnecting", "dropped", "gap", "handed_bytes", "in_transport", "lag_ns", "name",
        "offered", "paused", "queue", "queued_bytes", "skipping", "transport",
    )  # fmt: skip

    def __init__(self, name: str, transport: asyncio.WriteTransport, account: EncodedAccount) -> None:
        self.name = name
        self.transport = transport
        self._account = account
        self.queue: deque[EncodedTrain] = deque()  # not yet with the transport
        self.queued_bytes = 0
        self.in_transport: deque[Handed] = deque()
        self.lag_ns = 0  # of the last tuples that were handed to the transport
        self.handed_bytes = 0  # to the transport, since the start
        self.paused = False  # the transport's buffer is full
        self.offered = 0
        self.delivered = 0
        self.dropped = 0
        self.gap = 0  # dropped since the last gap marker
        self.skipping = False  # drops trains until half of the buffer is free
        self.disconnecting = False  # too slow: the I/O thread disconnects it

    def put(self, chunk: EncodedTrain) -> None:
        self._account.hold(chunk)
        self.queue.append(chunk)
        self.queued_bytes += len(chunk.data)

    def take(self, most_bytes: int) -> tuple[EncodedTrain, ...]:
        """Take the next chunks, of about this size, for the transport."""
        chunks: list[EncodedTrain] = []
        size = 0
        while self.queue and size < most_bytes:
            chunks.append(self.queue.popleft())
            size += len(chunks[-1].data)
        self.queued_bytes -= size
        return tuple(chunks)

    def hand(self, nbytes: int, chunks: tuple[EncodedTrain, ...], now_ns: int) -> None:
        """Note that the transport has these chunks."""
        self.handed_bytes += nbytes
        tuples, since_ns = sum([chunk.tuples for chunk in chunks]), chunks[0].since_ns
        self.in_transport.append(Handed(self.handed_bytes, tuples, since_ns, chunks))
        self.lag_ns = now_ns - since_ns
        self.count_delivered()

    def count_delivered(self) -> None:
        """Count the tuples that the kernel has taken by now."""
        if self.in_transport and not self.transport.is_closing():
            taken = self.handed_bytes - self.transport.get_write_buffer_size()
            while self.in_transport and self.in_transport[0].upto_bytes <= taken:
                handed = self.in_transport.popleft()
                self.delivered += handed.tuples
                for chunk in handed.chunks:
                    self._account.free(chunk)

    @property
    def oldest(self) -> int | None:
        """Return the number of the oldest chunk that it holds."""
        handed = next((h for h in self.in_transport if h.chunks), None)
        if handed is not None:
            return handed.chunks[0].number
        return self.queue[0].number if self.queue else None

    def lagging_ns(self, now_ns: int) -> int:
        """Return how long the next tuple will take to the kernel, as far as it can be known."""
        waiting = now_ns
        if self.in_transport:
            waiting = self.in_transport[0].since_ns
        elif self.queue:
            waiting = self.queue[0].since_ns
        return max(self.lag_ns, now_ns - waiting if self.paused or self.queue else 0)

    @property
    def pending(self) -> int:
        return sum([chunk.tuples for chunk in self.queue]) + sum([handed.tuples for handed in self.in_transport])

    def drop_queue(self) -> bool:
        """Drop the tuples that wait; a gap marker will tell their number. False when there are none.

        What has no tuples stays: headers, and gap markers of earlier drops.
        """
        gone = [chunk for chunk in self.queue if chunk.tuples]
        self.queue = deque(chunk for chunk in self.queue if not chunk.tuples)
        for chunk in gone:
            self.queued_bytes -= len(chunk.data)
            self._account.free(chunk)
        tuples = sum([chunk.tuples for chunk in gone])
        self.dropped += tuples
        self.gap += tuples
        self.skipping = self.skipping or bool(gone)
        return bool(gone)

    def drop_pending(self) -> None:
        """Drop everything: the reader leaves."""
        self.dropped += self.pending
        for chunk in (*self.queue, *(chunk for handed in self.in_transport for chunk in handed.chunks)):
            self._account.free(chunk)
        self.queue.clear()
        self.in_transport.clear()
        self.queued_bytes = 0

    def reading(self) -> SubscriberReading:
        pending_bytes = self.queued_bytes
        if not self.transport.is_closing():
            pending_bytes += self.transport.get_write_buffer_size()
        return SubscriberReading(self.name, self.offered, self.delivered, self.pending, self.dropped, pending_bytes)
