"""Sending so that nothing is lost and nothing counted twice.

Batches are numbered and kept until the server has acknowledged them. When the connection breaks, the sender connects
again, is told how far the server has come, and sends the rest once more; the server drops what it has already. Without
``data_dir`` on the server, say ``ack="memory"``: the same, except that what a crash of the server loses is lost.

A sender that is restarted itself should keep its own place: give the same ``source`` and ``epoch``, read ``resumed_at``
and go on behind that batch. If it cannot, it takes a new ``epoch`` (the default is the time of its start), and what the
last one had not got acknowledged is its own to decide.

Not thread-safe: one thread, or a lock of yours.
"""

from __future__ import annotations

import time
from collections import deque
from types import TracebackType
from typing import Any

from aurorad_client.errors import ClientError, RefusedError
from aurorad_client.wire import Rows, Wire, encode

LONGEST_PAUSE_SECONDS = 1.0
REFUSED_PAUSE_SECONDS = 0.1


class Sender:
    def __init__(
        self,
        host: str,
        port: int,
        source: str,
        *,
        epoch: int | None = None,
        ack: str = "disk",
        format: str = "ndjson",
        window: int = 64,
        timeout_s: float = 60.0,
    ) -> None:
        """``window``: batches that may be unacknowledged before ``send`` waits. ``timeout_s``: without any progress."""
        self._address = (host, port)
        self._source = source
        self._epoch = int(time.time()) if epoch is None else epoch
        self._ack = ack
        self._format = format
        self._window = window
        self._timeout_s = timeout_s
        self._unacknowledged: deque[tuple[int, bytes]] = deque()
        self._wire: Wire | None = None
        self._sent = 0  # the last sequence that went out on this connection
        self._not_before = 0.0  # after a refusal: when to send again
        self._refusal = ""
        self.acknowledged = 0
        self.resumed_at = 0
        self.reconnects = -1
        self._next = 1
        self._connect_again()
        self.resumed_at = self.acknowledged
        self._next = self.acknowledged + 1

    # -- sending ------------------------------------------------------------------------------------------------------

    def send(self, rows: Rows) -> int:
        """Hand over one batch; its sequence. Waits only while ``window`` batches are unacknowledged."""
        payload, tuples = encode(rows, self._format)
        header = f'{{"_batch":{self._next},"tuples":{tuples},"bytes":{len(payload)}}}\n'.encode()
        self._unacknowledged.append((self._next, header + payload))
        self._next += 1
        self._work(until=self._next - 1 - self._window)
        return self._next - 1

    def flush(self) -> None:
        """Until everything is acknowledged."""
        self._work(until=self._next - 1)

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    def __enter__(self) -> Sender:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None:
            self.flush()
        self.close()

    # -- work ---------------------------------------------------------------------------------------------------------

    def _work(self, until: int) -> None:
        """Send what has not been sent, hear what there is to hear, until this sequence is acknowledged."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            before = self.acknowledged
            try:
                self._send_rest()
                is_done = self.acknowledged >= until
                while self._wire is not None and self._wire.wait(0.0 if is_done else self._patience(deadline)):
                    self._hear(self._wire.line())
                    is_done = True  # hear the rest of what is there; then look again
            except OSError:
                self._connect_again()
            if self.acknowledged >= until:
                return
            if self.acknowledged > before:
                deadline = time.monotonic() + self._timeout_s
            elif time.monotonic() > deadline:
                raise ClientError(f"nothing was acknowledged for {self._timeout_s:g} s{self._refusal}")

    def _patience(self, deadline: float) -> float:
        left = deadline - time.monotonic()
        if self._not_before:
            left = min(left, self._not_before - time.monotonic())
        return max(0.0, min(left, 1.0))

    def _send_rest(self) -> None:
        assert self._wire is not None
        if self._not_before and time.monotonic() < self._not_before:
            return
        self._not_before = 0.0
        for sequence, data in list(self._unacknowledged):
            if sequence > self._sent:
                self._wire.settimeout(self._timeout_s)
                self._wire.send(data)
                self._sent = sequence
                while self._wire.wait(0.0):  # a server that answers must be read from, or both wait for ever
                    self._hear(self._wire.line())
                if self._not_before:
                    return

    def _hear(self, said: dict[str, Any]) -> None:
        if "_ack" in said:
            self._refusal = ""
            self._acknowledge(int(said["_ack"]))
        elif "_refused" in said:
            # Nothing of it was taken: go back to what the server expects, after a moment.
            self._refusal = self._refusal or f": {said['reason']}"  # the first one says why; the rest follow from it
            self._sent = min(self._sent, int(said["expected"]) - 1)
            self._not_before = time.monotonic() + REFUSED_PAUSE_SECONDS
        elif "_error" in said:
            raise RefusedError(str(said["_error"]))

    def _acknowledge(self, sequence: int) -> None:
        self.acknowledged = max(self.acknowledged, sequence)
        while self._unacknowledged and self._unacknowledged[0][0] <= sequence:
            self._unacknowledged.popleft()

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
        self._wire = Wire(*self._address, timeout_s=min(10.0, self._timeout_s))
        self._wire.say(_hello={"source": self._source, "epoch": self._epoch, "ack": self._ack})
        said = self._wire.line()
        if "_error" in said:
            raise RefusedError(str(said["_error"]))
        if "_welcome" not in said:
            raise ClientError(f"not the protocol of aurorad: {said}")
        safe = int(said["_welcome"]["sequence"])
        if safe < self.acknowledged:
            self._begin_anew()
            return
        self._acknowledge(safe)
        self._sent = safe
        self._not_before = 0.0

    def _begin_anew(self) -> None:
        """The server has forgotten what it had acknowledged, as memory acks allow: a new life of this source."""
        if self._ack == "disk":
            raise ClientError("the server has lost batches that it had acknowledged as on disk")
        self.close()
        self._epoch += 1
        renumbered = [data for _, data in self._unacknowledged]
        self._unacknowledged = deque(
            (n, f'{{"_batch":{n},'.encode() + data.split(b",", 1)[1]) for n, data in enumerate(renumbered, 1)
        )
        self._next = len(renumbered) + 1
        self.acknowledged = self._sent = 0
        self._greet()
