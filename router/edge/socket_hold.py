"""How long the bytes of a read have waited in their socket.

A socket that is read in time is empty after a read. When it is not, what is left in it is as old as the time that it
takes to read as much again (Little's law). Asking the kernel costs 0.4 us, so only larger reads ask.

Owner: the I/O thread.
"""

from __future__ import annotations

import array
import fcntl
import socket
import termios

ASK_BYTES = 4_096


class SocketHold:
    """``undrained`` is shared by the connections of a stream: since when the socket of each was never found empty."""

    def __init__(self, undrained: dict[int, int]) -> None:
        self._undrained = undrained
        self._descriptor = -1
        self._socket: socket.socket | None = None
        self._left = array.array("i", [0])
        self._now = array.array("i", [0])
        self._since_ns = 0  # 0: the socket was empty after the last read
        self._read_bytes = 0  # since then

    def open(self, sock: socket.socket | None) -> None:
        self._socket = sock
        self._descriptor = -1 if sock is None else sock.fileno()

    def close(self) -> None:
        self._descriptor, self._socket = -1, None
        self._undrained.pop(id(self), None)

    @property
    def room_bytes(self) -> int:
        """The size of the socket's receive buffer."""
        if self._socket is None:
            return 0
        return int(self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF))

    @property
    def has_bytes(self) -> bool:
        """Whether bytes wait in the socket now."""
        try:
            if self._descriptor >= 0:
                fcntl.ioctl(self._descriptor, termios.FIONREAD, self._now)
        except OSError:  # the peer has closed in the meantime
            return False
        return self._descriptor >= 0 and self._now[0] > 0

    def held_ns(self, nbytes: int, now_ns: int) -> int:
        """Return how long the bytes of a read have waited before it. Call once after each read."""
        before, since_ns = self._left[0], self._since_ns
        held_ns = 0
        if since_ns:
            self._read_bytes += nbytes
            held_ns = min(now_ns - since_ns, before * (now_ns - since_ns) // max(self._read_bytes, 1))
        if nbytes < ASK_BYTES or self._descriptor < 0:
            left = 0
        else:
            try:
                fcntl.ioctl(self._descriptor, termios.FIONREAD, self._left)
            except OSError:  # the peer has closed in the meantime
                self._left[0] = 0
            left = self._left[0]
        if not left:
            self._left[0] = 0
            if since_ns:
                self._since_ns = self._read_bytes = 0
                self._undrained.pop(id(self), None)
        elif not since_ns:
            self._since_ns = self._undrained[id(self)] = now_ns
        return max(0, held_ns)
