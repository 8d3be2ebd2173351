"""Read an output without missing a tuple.

A reader has a name, and the server remembers its place under that name. Iterate over the reader: each batch has its
rows and the number of its first tuple. ``ack`` says that the batch is processed; after a crash of either side the
reader continues behind the last acknowledged batch. If you store the place yourself, next to your results, give it as
``after``: that is exact.

``is_repeat``: these tuples may have been delivered before under other numbers. That happens only after a crash of the
server with a network whose results depend on the time of day. ``missing``: the number of tuples before this batch that
are lost, because this reader was away for longer than the server keeps them.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from typing import Any

from aurorad_client.errors import ClientError, RefusedError
from aurorad_client.wire import Rows, Wire, decode

LONGEST_PAUSE_SECONDS = 1.0


class Batch:
    """Rows with consecutive numbers, ``first`` to ``last``. See the module for ``is_repeat`` and ``missing``."""

    def __init__(self, reader: Reader, first: int, count: int, rows: Rows, is_repeat: bool, missing: int) -> None:
        self.first = first
        self.last = first + count - 1
        self.rows = rows
        self.is_repeat = is_repeat
        self.missing = missing
        self._reader = reader

    def ack(self) -> None:
        """Acknowledge this batch and all before it."""
        self._reader.ack(self.last)


class Reader:
    """An endless iterator over the batches of an output. It reconnects by itself."""

    def __init__(
        self,
        host: str,
        port: int,
        name: str,
        *,
        after: int | None = None,
        format: str = "ndjson",
        timeout_s: float = 60.0,
        idle_s: float | None = None,
    ) -> None:
        """Connect and wait for the server's welcome. From then on the server keeps the output for this name.

        ``timeout_s``: how long to try to reach the server. ``idle_s``: end after this time without a batch.
        """
        self._address = (host, port)
        self._name = name
        self._format = format
        self._timeout_s = timeout_s
        self._idle_s = idle_s
        self._wire: Wire | None = None
        self._acked = 0
        self._missing = 0
        self.after = after  # the number of the last tuple that the caller has got
        self.reconnects = -1  # the first connection makes it 0
        self._reconnect()

    def __iter__(self) -> Iterator[Batch]:
        while True:
            try:
                batch = self._next()
            except TimeoutError:
                return
            except OSError:
                self._reconnect()
                continue
            if batch is not None:
                yield batch

    def ack(self, number: int) -> None:
        """Acknowledge all tuples up to this number."""
        self._acked = max(self._acked, number)
        if self._wire is not None:
            try:
                self._wire.send_line(_ack=number)
            except OSError:
                pass  # the next connection repeats it after its hello

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    def _next(self) -> Batch | None:
        """Read the next batch; None for a gap. TimeoutError when nothing came for ``idle_s``."""
        if self._wire is None:
            raise ConnectionError("closed")
        self._wire.settimeout(self._idle_s)
        message = self._wire.read_line()
        if "_gap" in message:
            self._missing += int(message["_gap"]["to"]) - int(message["_gap"]["from"]) + 1
            return None
        if "_error" in message:
            raise RefusedError(str(message["_error"]))
        if "_batch" not in message:
            raise ClientError(f"the server does not speak the protocol of aurorad: {message}")
        payload = self._wire.read_block(int(message["bytes"]))
        missing, self._missing = self._missing, 0
        batch = Batch(
            self, int(message["_batch"]), int(message["tuples"]), decode(payload, self._format),
            bool(message.get("repeat", False)), missing,
        )  # fmt: skip
        self.after = batch.last
        return batch

    def _reconnect(self) -> None:
        deadline = time.monotonic() + self._timeout_s
        pause = 0.02
        while True:
            self.close()
            try:
                self._connect()
            except OSError as error:
                if time.monotonic() > deadline:
                    raise ClientError(f"cannot reach {self._address[0]}:{self._address[1]}: {error}") from error
                time.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
            else:
                self.reconnects += 1
                return

    def _connect(self) -> None:
        """Connect, send hello and wait for the welcome."""
        nonce = secrets.token_hex(16)
        self._wire = Wire(*self._address, timeout_s=min(10.0, self._timeout_s))
        hello: dict[str, Any] = {"name": self._name, "nonce": nonce}
        if self.after is not None:
            hello["after"] = self.after
        self._wire.send_line(_hello=hello)
        # The port also serves plain readers: bytes before the welcome are for them.
        self._wire.skip_to(json.dumps({"_welcome": {"nonce": nonce}}, separators=(",", ":"))[:-2].encode())
        welcome = self._wire.read_line()["_welcome"]
        if self.after is None:
            self.after = int(welcome["after"])
        if self._acked:
            self._wire.send_line(_ack=self._acked)
