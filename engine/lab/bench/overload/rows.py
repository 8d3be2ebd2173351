"""The rows of a sender: a sample that is read over and over, each row stamped with the time at which it is due.

``ArrowRows`` are cheap to send and to decode. ``LineRows`` are ndjson of many producers: the order of the fields
differs from row to row, so the daemon cannot decode them by their layout and spends most of its time on decoding. The
sender must not be the bottleneck, so all lines have one width and the stamp is written into the bytes by column: 5 ns a
row.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

Mask = npt.NDArray[np.bool_]
STAMP_DIGITS = 19  # of ns since 1970, until the year 2286


class SampleRows(Protocol):
    """Rows to send. A payload is what ``opened`` writes."""

    count: int

    def cut(self, at: int, count: int, keep: Mask | None, due_ns: int) -> tuple[Any, int]:
        """Return a payload of the kept rows of this part of the sample, and their number."""

    def opened(self, connection: socket.socket) -> Any:
        """Return a context that gives the function which writes a payload to the connection."""


class ArrowRows:
    def __init__(self, table: pa.RecordBatch, time: str) -> None:
        self._table = table
        self._time = table.schema.get_field_index(time)
        self.count: int = table.num_rows

    def cut(self, at: int, count: int, keep: Mask | None, due_ns: int) -> tuple[Any, int]:
        batch = self._table.slice(at, count)
        if keep is not None:
            batch = batch.filter(pa.array(keep))
        field = batch.schema.field(self._time)
        stamps = pa.array(np.full(batch.num_rows, due_ns, np.int64)).cast(field.type)
        return batch.set_column(self._time, field, stamps), batch.num_rows

    @contextmanager
    def opened(self, connection: socket.socket) -> Iterator[Callable[[Any], None]]:
        with connection.makefile("wb", 0) as file, pa.ipc.new_stream(file, self._table.schema) as writer:
            yield writer.write_batch


class LineRows:
    def __init__(self, table: pa.RecordBatch, time: str) -> None:
        random = Random(1)
        names = [name for name in table.schema.names if name != time]
        rows = [
            (
                f'{{"{time}":{"0" * STAMP_DIGITS}',
                orjson.dumps({k: row[k] for k in random.sample(names, len(names))})[1:-1].decode(),
            )
            for row in table.drop_columns([time]).to_pylist()
        ]
        widest = max(len(rest) for _, rest in rows)
        text = "".join(f"{head},{rest.ljust(widest)}}}\n" for head, rest in rows).encode()
        self._lines = np.frombuffer(text, np.uint8).reshape(len(rows), -1)
        self._stamp = slice(len(rows[0][0]) - STAMP_DIGITS, len(rows[0][0]))
        self.count = len(rows)

    def cut(self, at: int, count: int, keep: Mask | None, due_ns: int) -> tuple[Any, int]:
        part = self._lines[at : at + count]
        lines = part.copy() if keep is None else part[keep]
        lines[:, self._stamp] = np.frombuffer(str(due_ns).encode(), np.uint8)
        return lines.reshape(-1).data, len(lines)

    @contextmanager
    def opened(self, connection: socket.socket) -> Iterator[Callable[[Any], None]]:
        with connection:
            yield connection.sendall


def read_rows(spec: dict[str, Any]) -> SampleRows:
    """Read the sample of a stream, in the format that its spec names."""
    with pa.OSFile(str(Path(spec["sample"])), "rb") as file:
        table: pa.RecordBatch = pa.ipc.open_file(file).get_batch(0)
    make: Any = LineRows if spec.get("format") == "ndjson" else ArrowRows
    rows: SampleRows = make(table, spec["time"])
    return rows
