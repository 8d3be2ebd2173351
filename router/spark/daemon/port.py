"""The Spark port: executors push rows to it, and Spark readers pull rows from it.

It uses threads and blocking sockets, not the I/O loop: a bulk job sends as fast as it can for as long as it takes, and
must not take turns with the sockets of live streams. One thread accepts connections; each connection has a thread of
its own, and their number is limited. At the limit a new connection replaces the one whose peer has been silent for
longest, if that is ten seconds or more. So a crowd of silent peers cannot hold the port. A task that loses its
connection this way is retried by Spark, and goes on behind its last row.

The thread that accepts ends only with the port. A process without file descriptors cannot accept; then the thread waits
a moment and tries again.

A connection carries one request (``wire/aurorad_wire.py`` describes the protocol). A table of handlers answers the
requests, so this file knows sockets and nothing else. A handler talks to the other side through a ``Peer``.
"""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Callable, Mapping
from threading import Event, Lock, Thread
from time import monotonic

from catalog.errors import AuroraError
from router.spark.daemon.frame_room import FrameRoom
from router.spark.daemon.intake import FRAME_BYTES
from router.spark.daemon.pace import JobStoppedError
from router.spark.daemon.request import PortRequest
from router.spark.wire.aurorad_wire import VERSION
from router.spark.wire.peer import GoneError, Peer, PortError

log = logging.getLogger("aurorad.spark")

REQUEST_SECONDS = 10.0
CONNECTIONS = 256
END_SECONDS = 5.0
SILENT_SECONDS = 10.0
RETRY_SECONDS = 0.1
FRAMES_BYTES = FRAME_BYTES + 32 * 1024**2
"""Of all peers together: a largest frame, and others beside it."""

Handler = Callable[[Peer, PortRequest], None]


class SparkPort:
    """``handlers`` by the name of the request. ``admit`` refuses a request with a PortError; ``tls`` returns the
    context of a connection (``router/access`` has both). The daemon's owner calls ``open`` and ``close``."""

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        *,
        admit: Callable[[Peer, PortRequest], None] | None = None,
        tls: Callable[[], ssl.SSLContext] | None = None,
        connections: int = CONNECTIONS,
        silent_s: float = SILENT_SECONDS,
    ) -> None:
        self._handlers = handlers
        self._admit_request = admit
        self._tls = tls
        self._listener: socket.socket | None = None
        self._lock = Lock()
        self._peers: dict[Peer, Thread] = {}
        self._connections = connections
        self._silent_s = silent_s
        self.room = FrameRoom(FRAMES_BYTES, silent_s)
        self._closed = Event()
        self._thread: Thread | None = None
        self.address = ""
        self.refused = 0  # connections, at the limit
        self.evicted = 0  # connections of silent peers

    def open(self, host: str, port: int) -> None:
        """Listen and accept. Raises OSError."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, port), family=family, backlog=min(128, self._connections))
        name, number = self._listener.getsockname()[:2]
        self.address = f"[{name}]:{number}" if ":" in name else f"{name}:{number}"
        self._thread = Thread(target=self._accept, name="aurorad-spark-port", daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        assert self._listener is not None
        trouble = ""
        while not self._closed.is_set():
            try:
                sock, peer = self._listener.accept()
                trouble = ""
                self._admit(sock, f"{peer[0]}:{peer[1]}")
            except (OSError, RuntimeError) as error:  # no file descriptor, a peer that has gone, no more threads
                if not self._closed.is_set() and str(error) != trouble:  # logged once, not for every retry
                    log.warning("the spark port cannot accept a connection: %s", error)
                trouble = str(error)
                self._closed.wait(RETRY_SECONDS)

    def _admit(self, sock: socket.socket, name: str) -> None:
        """Serve a new connection on a thread of its own, or close it at the limit."""
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if sock.family in (socket.AF_INET, socket.AF_INET6):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            one = Peer(sock, name, self.room)
            thread = Thread(target=self._serve, args=(one,), name="aurorad-spark-peer", daemon=True)
            with self._lock:
                if self._closed.is_set() or not self._has_place():
                    self.refused += 1
                    sock.close()
                    return
                thread.start()
                self._peers[one] = thread
        except (OSError, RuntimeError):
            sock.close()
            raise

    def _has_place(self) -> bool:
        """Tell whether one more connection may be served, and close that of the most silent peer if need be."""
        if len(self._peers) < self._connections:
            return True
        now = monotonic()
        silent = max(self._peers, key=lambda peer: peer.silent_for(now))
        if silent.silent_for(now) < self._silent_s:
            return False
        del self._peers[silent]
        self.evicted += 1
        silent.close()
        return True

    def _serve(self, peer: Peer) -> None:
        try:
            self._answer(peer)
        except (GoneError, JobStoppedError):
            log.debug("spark port: %s has gone, or its job was stopped", peer.name)
        except AuroraError as error:
            peer.refuse(str(error))
        except Exception:
            # The outermost handler of the connection's thread: a bug costs the peer its connection, not the daemon.
            log.exception("spark port: serving %s failed", peer.name)
            peer.refuse("an internal error of aurorad; see its log")
        finally:
            peer.close()
            with self._lock:
                self._peers.pop(peer, None)

    def _answer(self, peer: Peer) -> None:
        peer.set_timeout(REQUEST_SECONDS)
        if self._tls is not None:
            peer.start_tls(self._tls())
        request = PortRequest(peer.hear())
        peer.set_timeout(None)
        if self._admit_request is not None:
            self._admit_request(peer, request)
        handler = self._handlers.get(request.text("do", ""))
        if handler is None or request.number("aurorad", 0) != VERSION:
            raise PortError("this is the Spark port of aurorad, and it does not know this request")
        handler(peer, request)

    def close(self) -> None:
        """Close the listener and every connection, and wait for their threads."""
        with self._lock:
            self._closed.set()
            peers = dict(self._peers)
        if self._listener is not None:
            try:
                self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept
            except OSError:
                pass  # not listening any more
            self._listener.close()
        for peer in peers:
            peer.close()
        for thread in [self._thread, *peers.values()]:
            if thread is not None:
                thread.join(END_SECONDS)
