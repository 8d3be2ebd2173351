"""The client's end of a connection to the daemon's Spark port. Imports nothing of aurorad and nothing of Spark.

This one file has two users. The driver ships it to the executors of a bulk job, under its bare name; and the package of
``clients/spark`` contains it as ``pyspark_aurorad/wire.py``. In the repository that path is a link to this file, so
there is one source; a wheel or a source archive contains a copy.

A connection carries one request: a line of JSON, answered by a line of JSON (``{"ok": ...}`` or ``{"error": ...}``).
Rows follow as frames, in either direction: four bytes of length (big endian), then one whole Arrow IPC message. The
first message is the schema, the others are record batches. A frame of length 0 ends the rows. A length of 2^32 - 1
announces a line with an error instead of a frame.

An Arrow stream that breaks off reads like one that has ended. So the receiver never trusts the end of the stream:
behind the last frame stands a line with the number of rows, and only the answer to that line means that the rows have
arrived.

An address ``tls://host:port`` is that of a port with TLS. ``trust`` says whom to believe: a file of certificate
authorities, or their text (PEM); with ``pin:`` before the text, exactly this certificate under any host name; without
it, the authorities of this machine.
"""

from __future__ import annotations

import json
import socket
import ssl
import struct
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

VERSION = 1
CONNECT_SECONDS = 20.0
ANSWER_SECONDS = 60.0  # for requests that the daemon answers at once; it is a busy machine's time, not a healthy one's
SLOW = ("commit", "end")  # requests whose answer waits for rows to enter, or for the disk
BATCH_ROWS = 65_536
BATCH_BYTES = 8 * 1024**2
LINE_BYTES = 1024**2
ERROR_FOLLOWS = 0xFFFFFFFF
MORE = getattr(socket, "MSG_MORE", 0)  # send a frame's length in one packet with the frame


TLS = "tls://"


class WireError(Exception):
    """The daemon refused the request and said why. A retry gets the same answer."""


class Connection:
    """One request and its answer."""

    def __init__(self, address: str, token: str = "", trust: str = "") -> None:
        host, _, port = address.removeprefix(TLS).rpartition(":")
        self._sock = socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS)
        self._more = MORE
        if address.startswith(TLS):
            self._sock = tls_context(trust).wrap_socket(self._sock, server_hostname=host.strip("[]"))
            self._more = 0  # TLS knows no flags
        # No timeout for rows: the daemon may be slow on purpose, because it yields to live outputs or keeps a pace. The
        # kernel's keepalive notices a peer that is gone. ``ask`` has a deadline of its own.
        self._sock.settimeout(None)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._file = self._sock.makefile("rb")
        self._token = token

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._sock.close()

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Send a request and return its answer. Raises WireError when the daemon refuses it.

        A peer that accepts the connection and stays silent is no aurorad, or one that hangs: TimeoutError.
        """
        self._sock.settimeout(None if do in SLOW else ANSWER_SECONDS)
        try:
            self.say({"aurorad": VERSION, "do": do, "token": self._token, **arguments})
            return self.hear()
        except TimeoutError:
            raise TimeoutError(
                f"no aurorad has answered within {ANSWER_SECONDS:g} s: is this its Spark port?"
            ) from None
        finally:
            self._sock.settimeout(None)

    def say(self, line: dict[str, Any]) -> None:
        """Send one line."""
        self._send(json.dumps(line).encode() + b"\n")

    def hear(self) -> dict[str, Any]:
        """Receive one line. Raises WireError when it is an error."""
        line = self._file.readline(LINE_BYTES)
        if not line.endswith(b"\n"):
            raise ConnectionError("aurorad closed the connection before it answered")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise WireError(f"aurorad: {answer['error']}")
        return answer

    def send_frame(self, data: Any) -> None:
        view = memoryview(data)
        self._send(struct.pack(">I", view.nbytes), self._more)
        self._send(view)

    def send_end(self, rows: int) -> None:
        """Send the empty frame and the number of rows."""
        self._send(struct.pack(">I", 0))
        self.say({"rows": rows})

    def frames(self) -> Iterator[bytearray]:
        """Receive frames until the empty one."""
        while size := struct.unpack(">I", self._exactly(4))[0]:
            if size == ERROR_FOLLOWS:
                self.hear()
            yield self._exactly(size)

    def _exactly(self, size: int) -> bytearray:
        data = bytearray(size)
        view, have = memoryview(data), 0
        while have < size:
            read = self._file.readinto(view[have:])
            if not read:
                raise ConnectionError("aurorad closed the connection in the middle of the rows")
            have += read
        return data

    def _send(self, data: Any, flags: int = 0) -> None:
        try:
            self._sock.sendall(data, flags)
        except OSError:
            self.hear()  # raises the daemon's reason, if it has sent one before it closed the connection
            raise


def tls_context(trust: str) -> ssl.SSLContext:
    """Return the context of a client that believes ``trust``."""
    text = trust.removeprefix("pin:")
    is_text = "-----BEGIN" in text
    context = ssl.create_default_context(
        cafile=text if text and not is_text else None, cadata=text if is_text else None
    )
    if trust.startswith("pin:"):
        context.check_hostname = False
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def send_batches(connection: Connection, batches: Iterable[Any], skip: int = 0) -> int:
    """Send record batches without their first ``skip`` rows, in pieces of a size that the daemon accepts.

    Return how many rows there were, the skipped ones included.
    """
    rows = 0
    opened = False
    for batch in batches:
        if not opened:
            connection.send_frame(batch.schema.serialize())
            opened = True
        for piece in pieces(batch, min(max(0, skip - rows), batch.num_rows)):
            connection.send_frame(piece.serialize())
        rows += batch.num_rows
    connection.send_end(rows)
    return rows


def pieces(batch: Any, skip: int = 0) -> Iterator[Any]:
    """Slice a batch into pieces of at most BATCH_ROWS rows and about BATCH_BYTES bytes, without its first ``skip``
    rows.

    ``skip`` does not move the boundaries between the pieces: an attempt that begins in the middle of a batch sends the
    rows behind it in the same pieces as the attempt before.
    """
    size = piece_rows(batch)
    for start in range(0, batch.num_rows, size):
        begin, end = max(start, skip), min(start + size, batch.num_rows)
        if begin < end:
            yield batch.slice(begin, end - begin)


def piece_rows(batch: Any) -> int:
    """Return how many rows of this batch may go into one piece."""
    row_bytes: int = max(1, batch.nbytes // max(1, batch.num_rows))
    return max(1, min(BATCH_ROWS, BATCH_BYTES // row_bytes))


def read_batches(connection: Connection) -> Iterator[Any]:
    """Receive the record batches that follow an answer. Raises ConnectionError when some of the rows are missing."""
    schema, rows = None, 0
    for frame in connection.frames():
        if schema is None:
            schema = pa.ipc.read_schema(pa.py_buffer(frame))
            continue
        batch = pa.ipc.read_record_batch(pa.py_buffer(frame), schema)
        rows += batch.num_rows
        yield batch
    announced = connection.hear()["rows"]
    if announced != rows:
        raise ConnectionError(f"aurorad announced {announced} rows and sent {rows}")
