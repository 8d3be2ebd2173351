"""The strings of a state, in a pool of its own.

A stream replaces its pool when it is full, and two inputs have two pools: their codes cannot be state. Here a string
has one code for as long as it is used. For each pool seen lately a table leads from its codes to ours, so a string is
looked up by its text once a pool and not once a tuple. ``renumber`` begins a new pool with the strings in use when most
are not; trains that still point to the old pool keep it alive.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from storage.strings import MAX_ENTRIES, Codes, StringPool
from storage.train import Mask

_POOLS = 8  # tables kept: a stream that replaces its pool uses two at a time
_SPARE = 65_536  # unused strings that may stay before it pays to renumber


class StateStrings:
    """Owned by the worker that runs the box."""

    __slots__ = ("_tables", "pool")

    def __init__(self) -> None:
        self.pool = StringPool()
        self._tables: dict[int, tuple[StringPool, Codes]] = {}  # by id of a pool, which the entry keeps alive

    @property
    def nbytes(self) -> int:
        return self.pool.nbytes + sum(table.nbytes for _, table in list(self._tables.values()))

    def codes(self, codes: Codes, pool: StringPool, valid: Mask | None = None) -> Codes:
        """Translate a column's codes in its pool to codes in ours; NULLs get 0."""
        if pool is self.pool:
            return codes
        table = self._table(pool)
        ours = _translated(table, codes, valid)
        if ours.shape[0] and ours.min() < 0:
            unknown = np.unique(codes[ours < 0])
            texts = pool.values or [""]  # the pool of a column of NULLs may hold no string
            table[unknown] = self.pool.encode([texts[c] for c in unknown.tolist()])
            ours = _translated(table, codes, valid)
        return ours

    def _table(self, pool: StringPool) -> Codes:
        known = self._tables.get(id(pool))
        size = max(1, len(pool))
        if known is not None and known[1].shape[0] >= size:
            return known[1]
        table = np.full(size if known is None else 2 * size, -1, np.int32)
        if known is not None:
            table[: known[1].shape[0]] = known[1]
        elif len(self._tables) >= _POOLS:
            del self._tables[next(iter(self._tables))]
        self._tables[id(pool)] = (pool, table)
        return table

    def result(self, codes: Codes) -> tuple[Codes, StringPool]:
        """Return codes for a train that leaves the box, and their pool.

        Boxes and codecs downstream keep tables over all entries of a pool. A pool as large as a stream's may become is
        handed out as it is; of a larger one only the strings of this train, in a new pool.
        """
        if len(self.pool) <= MAX_ENTRIES:
            return codes, self.pool
        used, places = np.unique(codes, return_inverse=True)
        texts = self.pool.values
        pool = StringPool(texts[c] for c in used.tolist())
        return places.astype(np.int32), pool

    def is_wasteful(self, used: int) -> bool:
        """Tell whether it pays to renumber, given about how many strings are in use."""
        return len(self.pool) > 2 * used + _SPARE

    def renumber(self, codes: npt.NDArray[np.integer]) -> Codes:
        """Keep only the strings at these codes, in this order; return the new code by the old."""
        old = self.pool
        remap = np.zeros(max(1, len(old)), np.int32)
        self.pool = StringPool(old.values[c] for c in codes.tolist())
        self._tables.clear()
        remap[codes] = np.arange(codes.shape[0], dtype=np.int32)
        return remap


def _translated(table: Codes, codes: Codes, valid: Mask | None) -> Codes:
    ours: Codes = table.take(codes)
    if valid is not None:
        ours[~valid] = 0
    return ours
