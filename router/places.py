"""The places of the data ports: how many connections may be open, and which one goes when all places are taken.

At the limit a new connection replaces one that is of little use:

- first the oldest reader that has closed its sending side. ``nc host port < /dev/null`` does that and reads on, but so
  does every peer that is gone: TCP cannot tell them apart before something is written, and a quiet output writes
  nothing;
- then the oldest connection that has been silent for ten seconds: it has not sent a whole tuple.

Without such a one the new connection is refused. Both are counted, and the daemon logs the counts.

A reader that has closed its sending side is also probed (TCP keepalive). A peer that is gone answers the probe with a
reset, at the latest when its kernel has forgotten the connection (a minute on Linux). The event loop does not watch a
connection whose input has ended, so a sweep asks the kernel for the state of each.

Owner: the I/O thread.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

SILENT_AT_MOST_NS = 10 * 10**9
SWEEP_SECONDS = 5.0
PROBE_IDLE_SECONDS = 15
PROBE_EVERY_SECONDS = 15
PROBES = 3
TCP_CLOSE = 7  # linux/tcp_states.h: the first byte of struct tcp_info


class Placed(Protocol):
    """A connection as its place sees it."""

    transport: asyncio.Transport | None
    is_silent: bool

    def abort(self) -> None: ...


C = TypeVar("C", bound=Placed)


class ConnectionPlaces(Generic[C]):
    def __init__(self, limit: int, now_ns: Callable[[], int], loop: asyncio.AbstractEventLoop) -> None:
        self.limit = limit
        self.refused = 0
        self.evicted = 0
        self._now_ns = now_ns
        self._loop = loop
        self._opened_ns: dict[C, int] = {}  # oldest first
        self._ended: dict[C, None] = {}  # connections whose peer has closed its sending side, oldest first
        self._is_sweeping = False

    def __iter__(self) -> Iterator[C]:
        return iter(list(self._opened_ns))

    def __len__(self) -> int:
        return len(self._opened_ns)

    @property
    def is_full(self) -> bool:
        """Whether a new connection would be refused now. Any thread may ask; the answer is a snapshot."""
        return len(self._opened_ns) >= self.limit and not self._ended

    def take(self, connection: C, evict: Callable[[C], None]) -> bool:
        """Give a new connection a place. ``evict`` closes the connection that has to go. False without a place."""
        if len(self._opened_ns) >= self.limit:
            useless = self._useless()
            if useless is None:
                return False
            self.evicted += 1
            evict(useless)
        self._opened_ns[connection] = self._now_ns()
        return True

    def leave(self, connection: C) -> bool:
        """Free the place of a connection. False when it had none."""
        self._ended.pop(connection, None)
        return self._opened_ns.pop(connection, None) is not None

    def _useless(self) -> C | None:
        if self._ended:
            return next(iter(self._ended))
        now_ns = self._now_ns()
        for connection, opened_ns in self._opened_ns.items():
            if now_ns - opened_ns < SILENT_AT_MOST_NS:
                return None
            if connection.is_silent:
                return connection
        return None

    # -- peers that may be gone ---------------------------------------------------------------------------------------

    def input_ended(self, connection: C) -> None:
        """Watch a connection whose peer has closed its sending side."""
        if connection not in self._opened_ns:
            return
        self._ended[connection] = None
        sock = connection.transport.get_extra_info("socket") if connection.transport is not None else None
        if sock is not None and hasattr(socket, "TCP_KEEPIDLE"):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, PROBE_IDLE_SECONDS)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PROBE_EVERY_SECONDS)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PROBES)
        if not self._is_sweeping:
            self._is_sweeping = True
            self._loop.call_later(SWEEP_SECONDS, self._sweep)

    def _sweep(self) -> None:
        """Close the connections that the kernel has given up; look again while any peer may be gone."""
        for connection in list(self._ended):
            if _is_dead(connection.transport):
                connection.abort()
        self._is_sweeping = bool(self._ended)
        if self._is_sweeping:
            self._loop.call_later(SWEEP_SECONDS, self._sweep)


def _is_dead(transport: asyncio.Transport | None) -> bool:
    sock = transport.get_extra_info("socket") if transport is not None and not transport.is_closing() else None
    if sock is None or not hasattr(socket, "TCP_INFO"):
        return sock is None
    return bool(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == TCP_CLOSE)
