"""The connection of a reader: the transport of a plain subscriber, or of a named reader once it has sent hello.

Owner: the I/O thread.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from router.boundary import TooManyNamesError
from router.client_protocol import (
    Ack,
    Forget,
    ReaderFramer,
    ReaderHello,
    SessionError,
    begins_with_hello,
    check_format,
    encode_line,
)
from router.connection import peer_name, set_tcp_options
from router.named_reader import NamedReader
from router.plain_reader import Subscriber
from router.subscribers import Outlet

if TYPE_CHECKING:
    from router.server import Server


class SinkConnection(asyncio.Protocol):
    """The connection of a reader: plain, or named once it has sent hello (``client_protocol.py``).

    The bytes that a plain reader sends are ignored.
    """

    def __init__(self, server: Server, outlet: Outlet) -> None:
        self._server = server
        self._outlet = outlet
        self._subscriber: Subscriber | None = None
        self.is_silent = False  # a reader need not send anything
        self.transport: asyncio.Transport | None = None
        self._first_bytes: bytes | None = b""  # None once they show whether the reader uses the client protocol
        self._framer: ReaderFramer | None = None
        self._reader: NamedReader | None = None
        self._is_tls = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        set_tcp_options(transport)
        self._is_tls = transport.get_extra_info("ssl_object") is not None
        if self._server.register(self):
            self.attach()

    def attach(self) -> None:
        """Begin to get tuples."""
        assert self.transport is not None
        self._subscriber = self._outlet.attach(peer_name(self.transport), self.transport)

    def check_name(self, name: str) -> None:
        """Refuse a client that may not use this name of a reader. Raises SessionError. Here everybody may."""

    def eof_received(self) -> bool:
        # A reader may close its sending side and read on: `nc host port < /dev/null`. It may be gone as well.
        if self._is_tls:
            return False
        self._server.reader_ended_input(self)
        if self._reader is not None:
            self._reader.may_be_gone = True
        return True

    def data_received(self, data: bytes) -> None:
        if self._first_bytes is not None:
            data = self._first_bytes + data
            is_hello = begins_with_hello(data)
            self._first_bytes = data if is_hello is None else None
            if is_hello:
                self._framer = ReaderFramer()
        if self._framer is not None:
            try:
                for message in self._framer.receive(data):
                    self._handle(message)
            except (SessionError, TooManyNamesError) as error:
                self._close_with_error(str(error))

    def _handle(self, message: ReaderHello | Ack | Forget) -> None:
        if isinstance(message, ReaderHello):
            self._become_named(message)
        elif self._reader is None:
            return
        elif isinstance(message, Ack):
            self._reader.acknowledge(message.number)
        else:
            self._reader.forget()

    def _become_named(self, hello: ReaderHello) -> None:
        assert self.transport is not None
        history = self._outlet.history
        if history is None:
            raise SessionError("a named reader needs engine.data_dir: without it the server keeps no history")
        self.check_name(hello.name)
        check_format(hello.format, self._server.sink_format(self._outlet.number), "output")
        if self._subscriber is not None:
            self._outlet.detach(self._subscriber)
            self._subscriber = None
        self._reader = self._server.named_reader(self._outlet, hello.name, self.transport, history)
        self._reader.begin(hello.after, hello.nonce)

    def _close_with_error(self, why: str) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(encode_line(_error=why))
            self.transport.close()

    def pause_writing(self) -> None:
        if self._subscriber is not None:
            self._subscriber.paused = True
        if self._reader is not None:
            self._reader.paused = True

    def resume_writing(self) -> None:
        if self._subscriber is not None:
            self._outlet.resume(self._subscriber)
        if self._reader is not None:
            self._reader.paused = False
            self._reader.pump()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._subscriber is not None:
            self._outlet.detach(self._subscriber)
        if self._reader is not None:
            self._outlet.detach_named(self._reader)
        self._server.unregister(self)

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()
