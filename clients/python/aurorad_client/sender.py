"""Send rows so that none is lost and none is counted twice.

The sender numbers its batches and keeps each until the server has acknowledged it. When the connection breaks, it
reconnects, learns which batch the server has last, and sends the rest again; the server drops repeated batches. If the
server has no ``data_dir``, use ``ack="memory"``: it works the same way, but a crash of the server loses its batches.

A batch is acknowledged when its good rows are in. The server refuses rows that do not fit the schema one by one.
``flush`` returns how many and the first reasons; a ``strict`` sender raises RejectedRowsError instead.

A program that restarts should store its own place: give the same ``source`` and ``epoch``, read ``resumed_at`` and
continue behind that batch. A program that cannot do that uses a new ``epoch`` (the default is the time of its start).
It must then decide itself what to do with the batches that were not acknowledged before.

Use a sender from one thread at a time.
"""

from __future__ import annotations

import time
from types import TracebackType

from aurorad_client.errors import RejectedRowsError
from aurorad_client.events import Receipt
from aurorad_client.link import Link
from aurorad_client.patience import AckDeadline
from aurorad_client.rows import Rows
from aurorad_client.settings import Auth, Tls, make_endpoint, make_sender_protocol
from aurorad_client.standing import SenderStanding


class Sender(SenderStanding):
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
        strict: bool = False,
        auth: Auth = None,
        tls: Tls = False,
    ) -> None:
        """Connect and wait for the server's welcome.

        ``window``: unacknowledged batches before ``send`` waits. ``timeout_s``: longest time without progress.
        ``strict``: raise RejectedRowsError when the server refuses rows. ``auth``: a token, or a name and a password.
        ``tls``: True, or a context.
        """
        super().__init__(make_sender_protocol(source, epoch, ack, format, window, auth))
        self._window = window
        self._strict = strict
        self._timeout_s = timeout_s
        self._link = Link(make_endpoint(host, port, timeout_s, tls), self._protocol)
        self._link.reconnect()

    @property
    def reconnects(self) -> int:
        return self._link.reconnects

    def send(self, rows: Rows) -> int:
        """Send one batch and return its number. Wait only while ``window`` batches are unacknowledged."""
        self._link.check_open()
        self._protocol.add(rows)
        self._exchange(self._window)
        return self._protocol.last

    def poll(self) -> None:
        """Send what is left to send and take the answers that have come, without waiting for more."""
        self._link.check_open()
        self._exchange(None)

    def flush(self) -> Receipt:
        """Wait until every batch is acknowledged. Return what the server refused since the last flush."""
        self._link.check_open()
        self._exchange(0)
        return self._protocol.receipt()

    def close(self) -> None:
        """Close without waiting for acknowledgements."""
        self._link.close()

    def __enter__(self) -> Sender:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Wait for the last acknowledgement, unless an error ends the block, and close."""
        try:
            if kind is None and not self._link.is_closed:
                self.flush()
        finally:
            self.close()

    def _exchange(self, most: int | None) -> None:
        """Send unsent batches and read answers until at most ``most`` are unacknowledged. None: do not wait."""
        progress = AckDeadline(self._timeout_s, self.acknowledged, time.monotonic())
        while True:
            try:
                self._send_unsent()
                is_done = self._has_at_most(most)
                self._link.receive(0.0 if is_done else self._wait_s(progress, time.monotonic()))
                self._take_events(time.monotonic())
                is_done = is_done or self._has_at_most(most)
            except OSError:
                self._link.reconnect()
                is_done = False  # the batches that were not acknowledged go out again
            if is_done:
                break
            progress.check(self.acknowledged, self.refusal, time.monotonic())
        if self._strict and self._protocol.has_new_rejects:
            news = self._protocol.receipt()
            raise RejectedRowsError(news.rejected, news.reasons)

    def _send_unsent(self) -> None:
        while self._may_send(time.monotonic()) and (data := self._protocol.next_batch()) is not None:
            self._link.send(data)
            self._link.receive(0.0)  # read the answers, or both sides may wait for ever
            self._take_events(time.monotonic())
