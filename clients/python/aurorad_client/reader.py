"""Reading an output so that nothing is missed: a name, a place, and going on from there.

Iterate over a reader: each batch has its rows and the number of its first tuple. ``ack`` says that it has been dealt
with; after a crash of either side the reader goes on behind the last one. Give ``after`` if you keep the place
yourself, next to what you make of the tuples: that is exact. Without it the server's memory of the last ``ack`` counts.

``is_repeat``: the tuples may have been delivered before under other numbers, after a crash of the server with a network
whose results depend on the time of day. ``missing``: so many tuples before this batch are gone, because this reader was
away for longer than the server keeps them.
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
    def __init__(self, reader: Reader, first: int, count: int, rows: Rows, is_repeat: bool, missing: int) -> None:
        self.first = first
        self.last = first + count - 1
        self.rows = rows
        self.is_repeat = is_repeat
        self.missing = missing
        self._reader = reader

    def ack(self) -> None:
        self._reader.ack(self.last)


class Reader:
    """An endless iterator over an output's batches; it connects again by itself."""

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
        """``timeout_s``: how long to try to reach the server. ``idle_s``: end when nothing comes for so long."""
        self._address = (host, port)
        self._name = name
        self._format = format
        self._timeout_s = timeout_s
        self._idle_s = idle_s
        self._wire: Wire | None = None
        self._acked = 0
        self._missing = 0
        self.after = after  # the number of the last tuple that was given out
        self.reconnects = -1
        self._connect_again()

    def __iter__(self) -> Iterator[Batch]:
        while True:
            try:
                batch = self._next()
            except TimeoutError:
                return
            except OSError:
                self._connect_again()
                continue
            if batch is not None:
                yield batch

    def ack(self, number: int) -> None:
        self._acked = max(self._acked, number)
        if self._wire is not None:
            try:
                self._wire.say(_ack=number)
            except OSError:
                pass  # said again with the next connection's hello

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    def _next(self) -> Batch | None:
        if self._wire is None:
            raise ConnectionError("closed")
        self._wire.settimeout(self._idle_s)
        said = self._wire.line()
        if "_gap" in said:
            self._missing += int(said["_gap"]["to"]) - int(said["_gap"]["from"]) + 1
            return None
        if "_error" in said:
            raise RefusedError(str(said["_error"]))
        if "_batch" not in said:
            raise ClientError(f"not the protocol of aurorad: {said}")
        payload = self._wire.block(int(said["bytes"]))
        missing, self._missing = self._missing, 0
        batch = Batch(
            self, int(said["_batch"]), int(said["tuples"]), decode(payload, self._format),
            bool(said.get("repeat", False)), missing,
        )  # fmt: skip
        self.after = batch.last
        return batch

    def _connect_again(self) -> None:
        deadline = time.monotonic() + self._timeout_s
        pause = 0.02
        while True:
            self.close()
            try:
                self._greet()
            except OSError as error:
                if time.monotonic() > deadline:
                    raise ClientError(f"cannot reach {self._address[0]}:{self._address[1]}: {error}") from error
                time.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
            else:
                self.reconnects += 1
                return

    def _greet(self) -> None:
        nonce = secrets.token_hex(16)
        self._wire = Wire(*self._address, timeout_s=min(10.0, self._timeout_s))
        hello: dict[str, Any] = {"name": self._name, "nonce": nonce}
        if self.after is not None:
            hello["after"] = self.after
        self._wire.say(_hello=hello)
        # The port is a plain one as well: what comes before the welcome is for plain readers.
        self._wire.skip_to(json.dumps({"_welcome": {"nonce": nonce}}, separators=(",", ":"))[:-2].encode())
        welcome = self._wire.line()["_welcome"]
        if self.after is None:
            self.after = int(welcome["after"])
        if self._acked:
            self._wire.say(_ack=self._acked)
