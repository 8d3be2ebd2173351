"""The Spark port: where executors bring rows, and where Spark readers come for them.

Threads and blocking sockets, not the I/O loop: a bulk job sends as fast as it may, for as long as it likes, and must
not take turns with the sockets of live streams. One thread accepts; each connection has its own, and there is a
limit.

A connection is one question (``aurorad_wire.py`` says how it looks). What can be asked is a table of handlers, so that
this file knows sockets and nothing else; ``Peer`` is a handler's end of the conversation.
"""

from __future__ import annotations

import hmac
import json
import logging
import socket
import struct
from collections.abc import Callable, Iterator, Mapping
from threading import Lock, Thread
from typing import Any

import numpy as np

from catalog.errors import AuroraError
from router.spark.pace import StoppedError

log = logging.getLogger("aurorad.spark")

HELLO_SECONDS = 10.0
LINE_BYTES = 1024**2
LINE_READ_BYTES = 4_096
DRAIN_SECONDS = 2.0
DRAIN_BYTES = 1024**2
CONNECTIONS = 256
END_SECONDS = 5.0
ERROR_FOLLOWS = 0xFFFFFFFF
"""In place of a frame's length: what follows is a line that says why there is no frame."""


class PortError(AuroraError):
    """What the other side is told; the connection ends."""


class GoneError(Exception):
    """The other side closed the connection, or ours was closed under it."""


class Peer:
    """One connection, as its handler sees it. Owner: the connection's thread."""

    def __init__(self, sock: socket.socket, name: str) -> None:
        self.name = name
        self._sock = sock
        self._sends_frames = False
        self._ahead = bytearray()  # what came behind the last line

    def say(self, **answer: Any) -> None:
        try:
            self._sock.sendall(json.dumps(answer).encode() + b"\n")
        except OSError as error:
            raise GoneError from error

    def hear(self) -> dict[str, Any]:
        ahead = self._ahead
        try:
            while (end := ahead.find(b"\n")) < 0:
                more = self._sock.recv(LINE_READ_BYTES)
                if not more or len(ahead) > LINE_BYTES:
                    raise GoneError
                ahead += more
            heard = json.loads(ahead[:end])
        except (OSError, ValueError) as error:
            raise GoneError from error
        del ahead[: end + 1]
        if not isinstance(heard, dict):
            raise GoneError
        return heard

    def frames(self, limit: int) -> Iterator[memoryview]:
        """Until the empty one."""
        while size := struct.unpack(">I", self._exactly(4))[0]:
            if size > limit:
                raise PortError(f"a message of {size:,} bytes; at most {limit:,}")
            yield self._exactly(size)

    def _exactly(self, size: int) -> memoryview:
        """Read to where it stays: memory that nobody has cleared for it, filled by the kernel in one call."""
        view = np.empty(size, np.uint8).data
        have = min(size, len(self._ahead))
        view[:have] = self._ahead[:have]
        del self._ahead[:have]
        try:
            while have < size:
                read = self._sock.recv_into(view[have:], 0, socket.MSG_WAITALL)
                if not read:
                    raise GoneError
                have += read
        except (OSError, ValueError) as error:
            raise GoneError from error
        return view

    def send_frame(self, data: Any) -> None:
        self._sends_frames = True
        view = memoryview(data)
        try:
            self._sock.sendall(struct.pack(">I", view.nbytes))
            if view.nbytes:
                self._sock.sendall(view)
        except OSError as error:
            raise GoneError from error

    def send_end(self, rows: int) -> None:
        self.send_frame(b"")
        self._sends_frames = False
        self.say(ok=True, rows=rows)

    def set_patience(self, seconds: float | None) -> None:
        self._sock.settimeout(seconds)

    def refuse(self, message: str) -> None:
        """Say why, and let the other side read it: closing at once would throw it away while it still sends."""
        try:
            if self._sends_frames:
                self._sock.sendall(struct.pack(">I", ERROR_FOLLOWS))
            self.say(error=message)
            self._sock.shutdown(socket.SHUT_WR)
            self._sock.settimeout(DRAIN_SECONDS)
            while self._sock.recv(DRAIN_BYTES):
                pass
        except (OSError, GoneError):
            pass  # it has gone, or will not stop sending

    def close(self) -> None:
        try:
            self._sock.shutdown(socket.SHUT_RDWR)  # wakes a thread that reads from it
        except OSError:
            pass  # closed already
        self._sock.close()


Handler = Callable[[Peer, Mapping[str, Any]], None]


class SparkPort:
    """``handlers`` by what is asked. ``open`` and ``close`` belong to whoever owns the daemon."""

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
        """Raises OSError."""
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
                return  # closed
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
        except (GoneError, StoppedError):
            log.debug("spark port: %s went away or was told to", peer.name)
        except AuroraError as error:
            peer.refuse(str(error))
        except Exception:
            # The last line of a peer's own thread: a bug costs that peer its connection, and it hears so.
            log.exception("spark port: serving %s failed", peer.name)
            peer.refuse("an error of aurorad's own; its log has it")
        finally:
            peer.close()
            with self._lock:
                self._peers.pop(peer, None)

    def _answer(self, peer: Peer) -> None:
        peer.set_patience(HELLO_SECONDS)
        hello = peer.hear()
        peer.set_patience(None)
        if self._token and not hmac.compare_digest(str(hello.get("token", "")).encode(), self._token.encode()):
            raise PortError("the token is wrong")
        handler = self._handlers.get(str(hello.get("do")))
        if handler is None or hello.get("aurorad") != 1:
            raise PortError("this is aurorad's Spark port, and it does not know what that means")
        handler(peer, hello)

    def close(self) -> None:
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
