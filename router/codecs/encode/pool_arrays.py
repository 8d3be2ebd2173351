"""A pool's strings as an Arrow array, kept from train to train and extended as the pool grows.

The strings of a train are then one gather. A pool holds up to 65,536 strings and grows by a few in a train. Extending
the array copies it, at 1 GB/s; a train with only known codes copies nothing. Owner: one encoder.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from storage.strings import StringPool
from storage.train import Array, Mask

KEPT = 4  # pools at a time: a stream has one, a union of several streams a few


class PoolArrays:
    """The arrays of the last few pools, by identity."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[StringPool, Any]] = {}

    def strings(self, pool: StringPool, codes: Array, valid: Mask | None) -> Any:
        """Return the column as a plain Arrow string array."""
        if not codes.size:
            return pa.array([], pa.string())
        table = self._table(pool, int(codes.max()))
        indices = pa.array(codes, mask=None if valid is None else ~valid)
        return table.take(indices)

    def _table(self, pool: StringPool, highest: int) -> Any:
        kept = self._kept.get(id(pool))
        table = kept[1] if kept is not None and kept[0] is pool else None
        if table is not None and highest < len(table):
            return table
        have = 0 if table is None else len(table)
        fresh = pa.array(pool.values[have:] or [""], pa.string())
        table = fresh if table is None else pa.concat_arrays([table, fresh])
        self._kept.pop(id(pool), None)
        self._kept[id(pool)] = (pool, table)
        if len(self._kept) > KEPT:
            self._kept.pop(next(iter(self._kept)))
        return table
