"""A link to the server over blocking sockets: it connects, waits for the welcome, and reconnects.

``Sender`` and ``Reader`` each have one. A link knows nothing of batches: it moves bytes between a socket and a
``ClientProtocol``.
"""

from __future__ import annotations

import secrets
import socket
import ssl
import time

from aurorad_client.errors import ClosedError, UntrustedError
from aurorad_client.events import ClientProtocol, NewEpoch, Welcomed
from aurorad_client.patience import Backoff, Endpoint

READ_BYTES = 256 * 1024


class Link:
    """``send`` and ``receive`` raise OSError when the connection breaks; the caller then calls ``reconnect``."""

    def __init__(self, endpoint: Endpoint, protocol: ClientProtocol) -> None:
        self._endpoint = endpoint
        self._protocol = protocol
        self._socket: socket.socket | None = None
        self.is_closed = False
        self.reconnects = -1  # the first connection makes it 0

    def send(self, data: bytes) -> None:
        connected = self._connected()
        connected.settimeout(self._endpoint.timeout_s)
        connected.sendall(data)

    def receive(self, timeout_s: float | None) -> bool:
        """Give the next bytes to the protocol. False when none came in time; None: wait without limit."""
        connected = self._connected()
        connected.settimeout(timeout_s)
        try:
            data = connected.recv(READ_BYTES)
        except (TimeoutError, BlockingIOError, ssl.SSLWantReadError):
            return False
        if not data:
            self._protocol.receive_end()
            raise ConnectionError("the server closed the connection")
        self._protocol.receive_data(data)
        return True

    def reconnect(self) -> None:
        """Connect until the server welcomes this client. Raises a ClientError, and closes, when that cannot be."""
        backoff = Backoff(self._endpoint, time.monotonic())
        while True:
            self.check_open()
            self._disconnect()
            try:
                is_welcome = self._connect()
            except OSError as error:
                if not self.is_closed:
                    time.sleep(self._pause_s(backoff, error))
            except BaseException:
                self.close()
                raise
            else:
                if is_welcome:
                    self.reconnects += 1
                    return

    def recover(self) -> bool:
        """Reconnect. False when the connection broke because ``close`` was called."""
        if not self.is_closed:
            self.reconnect()
        return not self.is_closed

    def close(self) -> None:
        """Close for good, and wake a thread that waits in ``receive``."""
        self.is_closed = True
        self._disconnect()

    def check_open(self) -> None:
        if self.is_closed:
            raise ClosedError("used after close")

    def _connect(self) -> bool:
        """Connect and wait for the welcome. False when the protocol wants another connection."""
        self._socket = opened = _open(self._endpoint)
        opened.sendall(self._protocol.connect(secrets.token_hex(16)))
        while not isinstance(event := self._protocol.next_event(), (Welcomed, NewEpoch)):
            if event is None and not self.receive(self._endpoint.handshake_s):
                raise ConnectionError("no welcome in time: is it the port of a stream or an output?")
        if again := self._protocol.after_welcome():
            opened.sendall(again)
        return isinstance(event, Welcomed)

    def _pause_s(self, backoff: Backoff, error: OSError) -> float:
        try:
            return backoff.pause_s(time.monotonic(), error)
        except BaseException:
            self.close()
            raise

    def _connected(self) -> socket.socket:
        if self._socket is None:
            raise ConnectionError("not connected")
        return self._socket

    def _disconnect(self) -> None:
        opened, self._socket = self._socket, None
        if opened is not None:
            try:
                opened.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # the server was faster
            opened.close()


def _open(endpoint: Endpoint) -> socket.socket:
    opened = socket.create_connection(endpoint.address, timeout=endpoint.handshake_s)
    if opened.getsockname() == opened.getpeername():
        # No server listens there, and the kernel gave this socket the port that it tried to reach.
        opened.close()
        raise ConnectionRefusedError("connected to itself")
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if endpoint.tls is not None:
        try:
            return endpoint.tls.wrap_socket(opened, server_hostname=endpoint.host)
        except ssl.SSLCertVerificationError as error:
            opened.close()
            raise UntrustedError(f"{endpoint}: {error.verify_message}") from error
    return opened
