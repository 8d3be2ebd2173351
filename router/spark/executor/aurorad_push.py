"""A task of a bulk job: push one partition to the daemon's Spark port, from where an earlier attempt stopped.

Runs in a Python worker. ``aurorad_wire`` is the file of ``wire/``, shipped beside this one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from router.spark.wire.aurorad_wire import Connection, piece_rows, pieces
else:
    from aurorad_wire import Connection, piece_rows, pieces


def push_partition(to: tuple[str, str, str], job: str, partition: int, schema: bytes, messages: Iterable[bytes]) -> int:
    """Send one partition without the rows that the daemon has. Return its number of rows once the daemon has all.

    ``to``: the daemon's address, its token, and whom to trust (``aurorad_wire``)."""
    with Connection(*to) as connection:
        have = connection.ask("push", job=job, partition=partition)["rows"]
        rows = send_messages(connection, schema, messages, have)
        if connection.hear()["rows"] != rows:
            raise ConnectionError(f"aurorad does not have all {rows} rows of partition {partition}")
        return rows


def send_messages(connection: Connection, schema: bytes, messages: Iterable[bytes], skip: int = 0) -> int:
    """Send batches that are Arrow messages already, without their first ``skip`` rows.

    A message that fits into one piece goes out unchanged; pyarrow reads only its header, for the number of rows. Return
    how many rows there were, the skipped ones included.
    """
    rows, names = 0, pa.ipc.read_schema(pa.py_buffer(schema))
    connection.send_frame(schema)
    for message in messages:
        batch = pa.ipc.read_record_batch(pa.py_buffer(message), names)
        if skip <= rows and 0 < batch.num_rows <= piece_rows(batch):
            connection.send_frame(message)
        else:
            for piece in pieces(batch, min(max(0, skip - rows), batch.num_rows)):
                connection.send_frame(piece.serialize())
        rows += batch.num_rows
    connection.send_end(rows)
    return rows
