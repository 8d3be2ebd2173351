"""The sides of a named reader and of a plain one, without I/O: see ``events.py``."""

from __future__ import annotations

import json
from typing import Any

from aurorad_client.errors import ProtocolError, RefusedError
from aurorad_client.events import DeliveredRows, Welcomed
from aurorad_client.received import LINE_BYTES, ReceivedBytes, encode_line, not_aurorad
from aurorad_client.rows import decode


class ReaderProtocol:
    """Follows an output under a name. ``after`` is the number of the last row that the caller has got."""

    def __init__(self, name: str, after: int | None, format: str, auth: str = "") -> None:
        self._auth = {"auth": auth} if auth else {}
        self._name = name
        self._format = format
        self._received = ReceivedBytes()
        self._marker: bytes | None = None  # of the welcome, until it has come
        self._header: dict[str, Any] | None = None  # of the block that comes next
        self._acked = 0
        self._missing = 0
        self.after = after

    def connect(self, nonce: str) -> bytes:
        """Begin a connection; return its first bytes. ``nonce`` is a string that no row contains."""
        self._received.clear()
        self._header = None
        self._marker = b'{"_welcome":{"nonce":"%s"' % nonce.encode()
        after = {} if self.after is None else {"after": self.after}
        return encode_line(_hello={"name": self._name, "nonce": nonce, "format": self._format, **after, **self._auth})

    def ack(self, number: int) -> bytes:
        """Acknowledge the rows up to a number; return the bytes to send. The next connection repeats it."""
        self._acked = max(self._acked, number)
        return encode_line(_ack=number)

    def forget(self) -> bytes:
        """Give the name up; return the bytes to send."""
        return encode_line(_forget=True)

    def after_welcome(self) -> bytes:
        """Return the bytes to send after each welcome: the last acknowledgement may have been lost."""
        return encode_line(_ack=self._acked) if self._acked else b""

    def receive_data(self, data: bytes) -> None:
        self._received.add(data)

    def receive_end(self) -> None:
        """Note that the server has closed the connection. Raises RefusedError if it said why before its welcome.

        The port also serves plain readers, so the reason may stand behind rows of the output. It is the last line.
        """
        if self._marker is not None:
            rest = self._received.rest()
            if rest.startswith(b"HTTP/"):
                raise ProtocolError("this is a port of HTTP: a reader connects to the port of an output")
            why = _error_in(rest[max(0, rest.rfind(b'{"_error":')) :])
            if why is not None:
                raise RefusedError(why)

    def next_event(self) -> Welcomed | DeliveredRows | None:
        """Return the next event; None while more bytes are needed."""
        if self._marker is not None and not self._received.skip_to(self._marker, LINE_BYTES):
            return None
        while True:
            if self._header is not None:
                return self._delivered(self._header)
            message = self._received.next_line()
            if message is None:
                return None
            if "_welcome" in message and self._marker is not None:
                self._marker = None
                if self.after is None:
                    self.after = int(message["_welcome"]["after"])
                return Welcomed()
            if "_error" in message:
                raise RefusedError(str(message["_error"]))
            if "_gap" in message:
                self._missing += int(message["_gap"]["to"]) - int(message["_gap"]["from"]) + 1
            elif "_batch" in message:
                self._header = message
            else:
                raise not_aurorad(str(message))

    def _delivered(self, header: dict[str, Any]) -> DeliveredRows | None:
        block = self._received.next_block(int(header["bytes"]))
        if block is None:
            return None
        first, count = int(header["_batch"]), int(header["tuples"])
        rows = decode(block, self._format)
        missing, self._missing = self._missing, 0
        self._header = None
        self.after = first + count - 1
        return DeliveredRows(first, self.after, rows, bool(header.get("repeat", False)), missing)


class PlainProtocol:
    """Takes the lines that a plain connection gets, from when it is open. There is no hello and no welcome.

    Rows are numbered from 1 in this client. A server that drops rows for a slow reader sends a mark with their number.
    """

    def __init__(self, auth: str = "") -> None:
        self._auth = auth
        self._received = ReceivedBytes()
        self._is_welcomed = False
        self._missing = 0
        self.after: int | None = 0

    def connect(self, nonce: str) -> bytes:
        self._received.clear()
        self._is_welcomed = False
        return f"AUTH {self._auth}\n".encode() if self._auth else b""

    def after_welcome(self) -> bytes:
        return b""

    def ack(self, number: int) -> bytes:
        return b""

    def forget(self) -> bytes:
        return b""

    def receive_data(self, data: bytes) -> None:
        self._received.add(data)

    def receive_end(self) -> None:
        """Note that the server has closed the connection."""

    def next_event(self) -> Welcomed | DeliveredRows | None:
        """Return the next event; None while more bytes are needed."""
        if not self._is_welcomed:
            self._is_welcomed = True
            return Welcomed()
        lines = self._received.next_lines()
        if lines is None:
            return None
        if lines.startswith(b"error: "):
            raise RefusedError(lines.splitlines()[0].removeprefix(b"error: ").decode(errors="replace"))
        try:
            rows = decode(lines, "ndjson")
        except ValueError as error:
            raise not_aurorad(repr(lines[:80])) from error
        missing, self._missing = self._missing, 0
        if b'{"_gap":' in lines:
            marks = [row for row in rows if set(row) == {"_gap"}]
            rows = [row for row in rows if set(row) != {"_gap"}]
            missing += sum(int(mark["_gap"]) for mark in marks)
        if not rows:
            self._missing = missing
            return None
        first = (self.after or 0) + 1
        self.after = first + len(rows) - 1
        return DeliveredRows(first, self.after, rows, False, missing)


def _error_in(line: bytes) -> str | None:
    """Return the reason if these bytes are exactly one error line."""
    try:
        message = json.loads(line)
    except ValueError:
        return None
    is_error = isinstance(message, dict) and set(message) == {"_error"}
    return str(message["_error"]) if is_error else None
