"""The errors of the client. Catch ``ClientError`` for all of them.

A connection that breaks is no error: the client reconnects. These are the cases that a retry does not cure, or that the
client has retried for ``timeout_s``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

SHOWN = 3


class RejectedRow(NamedTuple):
    """A row that the server refused, or ``rows`` of them for the same reason. The rest of its batch went in."""

    batch: int  # the number that ``send`` returned
    row: int | None  # its index in the rows of that batch; None for arrow
    reason: str  # a word for programs: malformed, missing_field, null, wrong_type, out_of_range, ...
    message: str  # a sentence for people
    rows: int = 1

    def __str__(self) -> str:
        place = f"batch {self.batch}" if self.row is None else f"batch {self.batch}, row {self.row}"
        return f"{place}: {self.message} ({self.reason}{f', {self.rows:,} rows' if self.rows > 1 else ''})"


class ClientError(Exception):
    """Base of all errors of this package."""


class UnreachableError(ClientError):
    """The server could not be reached for ``timeout_s``."""


class StalledError(ClientError):
    """The server is connected, and acknowledged nothing for ``timeout_s``. The message has its last refusal."""


class RefusedError(ClientError):
    """The server refuses this client. The message is the server's reason."""


class UntrustedError(ClientError):
    """The server's certificate is not to be trusted: from an unknown authority, expired, or of another host."""


class ProtocolError(ClientError):
    """The bytes from the server are not the protocol of aurorad: probably the port of something else."""


class LostBatchesError(ClientError):
    """The server no longer has batches that it acknowledged as on disk: its ``data_dir`` was removed or replaced."""


class ClosedError(ClientError):
    """The sender or reader was used after ``close``."""


class RejectedRowsError(ClientError):
    """The server refused rows, and the sender is ``strict``. The good rows of the same batches went in."""

    def __init__(self, rejected: int, reasons: Sequence[RejectedRow]) -> None:
        self.rejected = rejected
        self.reasons = tuple(reasons)
        shown = "".join(f"\n  {reason}" for reason in self.reasons[:SHOWN])
        more = "\n  ..." if rejected > sum(r.rows for r in self.reasons[:SHOWN]) else ""
        super().__init__(f"the server refused {rejected:,} row{'s' if rejected != 1 else ''}{shown}{more}")
