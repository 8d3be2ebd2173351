"""How Spark's executors talk to an aurorad over its Spark port. Imports nothing of aurorad and nothing of Spark.

This one file is both the daemon's own (shipped to the executors of its bulk jobs) and the client package's.

A connection carries one question: a line of JSON, answered by a line of JSON (``{"ok": ...}`` or ``{"error": ...}``).
Where rows follow, in either direction, they come as frames: four bytes of length (big endian) and one whole Arrow IPC
message, first the schema, then the record batches; a frame of no bytes ends them, and a length of 2^32 - 1 says that an
error follows. An Arrow stream that is cut off reads
like one that has ended, so the end is never taken on trust: behind the last frame stands a line with the number of
rows, and only the answer to that line means that they have arrived.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

VERSION = 1
CONNECT_SECONDS = 20.0
BATCH_ROWS = 65_536
BATCH_BYTES = 8 * 1024**2
LINE_BYTES = 1024**2
ERROR_FOLLOWS = 0xFFFFFFFF
MORE = getattr(socket, "MSG_MORE", 0)  # a length travels with what it is the length of


class WireError(Exception):
    """What the daemon refuses, in its words. Retrying gives the same answer."""


class Connection:
    """One question and its answer."""

    def __init__(self, address: str, token: str = "") -> None:
        host, _, port = address.rpartition(":")
        self._sock = socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS)
        # From here on the daemon may take its time (it stands back for live outputs, it keeps a pace): a peer that is
        # really gone is noticed by the kernel.
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
        """The answer, or WireError."""
        self.say({"aurorad": VERSION, "do": do, "token": self._token, **arguments})
        return self.hear()

    def say(self, line: dict[str, Any]) -> None:
        self._send(json.dumps(line).encode() + b"\n")

    def hear(self) -> dict[str, Any]:
        line = self._file.readline(LINE_BYTES)
        if not line.endswith(b"\n"):
            raise ConnectionError("aurorad closed the connection before it answered")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise WireError(f"aurorad: {answer['error']}")
        return answer

    def send_frame(self, data: Any) -> None:
        view = memoryview(data)
        self._send(struct.pack(">I", view.nbytes), MORE)
        self._send(view)

    def send_end(self, rows: int) -> None:
        self._send(struct.pack(">I", 0))
        self.say({"rows": rows})

    def frames(self) -> Iterator[bytearray]:
        """What comes, until the empty frame."""
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
                raise ConnectionError("aurorad closed the connection among the rows")
            have += read
        return data

    def _send(self, data: Any, flags: int = 0) -> None:
        try:
            self._sock.sendall(data, flags)
        except OSError:
            self.hear()  # it has said why, if it could
            raise


def send_batches(connection: Connection, batches: Iterable[Any], skip: int = 0) -> int:
    """Record batches in pieces that the daemon takes, without their first ``skip`` rows; how many rows there were."""
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
    """At most so many rows and about so many bytes each, cut where the batch says and not where ``skip`` does: an
    attempt that begins in the middle sends what follows in the same pieces."""
    size = piece_rows(batch)
    for start in range(0, batch.num_rows, size):
        begin, end = max(start, skip), min(start + size, batch.num_rows)
        if begin < end:
            yield batch.slice(begin, end - begin)


def piece_rows(batch: Any) -> int:
    row_bytes: int = max(1, batch.nbytes // max(1, batch.num_rows))
    return max(1, min(BATCH_ROWS, BATCH_BYTES // row_bytes))


def send_messages(connection: Connection, schema: bytes, messages: Iterable[bytes], skip: int = 0) -> int:
    """As ``send_batches``, of batches that are Arrow messages already. One that need not be cut goes out as it came,
    and only its head is read, for its number of rows."""
    rows, names = 0, pa.ipc.read_schema(pa.py_buffer(schema))
    connection.send_frame(schema)
    for message in messages:
        batch = pa.ipc.read_record_batch(pa.py_buffer(message), names)
        if skip <= rows and 0 < batch.num_rows <= piece_rows(batch):
            connection.send_frame(message)
        else:
            for piece in pieces(batch, min(max(0, skip - rows), batch.num_rows)):
                connection.send_frame(piece.serialize())
        rows += batch.num_rows
    connection.send_end(rows)
    return rows


def read_batches(connection: Connection) -> Iterator[Any]:
    """The record batches that follow an answer. Raises when they are not all there."""
    schema, rows = None, 0
    for frame in connection.frames():
        if schema is None:
            schema = pa.ipc.read_schema(pa.py_buffer(frame))
            continue
        batch = pa.ipc.read_record_batch(pa.py_buffer(frame), schema)
        rows += batch.num_rows
        yield batch
    told = connection.hear()["rows"]
    if told != rows:
        raise ConnectionError(f"aurorad sent {rows} rows and said {told}")


def push_partition(address: str, token: str, job: str, partition: int, schema: bytes, messages: Iterable[bytes]) -> int:
    """One part of a bulk job, from where an earlier attempt left off. Its rows, once the daemon has them all."""
    with Connection(address, token) as connection:
        have = connection.ask("push", job=job, partition=partition)["rows"]
        rows = send_messages(connection, schema, messages, have)
        if connection.hear()["rows"] != rows:
            raise ConnectionError(f"aurorad has not all of the {rows} rows of partition {partition}")
        return rows
