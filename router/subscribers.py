"""From an output to its readers: encode once, queue for each reader, hand to the kernel, count every tuple.

The worker that made a train calls ``Outlet.deliver``, which encodes the train once for all subscribers. The I/O thread
only writes (at once, when it made the train itself). All deliveries between two turns of the event loop share one
wake-up. An outlet without subscribers costs an addition.

The bytes that wait for a subscriber have a limit. ``when_slow`` says what happens beyond it:

- ``drop``: the outlet leaves out whole trains for this subscriber until half of its buffer is free. Then a gap marker
  gives the number of missing tuples, and delivery goes on. Other subscribers are not affected.
- ``block``: the outlet drops nothing. It reports that it is blocked, and the scheduler does not run the boxes that feed
  it. When half of the buffer is free, the outlet reports that too. It still takes trains that were under way.
- ``disconnect``: the server disconnects the subscriber.

Readers that stopped at different places hold different trains, and there may be a thousand of them. So all readers of
an output together have a limit too (``ALL_BUFFERS``). Beyond it, with ``drop``, the reader that is furthest behind
loses what waits for it.

Law, for each subscriber: offered = delivered + pending + dropped. A tuple is delivered when the kernel has taken its
bytes; as long as they lie in the transport it is pending. Tuples that are pending when a subscriber leaves are dropped.

*Lag* is the time from the delivery of a train until the kernel has taken its bytes: encoding, the wait for the I/O
thread, and the wait for a slow reader. It is part of the latency that a user feels.

Threads: ``deliver`` on any worker; ``attach``, ``pump`` and ``detach`` on the I/O thread; the lock guards the queues
and is held for appends and pops only.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from threading import Lock, get_ident
from time import perf_counter_ns

from catalog.readings import SubscriberReading
from router.boundary import OutputGate, OutputHistory
from router.codecs.base import Encoder
from router.named_reader import FIRST_READ_BYTES, READ_BYTES, NamedReader
from router.plain_reader import EncodedAccount, EncodedTrain, Handed, Subscriber
from storage.train import Train

log = logging.getLogger("aurorad.router")

WRITE_BYTES = 256 * 1024
"""Handed to the transport at a time: enough to fill a socket's buffer, and little enough that most of the bytes that
wait stay in the subscriber's queue, where the limit applies."""
WRITES_BYTES, LEAST_WRITE_BYTES = 8 * 1024**2, 16 * 1024
"""All readers of an output share the first: many readers get less at a time. A thousand that do not read would
otherwise hold 256 MiB in their transports."""
ALL_BUFFERS = 2
"""All readers of an output hold at most this many times the buffer of one, beside their transports. Readers share the
bytes of a train, so only readers that stopped at different places come near it."""

TrainCallback = Callable[[Train], None]


