"""Outputs to their readers: encode once, queue for each, hand to the kernel, count every tuple.

``Outlet.deliver`` runs on the worker that made the train and encodes there, once for all subscribers; the I/O thread
only writes (at once, where it made the train itself). Many deliveries between two turns of the loop cost one wake. An
outlet that nobody listens to costs an addition.

A subscriber has a bound on bytes that wait for it. Beyond it, by ``when_slow``:

- ``drop``: whole trains are left out for this subscriber until half of its buffer is free again, then a gap marker
  says how many tuples are missing, and it goes on. Nobody else notices.
- ``block``: nothing is left out; the outlet says that it is blocked, the scheduler rests the boxes that feed it, and
  it says so again when half of the buffer is free. Trains that were already on their way are taken.
- ``disconnect``: the subscriber is cut off.

Law, for each subscriber: offered = delivered + pending + dropped. Delivered is what the kernel has taken, counted by
bytes: what still lies in the transport is pending. What was pending when a subscriber went away is dropped.

Threads: ``deliver`` on any worker; ``attach``, ``pump`` and ``detach`` on the I/O thread; the lock guards the queues
and is held for appends and pops only.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from threading import Lock, get_ident

from catalog.readings import SubscriberReading
from router.codecs.base import Encoder
from router.named import History, NamedReader
from storage.train import Train

log = logging.getLogger("aurorad.router")

WRITE_BYTES = 256 * 1024
"""Handed to the transport at a time: enough to fill a socket's buffer, little enough that pending bytes stay ours."""

TrainCallback = Callable[[Train], None]


class Wake:
    """Brings dirty outlets to the I/O thread: one hop however many there are."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._dirty: deque[Outlet] = deque()
        self._armed = False
        self.thread_id = 0  # of the loop, once it runs
        self.closed = False

    @property
    def is_here(self) -> bool:
        """Whether the caller is the I/O thread itself."""
        return get_ident() == self.thread_id

    def __call__(self, outlet: Outlet) -> None:
        # First the entry, then the flag: the run clears the flag before it looks, so an entry is never left behind.
        self._dirty.append(outlet)
        if not self._armed and not self.closed:
            self._armed = True
            if self.is_here:  # no hop, so no system call to wake anyone
                self._loop.call_soon(self._run)
            else:
                self._loop.call_soon_threadsafe(self._run)

    def _run(self) -> None:
        self._armed = False
        # Only what is there now: an entry that comes while an outlet is pumped may be for tuples that came after it.
        dirty = {id(outlet): outlet for outlet in [self._dirty.popleft() for _ in range(len(self._dirty))]}
        for outlet in dirty.values():
            outlet.pump()


class Subscriber:
    """One reader on a socket. Everything but the transport is guarded by the outlet's lock."""

    __slots__ = (
        "cut", "delivered", "dropped", "gap", "handed_bytes", "in_transport", "name", "offered", "paused", "queue",
        "queued_bytes", "skipping", "transport",
    )  # fmt: skip

    def __init__(self, name: str, transport: asyncio.WriteTransport) -> None:
        self.name = name
        self.transport = transport
        self.queue: deque[tuple[bytes, int]] = deque()  # (bytes, tuples) not yet handed to the transport
        self.queued_bytes = 0
        self.in_transport: deque[tuple[int, int]] = deque()  # (handed_bytes after it, tuples) not yet in the kernel
        self.handed_bytes = 0
        self.paused = False  # the transport has enough for now
        self.offered = 0
        self.delivered = 0
        self.dropped = 0
        self.gap = 0  # dropped since the last gap marker
        self.skipping = False  # too slow: until half of the buffer is free
        self.cut = False  # to be disconnected

    def put(self, data: bytes, tuples: int) -> None:
        self.queue.append((data, tuples))
        self.queued_bytes += len(data)

    def settle(self) -> None:
        """Count what the kernel has taken by now."""
        if self.in_transport and not self.transport.is_closing():
            taken = self.handed_bytes - self.transport.get_write_buffer_size()
            while self.in_transport and self.in_transport[0][0] <= taken:
                self.delivered += self.in_transport.popleft()[1]

    @property
    def pending(self) -> int:
        return sum(t for _, t in self.queue) + sum(t for _, t in self.in_transport)

    def drop_pending(self) -> None:
        self.dropped += self.pending
        self.queue.clear()
        self.in_transport.clear()
        self.queued_bytes = 0

    def reading(self) -> SubscriberReading:
        pending_bytes = self.queued_bytes
        if not self.transport.is_closing():
            pending_bytes += self.transport.get_write_buffer_size()
        return SubscriberReading(self.name, self.offered, self.delivered, self.pending, self.dropped, pending_bytes)


