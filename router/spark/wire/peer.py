"""The daemon's end of a connection to the Spark port. ``aurorad_wire.py`` is the other end and describes the protocol.

Refused: one class for both ends. The other end must run without numpy and without aurorad, and trusts the daemon. This
end checks the size of every line and every frame before it allocates memory for it.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

from catalog.errors import AuroraError
from router.spark.wire.aurorad_wire import ERROR_FOLLOWS, LINE_BYTES

LINE_READ_BYTES = 4_096
DRAIN_SECONDS = 2.0
DRAIN_BYTES = 1024**2


class PortError(AuroraError):
    """A handler refuses the request. The port sends the message to the other side and closes the connection."""


class GoneError(Exception):
    """The other side closed the connection, or the port closed it while it stops."""


class Peer:
    """One connection, as its handler sees it. Owner: the connection's thread."""

    def __init__(self, sock: socket.socket, name: str) -> None:
        self.name = name
        self._sock = sock
        self._sends_frames = False
        self._ahead = bytearray()  # bytes received behind the last line

    def say(self, **answer: Any) -> None:
        """Send one line."""
        try:
            self._sock.sendall(json.dumps(answer).encode() + b"\n")
        except OSError as error:
            raise GoneError from error

    def hear(self) -> dict[str, Any]:
        """Receive one line. Raises GoneError also when it is too long or no JSON object."""
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
        """Receive frames of at most ``limit`` bytes until the empty one."""
        while size := struct.unpack(">I", self._exactly(4))[0]:
            if size > limit:
                raise PortError(f"a message has {size:,} bytes; the limit is {limit:,}")
            yield self._exactly(size)

    def _exactly(self, size: int) -> memoryview:
        """Receive into memory that is not cleared first and that the decoder keeps, in one call of the kernel."""
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
            while self._sock.recv(DRAIN_BYTES):
                pass
        except (OSError, GoneError):
            pass  # the other side is gone, or does not stop sending

    def close(self) -> None:
        try:
            self._sock.shutdown(socket.SHUT_RDWR)  # wakes a thread that reads from it
        except OSError:
            pass  # closed already
        self._sock.close()
