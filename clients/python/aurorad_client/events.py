"""The client protocol without I/O: bytes in, events out. The sync and the async clients drive the same classes.

``SenderProtocol`` and ``ReaderProtocol`` live as long as their client, over many connections. For each connection the
client calls ``connect`` and sends what it returns. It then gives every received byte to ``receive_data``, and takes
events from ``next_event`` until that returns None, which means that more bytes are needed. At the end of a connection
it calls ``receive_end``.

There is no socket, no thread and no clock in these classes. ``router/client_protocol.py`` in the server describes the
messages.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from aurorad_client.errors import RejectedRow
from aurorad_client.rows import Rows


class ClientProtocol(Protocol):
    """What a link drives: one side of the protocol, over many connections."""

    def connect(self, nonce: str) -> bytes:
        """Begin a connection; return its first bytes. ``nonce`` is a string that no row contains."""

    def after_welcome(self) -> bytes:
        """Return the bytes to send after each welcome."""

    def receive_data(self, data: bytes) -> None: ...

    def receive_end(self) -> None:
        """Note that the server has closed the connection. Raises RefusedError if it said why."""

    def next_event(self) -> Welcomed | Acknowledged | BatchRefused | NewEpoch | DeliveredRows | None:
        """Return the next event; None while more bytes are needed."""


class Welcomed(NamedTuple):
    """The server has accepted the connection."""


class Acknowledged(NamedTuple):
    """The server has the batches up to this one."""

    sequence: int


class BatchRefused(NamedTuple):
    """The server took nothing of a batch. Pause, then send again."""

    reason: str


class NewEpoch(NamedTuple):
    """The server has forgotten batches that it had in memory. Connect again: the rest is renumbered."""


class DeliveredRows(NamedTuple):
    """Rows with consecutive numbers."""

    first: int
    last: int
    rows: Rows
    is_repeat: bool
    missing: int


class Receipt(NamedTuple):
    """What the server said since the last ``flush``."""

    acknowledged: int  # the number of the last batch that the server has
    rejected: int  # rows that it refused
    reasons: tuple[RejectedRow, ...]  # the first of them
