"""The async forms: ``AsyncSender`` and ``AsyncReader`` on asyncio, with the promises of ``Sender`` and ``Reader``.

Both connect when their ``async with`` block begins. The constructor does no I/O.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from types import TracebackType

from aurorad_client.aio_link import AsyncLink
from aurorad_client.errors import RejectedRowsError
from aurorad_client.events import DeliveredRows, Receipt
from aurorad_client.patience import AckDeadline
from aurorad_client.rows import Rows
from aurorad_client.settings import Auth, Tls, make_endpoint, make_reader_protocol, make_sender_protocol
from aurorad_client.standing import SenderStanding


class AsyncSender(SenderStanding):
    """``Sender`` for asyncio. Several tasks may share one: they take turns."""

    def __init__(
        self,
        host: str,
        port: int,
        source: str,
        *,
        epoch: int | None = None,
        ack: str = "disk",
        format: str = "ndjson",
        window: int = 64,
        timeout_s: float = 60.0,
        strict: bool = False,
        auth: Auth = None,
        tls: Tls = False,
    ) -> None:
        """Take the arguments of ``Sender``. ``connect``, or ``async with``, connects."""
        super().__init__(make_sender_protocol(source, epoch, ack, format, window, auth))
        self._window = window
        self._strict = strict
        self._timeout_s = timeout_s
        self._link = AsyncLink(make_endpoint(host, port, timeout_s, tls), self._protocol)
        self._turn = asyncio.Lock()

    @property
    def reconnects(self) -> int:
        return self._link.reconnects

    async def connect(self) -> None:
        """Connect and wait for the server's welcome."""
        async with self._turn:
            if not self._link.is_connected:
                await self._link.reconnect()

    async def send(self, rows: Rows) -> int:
        """Send one batch and return its number. Wait only while ``window`` batches are unacknowledged."""
        async with self._turn:
            self._link.check_open()
            self._protocol.add(rows)
            await self._exchange(self._window)
            return self._protocol.last

    async def poll(self) -> None:
        """Send what is left to send and take the answers that have come, without waiting for more."""
        async with self._turn:
            self._link.check_open()
            await self._exchange(None)

    async def flush(self) -> Receipt:
        """Wait until every batch is acknowledged. Return what the server refused since the last flush."""
        async with self._turn:
            self._link.check_open()
            await self._exchange(0)
            return self._protocol.receipt()

    async def close(self) -> None:
        """Close without waiting for acknowledgements."""
        self._link.close()

    async def __aenter__(self) -> AsyncSender:
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        """Wait for the last acknowledgement, unless an error ends the block, and close."""
        try:
            if kind is None and not self._link.is_closed:
                await self.flush()
        finally:
            await self.close()

    async def _exchange(self, most: int | None) -> None:
        """Send unsent batches and read answers until at most ``most`` are unacknowledged. None: do not wait."""
        progress = AckDeadline(self._timeout_s, self.acknowledged, time.monotonic())
        while True:
            try:
                await self._send_unsent()
                is_done = self._has_at_most(most)
                await self._link.receive(0.0 if is_done else self._wait_s(progress, time.monotonic()))
                self._take_events(time.monotonic())
                is_done = is_done or self._has_at_most(most)
            except OSError:
                await self._link.reconnect()
                is_done = False  # the batches that were not acknowledged go out again
            if is_done:
                break
            progress.check(self.acknowledged, self.refusal, time.monotonic())
        if self._strict and self._protocol.has_new_rejects:
            news = self._protocol.receipt()
            raise RejectedRowsError(news.rejected, news.reasons)

    async def _send_unsent(self) -> None:
        while self._may_send(time.monotonic()) and (data := self._protocol.next_batch()) is not None:
            await self._link.send(data)
            await self._link.receive(0.0)
            self._take_events(time.monotonic())
        await asyncio.sleep(0)  # a sender that never waits must not keep the event loop


class AsyncBatch:
    """Rows with consecutive numbers, ``first`` to ``last``. See ``reader.py`` for ``is_repeat`` and ``missing``."""

    __slots__ = ("_reader", "first", "is_repeat", "last", "missing", "rows")

    def __init__(self, reader: AsyncReader, delivered: DeliveredRows) -> None:
        self._reader = reader
        self.first = delivered.first
        self.last = delivered.last
        self.rows: Rows = delivered.rows
        self.is_repeat = delivered.is_repeat
        self.missing = delivered.missing

    async def ack(self) -> None:
        """Acknowledge this batch and all before it."""
        await self._reader.ack(self.last)


class AsyncReader:
    """``Reader`` for asyncio: an endless async iterator over the batches of an output."""

    def __init__(
        self,
        host: str,
        port: int,
        name: str | None = None,
        *,
        after: int | None = None,
        format: str = "ndjson",
        timeout_s: float = 60.0,
        idle_s: float | None = None,
        auth: Auth = None,
        tls: Tls = False,
    ) -> None:
        """Take the arguments of ``Reader``. ``connect``, ``async with`` or the first batch connects."""
        self._name = name
        self._protocol = make_reader_protocol(name, after, format, auth)
        self._idle_s = idle_s
        self._link = AsyncLink(make_endpoint(host, port, timeout_s, tls), self._protocol)

    @property
    def after(self) -> int:
        """The number of the last row that the caller has got."""
        return self._protocol.after or 0

    @property
    def reconnects(self) -> int:
        return self._link.reconnects

    async def connect(self) -> None:
        """Connect and wait for the welcome. From then on the server keeps the output for this name."""
        if not self._link.is_connected:
            await self._link.reconnect()

    def __aiter__(self) -> AsyncIterator[AsyncBatch]:
        """Iterate over the batches, until ``close`` or until ``idle_s`` passes without one."""
        self._link.check_open()
        return self._batches()

    async def _batches(self) -> AsyncIterator[AsyncBatch]:
        await self.connect()
        while not self._link.is_closed:
            event = self._protocol.next_event()
            if isinstance(event, DeliveredRows):
                yield AsyncBatch(self, event)
            elif event is None:
                try:
                    if not await self._link.receive(self._idle_s):
                        return
                except OSError:
                    if not await self._link.recover():
                        return

    async def ack(self, number: int) -> None:
        """Acknowledge all rows up to this number."""
        data = self._protocol.ack(number)
        if not data:
            return  # a reader without a name has no place to store
        try:
            await self._link.send(data)
        except OSError:
            pass  # the next connection repeats it after its welcome

    async def forget(self) -> None:
        """Give the name up and close: the server keeps nothing for it any more."""
        self._link.check_open()
        if self._name is None:
            raise ValueError("this reader has no name")
        try:
            await self._link.send(self._protocol.forget())
            while await self._link.receive(None):
                pass  # the server closes when it has forgotten the name
        except ConnectionError:
            pass
        await self.close()

    async def close(self) -> None:
        """Close. A loop over this reader ends; the server keeps the place of its name."""
        self._link.close()

    async def __aenter__(self) -> AsyncReader:
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()
