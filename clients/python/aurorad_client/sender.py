"""Send tuples so that none is lost and none is counted twice.

The sender numbers its batches and keeps each until the server has acknowledged it. When the connection breaks, it
reconnects, learns which batch the server has last, and sends the rest again; the server drops repeated batches. If the
server has no ``data_dir``, use ``ack="memory"``: it works the same way, but a crash of the server loses its batches.

A program that restarts should store its own place: give the same ``source`` and ``epoch``, read ``resumed_at`` and
continue behind that batch. A program that cannot do that uses a new ``epoch`` (the default is the time of its start).
It must then decide itself what to do with the batches that were not acknowledged before.

Not thread-committed: use one thread, or your own lock.
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
    """Numbers batches, sends them, and keeps each until it is acknowledged. It reconnects by itself."""

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
        """``window``: unacknowledged batches before ``send`` waits. ``timeout_s``: longest time without progress."""
        self._address = (host, port)
        self._source = source
        self._epoch = int(time.time()) if epoch is None else epoch
        self._ack = ack
        self._format = format
        self._window = window
        self._timeout_s = timeout_s
        self._unacknowledged: deque[tuple[int, bytes]] = deque()  # sequences and their bytes, header and block
        self._wire: Wire | None = None
        self._sent = 0  # the last sequence that went out on this connection
        self._not_before = 0.0  # after a refusal: when to send again
        self._refusal = ""  # its reason, for the error message
        self.acknowledged = 0  # the last sequence that the server has acknowledged
        self.resumed_at = 0  # the last sequence that the server had when this sender started
        self.reconnects = -1  # the first connection makes it 0
        self._next = 1  # the sequence of the next batch
        self._reconnect()
        self.resumed_at = self.acknowledged
        self._next = self.acknowledged + 1

    # -- sending ------------------------------------------------------------------------------------------------------

    def send(self, rows: Rows) -> int:
        """Send one batch and return its sequence. Wait only while ``window`` batches are unacknowledged."""
        payload, tuples = encode(rows, self._format)
        header = f'{{"_batch":{self._next},"tuples":{tuples},"bytes":{len(payload)}}}\n'.encode()
        self._unacknowledged.append((self._next, header + payload))
        self._next += 1
        self._exchange(until=self._next - 1 - self._window)
        return self._next - 1

    def flush(self) -> None:
        """Wait until every batch is acknowledged."""
        self._exchange(until=self._next - 1)

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

    # -- exchange with the server -------------------------------------------------------------------------------------

    def _exchange(self, until: int) -> None:
        """Send unsent batches and read answers until this sequence is acknowledged."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            before = self.acknowledged
            try:
                self._send_unsent()
                is_done = self.acknowledged >= until
                while self._wire is not None and self._wire.wait_for_line(0.0 if is_done else self._wait_s(deadline)):
                    self._handle(self._wire.read_line())
                    is_done = True  # read the answers that have arrived; then look again
            except OSError:
                self._reconnect()
            if self.acknowledged >= until:
                return
            if self.acknowledged > before:
                deadline = time.monotonic() + self._timeout_s
            elif time.monotonic() > deadline:
                raise ClientError(f"nothing was acknowledged for {self._timeout_s:g} s{self._refusal}")

    def _wait_s(self, deadline: float) -> float:
        """Return how long to wait for an answer: not beyond the deadline, nor the end of the pause after a refusal."""
        left = deadline - time.monotonic()
        if self._not_before:
            left = min(left, self._not_before - time.monotonic())
        return max(0.0, min(left, 1.0))

    def _send_unsent(self) -> None:
        assert self._wire is not None
        if self._not_before and time.monotonic() < self._not_before:
            return
        self._not_before = 0.0
        for sequence, data in list(self._unacknowledged):
            if sequence > self._sent:
                self._wire.settimeout(self._timeout_s)
                self._wire.send(data)
                self._sent = sequence
                while self._wire.wait_for_line(0.0):  # read the answers, or both sides wait for ever
                    self._handle(self._wire.read_line())
                if self._not_before:
                    return

    def _handle(self, message: dict[str, Any]) -> None:
        if "_ack" in message:
            self._refusal = ""
            self._acknowledge(int(message["_ack"]))
        elif "_refused" in message:
            # The server took nothing of the batch: continue with the one that it expects, after a pause.
            self._refusal = self._refusal or f": {message['reason']}"  # the first has the reason, others follow
            self._sent = min(self._sent, int(message["expected"]) - 1)
            self._not_before = time.monotonic() + REFUSED_PAUSE_SECONDS
        elif "_error" in message:
            raise RefusedError(str(message["_error"]))

    def _acknowledge(self, sequence: int) -> None:
        self.acknowledged = max(self.acknowledged, sequence)
        while self._unacknowledged and self._unacknowledged[0][0] <= sequence:
            self._unacknowledged.popleft()

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
        """Connect, send hello, and learn from the welcome which batch the server has last."""
        self._wire = Wire(*self._address, timeout_s=min(10.0, self._timeout_s))
        self._wire.send_line(_hello={"source": self._source, "epoch": self._epoch, "ack": self._ack})
        message = self._wire.read_line()
        if "_error" in message:
            raise RefusedError(str(message["_error"]))
        if "_welcome" not in message:
            raise ClientError(f"the server does not speak the protocol of aurorad: {message}")
        committed = int(message["_welcome"]["sequence"])
        if committed < self.acknowledged:
            self._begin_new_epoch()
            return
        self._acknowledge(committed)
        self._sent = committed
        self._not_before = 0.0

    def _begin_new_epoch(self) -> None:
        """Begin a new epoch: the server has forgotten acknowledged batches, which memory acknowledgements permit."""
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
        self._connect()
