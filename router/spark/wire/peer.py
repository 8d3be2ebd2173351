"""The daemon's end of a connection to the Spark port. ``aurorad_wire.py`` is the other end and describes the protocol.

Refused: one class for both ends. The other end must run without numpy and without aurorad, and trusts the daemon. This
end checks the size of every line and every frame before it allocates memory for it.
"""

from __future__ import annotations

import json
import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any, Protocol

import numpy as np
import orjson

from catalog.errors import AuroraError
from router.spark.wire.aurorad_wire import ERROR_FOLLOWS, LINE_BYTES

LINE_READ_BYTES = 4_096
DRAIN_SECONDS = 2.0
DRAIN_BYTES = 1024**2


class PortError(AuroraError):
    """A handler refuses the request. The port sends the message to the other side and closes the connection."""


class GoneError(Exception):
    """The other side closed the connection, or the port closed it while it stops."""


class ReceiveRoom(Protocol):
    """Where a peer takes the memory for a frame from."""

    def take(self, holder: Peer, nbytes: int) -> None:
        """Wait until there is memory for a frame of this size."""

    def give_back(self, holder: Peer) -> None:
        """Give the memory of the last frame back."""


class Peer:
    """One connection, as its handler sees it. Owner: the connection's thread."""

    def __init__(self, sock: socket.socket, name: str, room: ReceiveRoom | None = None) -> None:
        """``room`` limits the frames of all peers together."""
        self.name = name
        self._sock = sock
        self._room = room
        self._sends_frames = False
        self._wait_all = socket.MSG_WAITALL
        self.ssl_socket: ssl.SSLSocket | None = None
        self._ahead = bytearray()  # bytes received behind the last line
        self.waits_since: float | None = None  # on the monotonic clock: since when the other side is silent

    def start_tls(self, context: ssl.SSLContext) -> None:
        """Shake hands. Raises GoneError when the other side does not, or has the wrong certificate."""
        with self._waiting():
            self._sock = self.ssl_socket = context.wrap_socket(self._sock, server_side=True)
        self._wait_all = socket.MsgFlag(0)  # TLS knows no flags

    def silent_for(self, now: float) -> float:
        """Return for how many seconds this side has waited for a byte, or for room to send one. Any thread."""
        since = self.waits_since
        return 0.0 if since is None else now - since

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        """Note that the other side is to act, and raise GoneError when its socket says that it will not."""
        self.waits_since = monotonic()
        try:
            yield
        except (OSError, ValueError) as error:
            raise GoneError from error
        finally:
            self.waits_since = None

    def say(self, **answer: Any) -> None:
        """Send one line."""
        with self._waiting():
            self._sock.sendall(json.dumps(answer).encode() + b"\n")

    def hear(self) -> dict[str, Any]:
        """Receive one line. Raises PortError when it is too long or no JSON object."""
        ahead = self._ahead
        with self._waiting():
            while (end := ahead.find(b"\n")) < 0:
                if len(ahead) > LINE_BYTES:
                    raise PortError(f"a line has at most {LINE_BYTES:,} bytes")
                more = self._sock.recv(LINE_READ_BYTES)
                if not more:
                    raise GoneError
                ahead += more
        line = bytes(ahead[:end])
        del ahead[: end + 1]
        return _parse(line)

    def frames(self, limit: int) -> Iterator[memoryview]:
        """Receive frames of at most ``limit`` bytes until the empty one."""
        while size := struct.unpack(">I", self._exactly(4))[0]:
            if size > limit:
                raise PortError(f"a message has {size:,} bytes; the limit is {limit:,}")
            if self._room is None:
                yield self._exactly(size)
                continue
            self._room.take(self, size)
            try:
                yield self._exactly(size)
            finally:  # when the next frame is asked for, or the request has ended
                self._room.give_back(self)

    def _exactly(self, size: int) -> memoryview:
        """Receive into memory that is not cleared first and that the decoder keeps, in one call of the kernel."""
        view = np.empty(size, np.uint8).data
        have = min(size, len(self._ahead))
        view[:have] = self._ahead[:have]
        del self._ahead[:have]
        while have < size:
            with self._waiting():
                read = self._sock.recv_into(view[have:], 0, self._wait_all)
            if not read:
                raise GoneError
            have += read
        return view

    def send_frame(self, data: Any) -> None:
        self._sends_frames = True
        view = memoryview(data)
        with self._waiting():
            self._sock.sendall(struct.pack(">I", view.nbytes))
            if view.nbytes:
                self._sock.sendall(view)

    def send_end(self, rows: int) -> None:
        """Send the empty frame and the number of rows."""
        self.send_frame(b"")
        self._sends_frames = False
        self.say(ok=True, rows=rows)

    def set_timeout(self, seconds: float | None) -> None:
        self._sock.settimeout(seconds)

    def refuse(self, message: str) -> None:
        """Send the reason and wait until the other side has read it. The kernel would discard the reason if the
        connection were closed while the other side still sends."""
        try:
            if self._sends_frames:
                self._sock.sendall(struct.pack(">I", ERROR_FOLLOWS))
            self.say(error=message)
            self._sock.shutdown(socket.SHUT_WR)
            self._sock.settimeout(DRAIN_SECONDS)
            deadline = monotonic() + DRAIN_SECONDS
            while monotonic() < deadline and self._sock.recv(DRAIN_BYTES):
                pass
        except (OSError, GoneError):
            pass  # the other side is gone, or does not stop sending

    def close(self) -> None:
        try:
            self._sock.shutdown(socket.SHUT_RDWR)  # wakes a thread that reads from it
        except OSError:
            pass  # closed already
        self._sock.close()


def _parse(line: bytes) -> dict[str, Any]:
    """Parse one line. orjson accepts valid UTF-8 only, without lone surrogates, and limits the depth of nesting: no
    string that comes from here can fail to be written to the log."""
    try:
        heard = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise PortError(f"a request is one line of JSON: {error}") from None
    if not isinstance(heard, dict):
        raise PortError("a request is one JSON object on a line")
    return heard
