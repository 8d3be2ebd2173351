"""Long trains as polars frames: its text writers are the fastest that were measured, and they release the GIL.

polars is imported on first use (70 ms); a daemon that sees only short trains never imports it.
"""

from __future__ import annotations

from io import BytesIO
from typing import Any

import numpy as np
import pyarrow as pa

from catalog.schema import Type
from router.codecs.encode.pool_arrays import PoolArrays
from router.codecs.encode.text import ISO_BYTES, in_unit, iso_text
from storage.train import Array, Mask, Train

LONG_TUPLES = 4_096
"""From this size on a frame is cheaper than pieces (``text.py``): 500 us to start, then 100 to 150 ns a tuple of four
fields against 210."""


def load_writers() -> None:
    """Import polars ahead of its first use."""
    import polars  # noqa: F401


class FrameWriter:
    """Writes long trains as text. Called on one worker at a time."""

    def __init__(self, timestamps: str) -> None:
        self._timestamps = timestamps
        self._pools = PoolArrays()

    def ndjson(self, train: Train) -> bytes:
        out = BytesIO()
        self._frame(train).write_ndjson(out)
        return out.getvalue()

    def csv(self, train: Train) -> bytes:
        out = BytesIO()
        self._frame(train).write_csv(out, include_header=False, quote_style="necessary")
        return out.getvalue()

    def _frame(self, train: Train) -> Any:
        import polars as pl

        series = [pl.from_arrow(self._array(train, i)).alias(f.name) for i, f in enumerate(train.schema)]  # type: ignore[union-attr]
        return pl.DataFrame(series)

    def _array(self, train: Train, at: int) -> Any:
        values, valid, pool = train.columns[at], train.null_mask(at), train.pools[at]
        kind = train.schema.fields[at].type
        if pool is not None:
            return self._pools.strings(pool, values, valid)
        if kind is Type.TIMESTAMP:
            if self._timestamps == "iso":
                return _iso_array(values, valid)
            values = in_unit(values, self._timestamps)
        elif kind is Type.FLOAT or kind is Type.DOUBLE:
            is_finite = np.isfinite(values)
            if not is_finite.all():
                valid = is_finite if valid is None else valid & is_finite
        return pa.array(np.ascontiguousarray(values), mask=None if valid is None else ~valid)


def _iso_array(values: Array, valid: Mask | None) -> Any:
    """Wrap ISO times in an Arrow string array. They have one width, so the offsets are known and nothing is copied."""
    text = iso_text(values)
    offsets = np.arange(len(values) + 1, dtype=np.int32) * np.int32(ISO_BYTES)
    array = pa.StringArray.from_buffers(len(values), pa.py_buffer(offsets.data), pa.py_buffer(text.view(np.uint8).data))
    if valid is None:
        return array
    import pyarrow.compute as pc

    return pc.if_else(pa.array(valid), array, pa.scalar(None, pa.string()))
