"""A client of aurorad that loses nothing.

It numbers the batches that it sends, repeats those that were not acknowledged, and continues to read where it stopped.

    from aurorad_client import Reader, Sender

    with Sender("127.0.0.1", 9401, source="till-7") as sender:
        for sale in sales:
            sender.send([sale])          # returns at once while fewer than `window` batches are unacknowledged
        sender.flush()                   # everything is on the server's disk

    for batch in Reader("127.0.0.1", 9402, name="billing"):
        book(batch.rows)
        batch.ack()                      # after a crash of either side the reader continues behind this one

ndjson needs the standard library only. ``format="arrow"`` needs pyarrow, and takes its tables and record batches.
"""

from __future__ import annotations

from aurorad_client.errors import ClientError, RefusedError
from aurorad_client.reader import Batch, Reader
from aurorad_client.sender import Sender

__all__ = ["Batch", "ClientError", "Reader", "RefusedError", "Sender"]
__version__ = "0.2.0"