class Outlet:
    """One output's readers. ``on_blocked(output, blocked)`` is called on a worker (True) or the I/O thread (False)."""

    def __init__(
        self,
        number: int,
        name: str,
        *,
        encoder: Encoder | None = None,
        wake: Wake | None = None,
        buffer_bytes: int = 8 * 1024**2,
        when_slow: str = "drop",
        on_blocked: Callable[[int, bool], None] | None = None,
    ) -> None:
        self.number = number
        self.name = name
        self.emitted = 0
        self.blocked = False
        self._encoder = encoder
        self._wake = wake
        self._buffer_bytes = buffer_bytes
        self._when_slow = when_slow
        self._on_blocked = on_blocked
        self._order = Lock()  # deliveries one after another: what is encoded first is queued first
        self._lock = Lock()
        self._switch = Lock()  # from a change of ``blocked`` until the scheduler has been told
        self._subscribers: list[Subscriber] = []
        self._callbacks: list[tuple[str, TrainCallback]] = []
        self._callback_counts: dict[str, int] = {}
        self._gone = SubscriberReading("(gone)")  # sums over the subscribers that have left
        self.history: History | None = None  # where it is kept on disk
        self._named: list[NamedReader] = []

    # -- any thread ---------------------------------------------------------------------------------------------------

    def deliver(self, train: Train) -> None:
        with self._order:
            self.emitted += train.count
            if not train.count:
                return
            for name, callback in self._callbacks:
                self._call(name, callback, train)
            if self._subscribers:
                assert self._encoder is not None and self._wake is not None
                data = self._encoder.encode(train)
                if self._wake.is_here:
                    self._write(data, train.count)
                else:
                    self._queue(data, train.count)
                    self._wake(self)

    def history_grew(self) -> None:
        """More of the history may be read."""
        if self._named and self._wake is not None:
            self._wake(self)

    def subscribe(self, callback: TrainCallback, name: str = "in process") -> Callable[[], None]:
        """Hand every train from now on to a callable, on the thread that made it. Returns how to stop that."""
        with self._order:
            name = f"{name} {len(self._callback_counts) + 1}"
            entry = (name, callback)
            self._callback_counts[name] = 0
            self._callbacks = [*self._callbacks, entry]

        def stop() -> None:
            with self._order:
                self._callbacks = [e for e in self._callbacks if e is not entry]

        return stop

    @property
    def has_subscribers(self) -> bool:
        return bool(self._subscribers or self._callbacks)

    def readings(self) -> list[SubscriberReading]:
        """One for each subscriber, and one for all that have left."""
        with self._lock:
            for s in self._subscribers:
                s.settle()
            out = [s.reading() for s in self._subscribers]
        out += [SubscriberReading(n, c, c) for n, c in self._callback_counts.items()]
        out += [reader.reading() for reader in self._named]
        return [*out, self._gone] if self._gone.offered else out

    @property
    def is_drained(self) -> bool:
        with self._lock:
            for s in self._subscribers:
                s.settle()
            return not any(s.queue or s.in_transport for s in self._subscribers)

    def _call(self, name: str, callback: TrainCallback, train: Train) -> None:
        try:
            callback(train)
        except Exception:
            # A reader's mistake must not end the worker that happens to serve it: it loses its place, loudly.
            log.exception("a subscriber of output %s failed and was removed", self.name)
            self._callbacks = [e for e in self._callbacks if e[1] is not callback]
        else:
            self._callback_counts[name] += train.count

    def _queue(self, data: bytes, tuples: int) -> None:
        is_full = False
        with self._lock:
            for s in self._subscribers:
                s.offered += tuples
                full = s.queued_bytes > 0 and s.queued_bytes + len(data) > self._buffer_bytes
                if s.cut or (self._when_slow == "drop" and (s.skipping or full)):
                    s.dropped += tuples
                    s.gap += tuples
                    s.skipping = True
                elif full and self._when_slow == "disconnect":
                    s.cut = True
                    s.dropped += tuples
                else:
                    s.put(data, tuples)
                    is_full = is_full or full
        if is_full:
            self._block()

    def _block(self) -> None:
        # Said under the lock that guards the switch: "free" must not overtake "blocked" on its way to the scheduler.
        with self._switch:
            with self._lock:
                if self.blocked or not any(s.queued_bytes > self._buffer_bytes for s in self._subscribers):
                    return
                self.blocked = True
            if self._on_blocked is not None:
                self._on_blocked(self.number, True)

    # -- the I/O thread -----------------------------------------------------------------------------------------------

    def attach(self, name: str, transport: asyncio.WriteTransport) -> Subscriber:
        assert self._encoder is not None
        subscriber = Subscriber(name, transport)
        with self._lock:
            if header := self._encoder.begin():
                subscriber.put(header, 0)
            self._subscribers = [*self._subscribers, subscriber]
        self._pump(subscriber)
        return subscriber

    def detach(self, subscriber: Subscriber) -> None:
        with self._lock:
            subscriber.drop_pending()
            self._subscribers = [s for s in self._subscribers if s is not subscriber]
            gone, left = self._gone, subscriber
            self._gone = SubscriberReading(
                gone.name, gone.offered + left.offered, gone.delivered + left.delivered, 0, gone.dropped + left.dropped
            )
        self._unblock()

    def attach_named(self, reader: NamedReader) -> None:
        self._named = [*self._named, reader]

    def detach_named(self, reader: NamedReader) -> None:
        self._named = [r for r in self._named if r is not reader]

    @property
    def encoder(self) -> Encoder:
        assert self._encoder is not None
        return self._encoder

    def _write(self, data: bytes, tuples: int) -> None:
        """Hand a train on at once: the transport gathers what is written in one turn of the loop."""
        if len(self._subscribers) == 1:  # the usual case past the queue, 4 us for 9
            s = self._subscribers[0]
            with self._lock:
                straight = not (s.queue or s.paused or s.skipping or s.cut) and not s.transport.is_closing()
                if straight:
                    s.settle()
                    s.offered += tuples
                    s.handed_bytes += len(data)
                    s.in_transport.append((s.handed_bytes, tuples))
            if straight:
                s.transport.write(data)  # may call pause_writing
                return
        self._queue(data, tuples)
        self.pump()

    def pump(self) -> None:
        """Hand on what waits, as far as the transports take it."""
        for reader in self._named:
            reader.pump()
        for subscriber in self._subscribers:
            self._pump(subscriber)
        self._unblock()

    def resume(self, subscriber: Subscriber) -> None:
        """The transport takes more."""
        subscriber.paused = False
        self._pump(subscriber)
        self._unblock()

    def _pump(self, s: Subscriber) -> None:
        if s.cut:
            log.warning("output %s: %s reads too slowly and is disconnected", self.name, s.name)
            s.transport.abort()
            return
        while not s.paused and not s.transport.is_closing():
            with self._lock:
                data, tuples = self._next(s)
            if not data:
                break
            s.transport.write(data)  # may call pause_writing
            with self._lock:
                s.handed_bytes += len(data)
                s.in_transport.append((s.handed_bytes, tuples))
                s.settle()

    def _next(self, s: Subscriber) -> tuple[bytes, int]:
        """The next piece for the transport; a gap marker once there is room for what follows it."""
        chunks: list[bytes] = []
        size = tuples = 0
        while s.queue and size < WRITE_BYTES:
            data, count = s.queue.popleft()
            chunks.append(data)
            size += len(data)
            tuples += count
        s.queued_bytes -= size
        if s.skipping and s.queued_bytes <= self._buffer_bytes // 2:
            assert self._encoder is not None
            s.put(self._encoder.gap(s.gap), 0)
            s.gap = 0
            s.skipping = False
            if not chunks:
                return self._next(s)
        return (chunks[0] if len(chunks) == 1 else b"".join(chunks)), tuples

    def _unblock(self) -> None:
        seems_blocked = self.blocked  # looked at again under the lock
        if not seems_blocked:
            return
        with self._switch:
            with self._lock:
                if any(s.queued_bytes > self._buffer_bytes // 2 for s in self._subscribers):
                    return
                was_blocked, self.blocked = self.blocked, False
            if was_blocked and self._on_blocked is not None:
                self._on_blocked(self.number, False)

    def close(self) -> None:
        """End every connection properly; what the kernel does not take at once is dropped with the transport."""
        for reader in self._named:
            reader.close()
        for s in self._subscribers:
            if self._encoder is not None and not s.transport.is_closing() and not s.queue:
                s.transport.write(self._encoder.end())
            s.transport.close()
