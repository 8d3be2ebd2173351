"""Lines and blocks over one socket, and the encoding of rows."""

from __future__ import annotations

import json
import select
import socket
import time
from typing import Any

from aurorad_client.errors import ClientError

READ_BYTES = 256 * 1024
Rows = Any
"""Dicts for ndjson; a pyarrow Table or RecordBatch for arrow."""


class Wire:
    """A connection. Every method may raise OSError; the caller then reconnects."""

    def __init__(self, host: str, port: int, timeout_s: float) -> None:
        self._socket = socket.create_connection((host, port), timeout=timeout_s)
        if self._socket.getsockname() == self._socket.getpeername():
            # No server listens there, and the kernel gave this socket the port that it tried to reach.
            self._socket.close()
            raise ConnectionRefusedError("connected to itself")
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def send_line(self, **content: Any) -> None:
        self.send(json.dumps(content, separators=(",", ":")).encode() + b"\n")

    def settimeout(self, seconds: float | None) -> None:
        self._socket.settimeout(seconds)

    def read_line(self) -> dict[str, Any]:
        """Return the next line of the protocol; wait for it. OSError when the server has closed the connection."""
        while (end := self._buffer.find(b"\n")) < 0:
            self._receive()
        text = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        try:
            message = json.loads(text)
        except ValueError as error:
            raise ClientError(f"the server does not speak the protocol of aurorad: {text[:80]!r}") from error
        if not isinstance(message, dict):
            raise ClientError(f"the server does not speak the protocol of aurorad: {text[:80]!r}")
        return message

    def wait_for_line(self, seconds: float) -> bool:
        """Wait up to this long for a whole line; return whether there is one."""
        deadline = time.monotonic() + seconds
        while b"\n" not in self._buffer:
            left = max(0.0, deadline - time.monotonic())
            if not select.select([self._socket], [], [], left)[0]:
                return False
            self._receive()
        return True

    def read_block(self, size: int) -> bytes:
        while len(self._buffer) < size:
            self._receive()
        data = bytes(self._buffer[:size])
        del self._buffer[:size]
        return data

    def skip_to(self, marker: bytes) -> None:
        """Skip to the first occurrence of these bytes."""
        while (at := self._buffer.find(marker)) < 0:
            del self._buffer[: max(0, len(self._buffer) - len(marker))]
            self._receive()
        del self._buffer[:at]

    def _receive(self) -> None:
        data = self._socket.recv(READ_BYTES)
        if not data:
            raise ConnectionError("the server closed the connection")
        self._buffer += data

    def close(self) -> None:
        self._socket.close()


def encode(rows: Rows, format: str) -> tuple[bytes, int]:
    """Return a block and its number of tuples."""
    if format == "ndjson":
        lines = [json.dumps(row, separators=(",", ":"), ensure_ascii=False, default=str) for row in rows]
        return ("\n".join(lines) + "\n").encode() if lines else b"", len(lines)
    if format == "arrow":
        import pyarrow as pa

        batches = rows.to_batches() if isinstance(rows, pa.Table) else [rows]
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        return sink.getvalue().to_pybytes(), rows.num_rows
    raise ValueError(f"format must be ndjson or arrow, not {format!r}")


def decode(payload: bytes, format: str) -> Rows:
    """Return a list of dicts, or a pyarrow Table."""
    if format == "ndjson":
        return [json.loads(text) for text in payload.splitlines() if text]
    if format == "arrow":
        import pyarrow as pa

        return pa.ipc.open_stream(payload).read_all()
    raise ValueError(f"format must be ndjson or arrow, not {format!r}")
