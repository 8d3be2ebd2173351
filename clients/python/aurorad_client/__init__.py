"""A client of aurorad that loses nothing.

It numbers the batches that it sends, repeats those that were not acknowledged, and continues to read where it stopped.

    from aurorad_client import Reader, Sender

    with Sender("127.0.0.1", 9401, source="till-7") as sender:
        for sale in sales:
            sender.send([sale])          # returns at once while fewer than `window` batches are unacknowledged
        receipt = sender.flush()         # everything is on the server's disk, but for receipt.rejected rows

    for batch in Reader("127.0.0.1", 9402, name="billing"):
        book(batch.rows)
        batch.ack()                      # after a crash of either side the reader continues behind this one

    view("http://127.0.0.1:9400", "prices", where="price > 100")     # the last row of each key, now

``AsyncSender`` and ``AsyncReader`` are the same for asyncio. ndjson needs the standard library only.
``format="arrow"`` needs pyarrow, and takes its tables and record batches.
"""

from __future__ import annotations

from aurorad_client.aio import AsyncBatch, AsyncReader, AsyncSender
from aurorad_client.errors import (
    ClientError,
    ClosedError,
    LostBatchesError,
    ProtocolError,
    RefusedError,
    RejectedRow,
    RejectedRowsError,
    StalledError,
    UnreachableError,
    UntrustedError,
)
from aurorad_client.events import Receipt
from aurorad_client.reader import Batch, Reader
from aurorad_client.sender import Sender
from aurorad_client.version import VERSION
from aurorad_client.view import view

__all__ = [
    "AsyncBatch",
    "AsyncReader",
    "AsyncSender",
    "Batch",
    "ClientError",
    "ClosedError",
    "LostBatchesError",
    "ProtocolError",
    "Reader",
    "Receipt",
    "RefusedError",
    "RejectedRow",
    "RejectedRowsError",
    "Sender",
    "StalledError",
    "UnreachableError",
    "UntrustedError",
    "view",
]
__version__ = VERSION
