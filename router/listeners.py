"""The listening sockets of the server: opened at a start, and handed on when the network changes.

A listener has a name (``stream trades``), an address and a callable that makes a connection. When the network changes,
a listener whose name and address stay is kept. A new name at the address of one that goes takes its socket over. All
other new addresses are bound before anything changes, so a port in use changes nothing.

Owner: the I/O thread, except ``reserve``.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from catalog.config.units import Address
from catalog.errors import ListenError
from router.access.tls import ServerTls
from router.access.tls_listener import TlsListener
from router.ports import why_not

MakeConnection = Callable[[], asyncio.BaseProtocol]


class WantedListener(NamedTuple):
    name: str
    at: Address
    make: MakeConnection
    receive_bytes: int | None = None  # the size of the sockets' receive buffers; None: the system's


class ReservedListener(NamedTuple):
    """An address that is bound for a network to come."""

    name: str
    sockets: tuple[socket.socket, ...]

    def release(self) -> None:
        for each in self.sockets:
            each.close()


@dataclass
class _Listener:
    wanted: WantedListener
    server: asyncio.Server | TlsListener | None = None

    def __call__(self) -> asyncio.BaseProtocol:
        return self.wanted.make()


class Listeners:
    """``tls``: that of every listener, or None."""

    def __init__(self, loop: asyncio.AbstractEventLoop, backlog: int, tls: ServerTls | None = None) -> None:
        self._loop = loop
        self._tls = tls
        self._backlog = backlog
        self._open: dict[str, _Listener] = {}  # by name
        self.addresses: dict[str, tuple[str, int]] = {}  # by name

    async def open(self, wanted: WantedListener, reserved: ReservedListener | None = None) -> None:
        """Listen, on sockets that were reserved for it if there are any. Raises ListenError."""
        listener = _Listener(wanted)
        try:
            if self._tls is not None:
                [sock] = (_bind(wanted.name, wanted.at, self._backlog),) if reserved is None else reserved.sockets
                listener.server = TlsListener(self._loop, sock, listener, self._tls)
            elif reserved is None:
                at = wanted.at
                listener.server = await self._loop.create_server(listener, at.host, at.port, backlog=self._backlog)
            else:
                for each in reserved.sockets:
                    listener.server = await self._loop.create_server(listener, sock=each, backlog=self._backlog)
        except OSError as error:
            raise _refusal(wanted.name, wanted.at, error) from error
        assert listener.server is not None
        if wanted.receive_bytes is not None:  # connections inherit it from their listener
            for open_socket in listener.server.sockets:
                open_socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, wanted.receive_bytes)
        self._open[wanted.name] = listener
        self.addresses[wanted.name] = listener.server.sockets[0].getsockname()[:2]

    def close(self, prefix: str = "") -> None:
        """Close the listeners whose names begin with this."""
        for name, listener in self._open.items():
            if name.startswith(prefix) and listener.server is not None:
                listener.server.close()

    # -- a change of the network --------------------------------------------------------------------------------------

    def reserve(self, ends: Mapping[str, Address]) -> list[ReservedListener]:
        """Bind the addresses that no listener of ours has. Raises ListenError, and has bound none then. Any thread."""
        reserved: list[ReservedListener] = []
        try:
            for name, at in ends.items():
                if self._heir_of(name, at, ends) is None:
                    reserved.append(ReservedListener(name, (_bind(name, at, self._backlog),)))
        except ListenError:
            for each in reserved:
                each.release()
            raise
        return reserved

    def _heir_of(self, name: str, at: Address, ends: Mapping[str, Address]) -> str | None:
        """Return the open listener whose socket this name takes: its own, or that of a name which goes."""
        own = self._open.get(name)
        if own is not None and own.wanted.at == at:
            return name
        for other, listener in self._open.items():
            if at.port and listener.wanted.at == at and ends.get(other) != at:
                return other
        return None

    def adopt(self, wanted: Iterable[WantedListener]) -> None:
        """Keep the listeners that are wanted, under their new names, and close the others."""
        wants = {each.name: each for each in wanted}
        ends = {name: each.at for name, each in wants.items()}
        heirs = {name: heir for name, each in wants.items() if (heir := self._heir_of(name, each.at, ends)) is not None}
        before, addresses = self._open, self.addresses
        self._open = {name: before[heir] for name, heir in heirs.items()}
        self.addresses = {name: addresses[heir] for name, heir in heirs.items()}
        for name, listener in self._open.items():
            listener.wanted = wants[name]
        for name, listener in before.items():
            if name not in heirs.values() and listener.server is not None:
                listener.server.close()


def _bind(name: str, at: Address, backlog: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(at.host, at.port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise _refusal(name, at, error) from error
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.setblocking(False)
        found.bind(address)
        found.listen(backlog)
    except OSError as error:
        found.close()
        raise _refusal(name, at, error) from error
    return found


def _refusal(name: str, at: Address, error: OSError) -> ListenError:
    return ListenError(f"{name}: cannot listen on {at}: {why_not(error, at.port)}")