class Wake:
    """Wakes the I/O thread for outlets that have something to write: one wake-up for any number of outlets."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._dirty: deque[Outlet] = deque()
        self._is_scheduled = False
        self.thread_id = 0  # of the loop, once it runs
        self.closed = False

    @property
    def is_io_thread(self) -> bool:
        """Whether the caller is the I/O thread itself."""
        return get_ident() == self.thread_id

    def __call__(self, outlet: Outlet) -> None:
        # First append, then look at the flag. _run clears the flag before it reads the entries, so it misses none.
        self._dirty.append(outlet)
        if not self._is_scheduled and not self.closed:
            self._is_scheduled = True
            if self.is_io_thread:  # saves the system call that wakes the loop
                self.loop.call_soon(self._run)
            else:
                self.loop.call_soon_threadsafe(self._run)

    def _run(self) -> None:
        self._is_scheduled = False
        # Only the entries that are there now: a later entry may stand for tuples that this round does not write.
        dirty = {id(outlet): outlet for outlet in [self._dirty.popleft() for _ in range(len(self._dirty))]}
        for outlet in dirty.values():
            outlet.pump()


class Outlet:
    """The readers of one output. The outlet calls ``gate`` to block the output (on a worker) and to release it (on the
    I/O thread). ``history`` holds the output's tuples on disk, for named readers.
    """

    def __init__(
        self,
        number: int,
        name: str,
        *,
        encoder: Encoder | None = None,
        wake: Wake | None = None,
        buffer_bytes: int = 8 * 1024**2,
        when_slow: str = "drop",
        gate: OutputGate | None = None,
        history: OutputHistory | None = None,
    ) -> None:
        self.number = number
        self.name = name
        self.emitted = 0
        self.blocked = False
        self._encoder = encoder
        self._wake = wake
        self._buffer_bytes = buffer_bytes
        self._when_slow = when_slow
        self._gate = gate
        self._delivery_lock = Lock()  # one delivery at a time: trains are queued in the order in which they are encoded
        self._lock = Lock()  # guards the subscribers' queues and counts
        self._gate_lock = Lock()  # held from a change of ``blocked`` until ``gate`` has returned
        self._subscribers: list[Subscriber] = []
        self._callbacks: list[tuple[str, TrainCallback]] = []
        self._callback_counts: dict[str, int] = {}
        self._gone = SubscriberReading("(gone)")  # the sums of the subscribers that have left
        self._account = EncodedAccount()  # guarded by the lock
        self.history = history
        self._named: list[NamedReader] = []

    # -- any thread ---------------------------------------------------------------------------------------------------

    def deliver(self, train: Train) -> None:
        """Give a train to all subscribers. On the thread that made it."""
        with self._delivery_lock:
            self.emitted += train.count
            if not train.count:
                return
            since_ns = perf_counter_ns()
            for name, callback in self._callbacks:
                self._call_back(name, callback, train)
            if self._subscribers:
                assert self._encoder is not None and self._wake is not None
                data = self._encoder.encode(train)
                if self._wake.is_io_thread:
                    self._write(data, train.count, since_ns)
                else:
                    self._queue(data, train.count, since_ns)
                    self._wake(self)

    def history_grew(self) -> None:
        """Wake the named readers: more of the history is on disk."""
        if self._named and self._wake is not None:
            self._wake(self)

    def subscribe(self, callback: TrainCallback, name: str = "in process") -> Callable[[], None]:
        """Call a function with every train from now on, on the thread that made it. Return a function that stops it."""
        with self._delivery_lock:
            name = f"{name} {len(self._callback_counts) + 1}"
            entry = (name, callback)
            self._callback_counts[name] = 0
            self._callbacks = [*self._callbacks, entry]

        def stop() -> None:
            with self._delivery_lock:
                self._callbacks = [e for e in self._callbacks if e is not entry]

        return stop

    @property
    def not_finite(self) -> int:
        """Return how many NaN and infinite values went out without a number for them."""
        return 0 if self._encoder is None else self._encoder.not_finite

    @property
    def has_subscribers(self) -> bool:
        return bool(self._subscribers or self._callbacks)

    def readings(self) -> list[SubscriberReading]:
        """Return a reading for each subscriber, and one for all that have left."""
        with self._lock:
            for s in self._subscribers:
                s.count_delivered()
            out = [s.reading() for s in self._subscribers]
        out += [SubscriberReading(n, c, c) for n, c in self._callback_counts.items()]
        out += [reader.reading() for reader in self._named]
        return [*out, self._gone] if self._gone.offered else out

    @property
    def lag_ns(self) -> int:
        """The lag of the slowest reader. Any thread."""
        now_ns = perf_counter_ns()
        with self._lock:
            for s in self._subscribers:
                s.count_delivered()
            return max((s.lagging_ns(now_ns) for s in self._subscribers), default=0)

    @property
    def is_drained(self) -> bool:
        with self._lock:
            for s in self._subscribers:
                s.count_delivered()
            return not any(s.queue or s.in_transport for s in self._subscribers)

    def _call_back(self, name: str, callback: TrainCallback, train: Train) -> None:
        try:
            callback(train)
        except Exception:
            # An error of a subscriber must not end the worker that calls it: remove the subscriber, and log the error.
            log.exception("a subscriber of output %s failed and was removed", self.name)
            self._callbacks = [e for e in self._callbacks if e[1] is not callback]
        else:
            self._callback_counts[name] += train.count

    def _queue(self, data: bytes, tuples: int, since_ns: int) -> None:
        is_full = False
        with self._lock:
            chunk = self._account.chunk(data, tuples, since_ns)
            for s in self._subscribers:
                s.offered += tuples
                full = s.queued_bytes > 0 and s.queued_bytes + len(data) > self._buffer_bytes
                if s.disconnecting or (self._when_slow == "drop" and (s.skipping or full)):
                    s.dropped += tuples
                    s.gap += tuples
                    s.skipping = True
                elif full and self._when_slow == "disconnect":
                    s.disconnecting = True
                    s.dropped += tuples
                else:
                    s.put(chunk)
                    is_full = is_full or full
            most_bytes = ALL_BUFFERS * (self._buffer_bytes + len(data)) + WRITES_BYTES
            if self._when_slow == "drop" and self._account.nbytes > most_bytes:
                self._relieve(most_bytes)
        if is_full:
            self._block()

    def _relieve(self, limit_bytes: int) -> None:
        """Have the readers that are furthest behind drop what waits for them, until all together hold at most this
        much. A reader that still holds old trains in its transport is disconnected. Under the lock."""
        while self._account.nbytes > limit_bytes:
            holding = [s for s in self._subscribers if s.oldest is not None and not s.disconnecting]
            last = min(holding, key=_oldest, default=None)
            if last is None or _oldest(last) == max(map(_oldest, holding)):
                return  # they share what they hold
            if not last.drop_queue():
                last.disconnecting = True

    def _block(self) -> None:
        # The lock covers the change and the call: a release must not overtake a block on its way to the scheduler.
        with self._gate_lock:
            with self._lock:
                if self.blocked or not any(s.queued_bytes > self._buffer_bytes for s in self._subscribers):
                    return
                self.blocked = True
            if self._gate is not None:
                self._gate(self.number, True)

    # -- the I/O thread -----------------------------------------------------------------------------------------------

    def attach(self, name: str, transport: asyncio.WriteTransport) -> Subscriber:
        assert self._encoder is not None
        subscriber = Subscriber(name, transport, self._account)
        with self._lock:
            if header := self._encoder.begin():
                subscriber.put(self._account.chunk(header, 0, perf_counter_ns()))
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

    def named(self, name: str) -> list[NamedReader]:
        """Return the connections that read under this name."""
        return [reader for reader in self._named if reader.name == name]

    @property
    def history_read_bytes(self) -> int:
        """Return the most that a named reader may read at a time: what it does not take stays in its transport."""
        return max(FIRST_READ_BYTES, min(READ_BYTES, WRITES_BYTES // max(1, len(self._named))))

    def attach_named(self, reader: NamedReader) -> None:
        self._named = [*self._named, reader]

    def detach_named(self, reader: NamedReader) -> None:
        self._named = [r for r in self._named if r is not reader]

    @property
    def encoder(self) -> Encoder:
        assert self._encoder is not None
        return self._encoder

    def _write(self, data: bytes, tuples: int, since_ns: int) -> None:
        """Write a train at once. The transport joins the writes of one turn of the loop."""
        if len(self._subscribers) == 1:  # the usual case: without the queue it takes 4 us instead of 9
            s = self._subscribers[0]
            with self._lock:
                is_full = bool(s.queue) or s.paused or s.skipping
                writes_at_once = not (is_full or s.disconnecting or s.transport.is_closing())
                if writes_at_once:
                    s.count_delivered()
                    s.offered += tuples
                    s.handed_bytes += len(data)
                    s.in_transport.append(Handed(s.handed_bytes, tuples, since_ns, ()))
                    s.lag_ns = perf_counter_ns() - since_ns
            if writes_at_once:
                s.transport.write(data)  # may call pause_writing
                return
        self._queue(data, tuples, since_ns)
        self.pump()

    def pump(self) -> None:
        """Write what waits, as far as the transports take it."""
        for reader in self._named:
            reader.pump()
        for subscriber in self._subscribers:
            self._pump(subscriber)
        self._unblock()

    def resume(self, subscriber: Subscriber) -> None:
        """Go on writing: the transport takes more."""
        subscriber.paused = False
        self._pump(subscriber)
        self._unblock()

    def _pump(self, s: Subscriber) -> None:
        if s.disconnecting:
            log.warning("output %s: disconnected %s, which reads too slowly", self.name, s.name)
            s.transport.abort()
            return
        while not s.paused and not s.transport.is_closing():
            with self._lock:
                chunks = self._next_chunks(s)
            if not chunks:
                break
            data = chunks[0].data if len(chunks) == 1 else b"".join([chunk.data for chunk in chunks])
            s.transport.write(data)  # may call pause_writing
            with self._lock:
                s.hand(len(data), chunks, perf_counter_ns())

    def _next_chunks(self, s: Subscriber) -> tuple[EncodedTrain, ...]:
        """Take the next chunks for the transport. A gap marker comes as soon as there is room for what follows."""
        most = max(LEAST_WRITE_BYTES, min(WRITE_BYTES, WRITES_BYTES // len(self._subscribers or (s,))))
        chunks = s.take(most)
        if s.skipping and s.queued_bytes <= self._buffer_bytes // 2:
            assert self._encoder is not None
            s.put(self._account.chunk(self._encoder.gap(s.gap), 0, perf_counter_ns()))
            s.gap = 0
            s.skipping = False
            if not chunks:
                return self._next_chunks(s)
        return chunks

    def _unblock(self) -> None:
        seems_blocked = self.blocked  # checked again under the lock
        if not seems_blocked:
            return
        with self._gate_lock:
            with self._lock:
                if any(s.queued_bytes > self._buffer_bytes // 2 for s in self._subscribers):
                    return
                was_blocked, self.blocked = self.blocked, False
            if was_blocked and self._gate is not None:
                self._gate(self.number, False)

    def close(self) -> None:
        """End every connection with the format's end. Bytes that the kernel does not take at once are dropped."""
        for reader in self._named:
            reader.close()
        for s in self._subscribers:
            if self._encoder is not None and not s.transport.is_closing() and not s.queue:
                s.transport.write(self._encoder.end())
            s.transport.close()


def _oldest(s: Subscriber) -> int:
    return -1 if s.oldest is None else s.oldest
