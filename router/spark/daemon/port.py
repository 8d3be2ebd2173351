"""The Spark port: executors push rows to it, and Spark readers pull rows from it.

It uses threads and blocking sockets, not the I/O loop: a bulk job sends as fast as it can for as long as it takes, and
must not take turns with the sockets of live streams. One thread accepts connections; each connection has a thread of
its own, and their number is limited.

A connection carries one request (``wire/aurorad_wire.py`` describes the protocol). A table of handlers answers the
requests, so this file knows sockets and nothing else. A handler talks to the other side through a ``Peer``.
"""

from __future__ import annotations

import hmac
import logging
import socket
from collections.abc import Callable, Mapping
from threading import Lock, Thread
from typing import Any

from catalog.errors import AuroraError
from router.spark.daemon.pace import JobStoppedError
from router.spark.wire.aurorad_wire import VERSION
from router.spark.wire.peer import GoneError, Peer, PortError

log = logging.getLogger("aurorad.spark")

REQUEST_SECONDS = 10.0
CONNECTIONS = 256
END_SECONDS = 5.0

Handler = Callable[[Peer, Mapping[str, Any]], None]


class SparkPort:
    """``handlers`` by the name of the request. The daemon's owner calls ``open`` and ``close``."""

    def __init__(self, handlers: Mapping[str, Handler], *, token: str = "") -> None:
        self._handlers = handlers
        self._token = token
        self._listener: socket.socket | None = None
        self._lock = Lock()
        self._peers: dict[Peer, Thread] = {}
        self._closed = False
        self._thread: Thread | None = None
        self.address = ""
        self.refused = 0

    def open(self, host: str, port: int) -> None:
        """Listen and accept. Raises OSError."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, port), family=family, backlog=CONNECTIONS)
        name, number = self._listener.getsockname()[:2]
        self.address = f"[{name}]:{number}" if ":" in name else f"{name}:{number}"
        self._thread = Thread(target=self._accept, name="aurorad-spark-port", daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        assert self._listener is not None
        while True:
            try:
                sock, peer = self._listener.accept()
            except OSError:
                return  # the port was closed
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if sock.family in (socket.AF_INET, socket.AF_INET6):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                if self._closed or len(self._peers) >= CONNECTIONS:
                    self.refused += 1
                    sock.close()
                    continue
                one = Peer(sock, f"{peer[0]}:{peer[1]}")
                thread = Thread(target=self._serve, args=(one,), name="aurorad-spark-peer", daemon=True)
                self._peers[one] = thread
            thread.start()

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
        request = peer.hear()
        peer.set_timeout(None)
        if self._token and not hmac.compare_digest(str(request.get("token", "")).encode(), self._token.encode()):
            raise PortError("the token is wrong")
        handler = self._handlers.get(str(request.get("do")))
        if handler is None or request.get("aurorad") != VERSION:
            raise PortError("this is the Spark port of aurorad, and it does not know this request")
        handler(peer, request)

    def close(self) -> None:
        """Close the listener and every connection, and wait for their threads."""
        with self._lock:
            self._closed = True
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
