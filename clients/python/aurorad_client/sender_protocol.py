"""The side of a sender, without I/O: see ``events.py``."""

from __future__ import annotations

from collections import deque
from typing import Any

from aurorad_client.errors import LostBatchesError, ProtocolError, RefusedError, RejectedRow
from aurorad_client.events import Acknowledged, BatchRefused, NewEpoch, Receipt, Welcomed
from aurorad_client.received import ReceivedBytes, encode_line, not_aurorad
from aurorad_client.rows import Rows, encode

REASONS_KEPT = 10


class SenderProtocol:
    """Numbers batches and keeps each until it is acknowledged.

    ``acknowledged`` is the number of the last batch that the server has. ``rejected`` counts the rows that it refused.
    """

    def __init__(self, source: str, epoch: int, ack: str, format: str, auth: str = "") -> None:
        self._auth = {"auth": auth} if auth else {}
        self._source = source
        self._ack = ack
        self._format = format
        self._received = ReceivedBytes()
        self._is_welcomed = False
        self._unacknowledged: deque[tuple[int, bytes]] = deque()  # sequences and their bytes, header and block
        self._sent = 0  # the last sequence that went out on this connection
        self._next = 1  # the sequence of the next batch
        self._rejected_there = 0  # the server's running total, as far as it is in ``rejected``
        self._reported = 0  # rows in receipts
        self._reasons: list[RejectedRow] = []  # the first since the last receipt
        self._batch_bytes: int | None = None  # the largest block that the server takes; None: it did not say
        self.epoch = epoch
        self.acknowledged = 0
        self.resumed_at: int | None = None  # the last sequence that the server had at the first welcome
        self.rejected = 0
        self.refusal = ""  # why the server takes no batch now; empty when it does

    @property
    def last(self) -> int:
        """The number of the last batch."""
        return self._next - 1

    # -- out ----------------------------------------------------------------------------------------------------------

    def connect(self, nonce: str) -> bytes:
        """Begin a connection; return its first bytes. (A sender needs no nonce.)"""
        self._received.clear()
        self._is_welcomed = False
        hello = {"source": self._source, "epoch": self.epoch, "ack": self._ack, "format": self._format}
        return encode_line(_hello={**hello, **self._auth})

    def after_welcome(self) -> bytes:
        return b""

    def add(self, rows: Rows) -> None:
        """Number a batch and keep it until it is acknowledged. Its number is ``last``."""
        block, count = encode(rows, self._format)
        if self._batch_bytes is not None and len(block) > self._batch_bytes:
            raise ValueError(
                f"a batch of {len(block):,} bytes is above the server's limit of {self._batch_bytes:,} (limits.batch):"
                f" {f'send fewer than {count:,} rows at once' if count > 1 else 'this row is too large'}"
            )
        header = b'{"_batch":%d,"tuples":%d,"bytes":%d}\n' % (self._next, count, len(block))
        self._unacknowledged.append((self._next, header + block))
        self._next += 1

    def next_batch(self) -> bytes | None:
        """Return the bytes of the next batch that this connection has not sent; None when there is none.

        The caller sends them at once. When that fails, the connection has failed, and the next welcome says from where
        to go on.
        """
        if not self._unacknowledged or self._sent >= self.last:
            return None
        sequence, data = self._unacknowledged[max(0, self._sent + 1 - self._unacknowledged[0][0])]
        self._sent = sequence
        return data

    def receipt(self) -> Receipt:
        """Return the news since the last receipt."""
        news = Receipt(self.acknowledged, self.rejected - self._reported, tuple(self._reasons))
        self._reported = self.rejected
        self._reasons = []
        return news

    @property
    def has_new_rejects(self) -> bool:
        return self.rejected > self._reported

    # -- in -----------------------------------------------------------------------------------------------------------

    def receive_data(self, data: bytes) -> None:
        self._received.add(data)

    def receive_end(self) -> None:
        """Note that the server has closed the connection. Its reason, if any, was an event before."""

    def next_event(self) -> Welcomed | Acknowledged | BatchRefused | NewEpoch | None:
        """Return the next event; None while more bytes are needed."""
        message = self._received.next_line()
        if message is None:
            return None
        if "_error" in message:
            raise RefusedError(str(message["_error"]))
        if not self._is_welcomed:
            return self._welcome(message)
        if "_ack" in message:
            self.refusal = ""
            self._count_rejects(message)
            self._acknowledge(int(message["_ack"]))
            return Acknowledged(self.acknowledged)
        if "_refused" in message:
            # The first refusal has the reason; those of the batches behind it say that one before them is missing.
            self.refusal = self.refusal or str(message["reason"])
            self._sent = min(self._sent, int(message["expected"]) - 1)
            return BatchRefused(self.refusal)
        raise not_aurorad(str(message))

    def _welcome(self, message: dict[str, Any]) -> Welcomed | NewEpoch:
        welcome = message.get("_welcome")
        if not isinstance(welcome, dict):
            raise ProtocolError(f"no welcome but a row: is this the port of an output? {message!s:.80}")
        committed = int(welcome["sequence"])
        if committed < self.acknowledged:
            self._begin_new_epoch()
            return NewEpoch()
        self._is_welcomed = True
        self._batch_bytes = welcome.get("batch_bytes")
        if self.resumed_at is None:
            self.resumed_at = committed
            self._next = committed + 1
            self._rejected_there = int(welcome.get("rejected", 0))  # of batches before this sender
        self._rejected_there = min(self._rejected_there, int(welcome.get("rejected", 0)))  # less: the server restarted
        self._count_rejects(welcome)
        self._acknowledge(committed)
        self._sent = committed
        return Welcomed()

    def _acknowledge(self, sequence: int) -> None:
        self.acknowledged = max(self.acknowledged, sequence)
        while self._unacknowledged and self._unacknowledged[0][0] <= sequence:
            self._unacknowledged.popleft()

    def _count_rejects(self, message: dict[str, Any]) -> None:
        """Count the refused rows that are new in an answer."""
        total = int(message.get("rejected", self._rejected_there))
        self.rejected += total - self._rejected_there
        is_new = total > self._rejected_there
        self._rejected_there = total
        for reason in message.get("reasons", ()) if is_new else ():
            if len(self._reasons) < REASONS_KEPT and int(reason["batch"]) > self.acknowledged:
                self._reasons.append(_rejected_row(reason, self._format))

    def _begin_new_epoch(self) -> None:
        """Renumber: the server has forgotten acknowledged batches, which memory acknowledgements permit."""
        if self._ack == "disk":
            raise LostBatchesError("the server has lost batches that it had acknowledged as on disk")
        self.epoch += 1
        kept = [data for _, data in self._unacknowledged]
        self._unacknowledged = deque(
            (n, b'{"_batch":%d,' % n + data.split(b",", 1)[1]) for n, data in enumerate(kept, 1)
        )
        self._next = len(kept) + 1
        self.acknowledged = self._sent = self._rejected_there = 0


def _rejected_row(reason: dict[str, Any], format: str) -> RejectedRow:
    line = int(reason["line"])
    row = line - 1 if format == "ndjson" and line else None
    return RejectedRow(
        int(reason["batch"]), row, str(reason["reason"]), str(reason["message"]), int(reason.get("tuples", 1))
    )
