"""From rows to a block and back: JSON with the standard library, Arrow with pyarrow."""

from __future__ import annotations

import datetime
import decimal
import json
import uuid
from typing import Any

FORMATS = ("ndjson", "arrow")
Rows = Any
"""Dicts for ndjson; a pyarrow Table or RecordBatch for arrow."""


def check_format(format: str) -> None:
    if format not in FORMATS:
        raise ValueError(f"format must be ndjson or arrow, not {format!r}")


def encode(rows: Rows, format: str) -> tuple[bytes, int]:
    """Return a block and its number of rows. Raises TypeError for what the format cannot carry."""
    if format == "arrow":
        return _encode_arrow(rows)
    if isinstance(rows, (dict, str, bytes)):
        raise TypeError(f"send takes a list of rows, not one {type(rows).__name__}")
    lines = [_row_to_json(row) for row in rows]
    return ("\n".join(lines) + "\n").encode() if lines else b"", len(lines)


def decode(block: bytes, format: str) -> Rows:
    """Return a list of dicts, or a pyarrow Table."""
    if format == "arrow":
        import pyarrow as pa

        return pa.ipc.open_stream(block).read_all()
    # One call for all lines takes half the time of one call for each. A line break cannot stand inside a JSON value.
    return json.loads(b"[" + block.strip().replace(b"\n", b",") + b"]")


def _encode_arrow(rows: Rows) -> tuple[bytes, int]:
    import pyarrow as pa

    if not isinstance(rows, (pa.Table, pa.RecordBatch)):
        raise TypeError(f"with format='arrow' send takes a pyarrow Table or RecordBatch, not {type(rows).__name__}")
    batches = rows.to_batches() if isinstance(rows, pa.Table) else [rows]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes(), rows.num_rows


def _plain(value: Any) -> Any:
    """Return a value that JSON has for one that it has not."""
    if isinstance(value, (datetime.datetime, datetime.date)):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return float(value)
    if isinstance(value, uuid.UUID):
        return str(value)
    if type(value).__module__ == "numpy" and hasattr(value, "item"):
        return value.item()
    raise TypeError(f"ndjson cannot carry a {type(value).__name__}: {value!r:.80}")


_to_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, default=_plain).encode


def _row_to_json(row: Any) -> str:
    if not isinstance(row, dict):
        raise TypeError(f"a row is a dict of fields, not {type(row).__name__}: {row!r:.80}")
    return _to_json(row)
