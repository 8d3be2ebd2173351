"""A link to the server on an asyncio event loop, with the methods of ``link.py`` as coroutines.

Up to ``PAUSE_BYTES`` of received bytes wait here for the task that reads them; then the transport stops reading.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import ssl
import time
from typing import cast

from aurorad_client.errors import ClosedError, UntrustedError
from aurorad_client.events import ClientProtocol, NewEpoch, Welcomed
from aurorad_client.patience import Backoff, Endpoint

PAUSE_BYTES = 1024**2


class _Pipe(asyncio.Protocol):
    """The bytes of one connection, between the event loop and one task."""

    def __init__(self) -> None:
        self._received: list[bytes] = []
        self._size = 0
        self._is_paused = False
        self._has_ended = False
        self._readable = asyncio.Event()  # bytes, or the end
        self._writable = asyncio.Event()
        self._writable.set()
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received.append(data)
        self._size += len(data)
        self._readable.set()
        if self._size >= PAUSE_BYTES and self.transport is not None:
            self._is_paused = True
            self.transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._has_ended = True
        self._readable.set()
        self._writable.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    async def send(self, data: bytes, timeout_s: float) -> None:
        """Write, and wait while the socket is full; TimeoutError, which is an OSError, when it stays full."""
        if self._has_ended or self.transport is None:
            raise ConnectionError("the server closed the connection")
        self.transport.write(data)
        if not self._writable.is_set():
            async with asyncio.timeout(timeout_s):
                await self._writable.wait()

    async def receive(self, timeout_s: float | None) -> bytes | None:
        """Return the bytes that have come; b"" at the end of the connection, None when nothing came in time."""
        if not self._readable.is_set():
            if timeout_s is not None and timeout_s <= 0:
                return None
            try:
                async with asyncio.timeout(timeout_s):
                    await self._readable.wait()
            except TimeoutError:
                return None
        data = b"".join(self._received)
        self._received, self._size = [], 0
        if not self._has_ended:
            self._readable.clear()
            if self._is_paused and self.transport is not None:
                self._is_paused = False
                self.transport.resume_reading()
        return data

    def close(self) -> None:
        if self.transport is not None:
            self.transport.close()


class AsyncLink:
    """``send`` and ``receive`` raise OSError when the connection breaks; the caller then calls ``reconnect``."""

    def __init__(self, endpoint: Endpoint, protocol: ClientProtocol) -> None:
        self._endpoint = endpoint
        self._protocol = protocol
        self._pipe: _Pipe | None = None
        self.is_closed = False
        self.reconnects = -1  # the first connection makes it 0

    @property
    def is_connected(self) -> bool:
        return self._pipe is not None

    async def send(self, data: bytes) -> None:
        await self._connected().send(data, self._endpoint.timeout_s)

    async def receive(self, timeout_s: float | None) -> bool:
        """Give the next bytes to the protocol. False when none came in time; None: wait without limit."""
        data = await self._connected().receive(timeout_s)
        if data is None:
            return False
        if not data:
            self._protocol.receive_end()
            raise ConnectionError("the server closed the connection")
        self._protocol.receive_data(data)
        return True

    async def reconnect(self) -> None:
        """Connect until the server welcomes this client. Raises a ClientError, and closes, when that cannot be."""
        backoff = Backoff(self._endpoint, time.monotonic())
        while True:
            self.check_open()
            self._disconnect()
            try:
                is_welcome = await self._connect()
            except OSError as error:
                if not self.is_closed:
                    await asyncio.sleep(self._pause_s(backoff, error))
            except asyncio.CancelledError:
                self._disconnect()  # the next call connects
                raise
            except BaseException:
                self.close()
                raise
            else:
                if is_welcome:
                    self.reconnects += 1
                    return

    async def recover(self) -> bool:
        """Reconnect. False when the connection broke because ``close`` was called."""
        if not self.is_closed:
            await self.reconnect()
        return not self.is_closed

    def close(self) -> None:
        """Close for good, and wake a task that waits in ``receive``."""
        self.is_closed = True
        self._disconnect()

    def check_open(self) -> None:
        if self.is_closed:
            raise ClosedError("used after close")

    async def _connect(self) -> bool:
        """Connect and wait for the welcome. False when the protocol wants another connection."""
        handshake_s = self._endpoint.handshake_s
        async with asyncio.timeout(handshake_s):
            self._pipe = pipe = await _open(self._endpoint)
        await pipe.send(self._protocol.connect(secrets.token_hex(16)), handshake_s)
        while not isinstance(event := self._protocol.next_event(), (Welcomed, NewEpoch)):
            if event is None and not await self.receive(handshake_s):
                raise ConnectionError("no welcome in time: is it the port of a stream or an output?")
        if again := self._protocol.after_welcome():
            await pipe.send(again, handshake_s)
        return isinstance(event, Welcomed)

    def _pause_s(self, backoff: Backoff, error: OSError) -> float:
        try:
            return backoff.pause_s(time.monotonic(), error)
        except BaseException:
            self.close()
            raise

    def _connected(self) -> _Pipe:
        if self._pipe is None:
            raise ConnectionError("not connected")
        return self._pipe

    def _disconnect(self) -> None:
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            pipe.close()


async def _open(endpoint: Endpoint) -> _Pipe:
    loop = asyncio.get_running_loop()
    try:
        transport, pipe = await loop.create_connection(_Pipe, endpoint.host, endpoint.port, ssl=endpoint.tls)
    except ssl.SSLCertVerificationError as error:
        raise UntrustedError(f"{endpoint}: {error.verify_message}") from error
    if transport.get_extra_info("sockname") == transport.get_extra_info("peername"):
        # No server listens there, and the kernel gave this socket the port that it tried to reach.
        transport.abort()
        raise ConnectionRefusedError("connected to itself")
    transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return pipe
