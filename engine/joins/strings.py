"""Strings that a box holds on to, in a pool of the box's own.

A stream's pool is rotated, and two inputs have two pools: their codes cannot be state. Here each string has one code
for as long as it is used. For each pool lately seen a table leads from its codes to ours, so a string is looked up by
its text once per pool and not once per tuple. When more strings were ever held than are in use, ``renumber`` begins a
new pool with those in use; trains that still point to the old one keep it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from storage.strings import Codes, StringPool

_POOLS = 8  # tables kept; a stream that rotates its pool uses two at a time
_SPARE = 65_536  # strings out of use that may stay before it pays to renumber


class HeldStrings:
    """Owned by the worker that runs the box."""

    __slots__ = ("_tables", "pool")

    def __init__(self) -> None:
        self.pool = StringPool()
        self._tables: dict[int, tuple[StringPool, Codes]] = {}

    @property
    def nbytes(self) -> int:
        return self.pool.nbytes + sum(table.nbytes for _, table in list(self._tables.values()))

    def codes(self, codes: Codes, pool: StringPool) -> Codes:
        """A column's codes in its pool as codes in ours."""
        if pool is self.pool:
            return codes
        table = self._table(pool)
        held: Codes = table.take(codes)
        if held.shape[0] and held.min() < 0:
            texts = pool.values or [""]  # a pool without strings belongs to a column of NULLs
            unknown = np.unique(codes[held < 0])
            table[unknown] = [self.pool.code(texts[c]) for c in unknown.tolist()]
            held = table.take(codes)
        return held

    def _table(self, pool: StringPool) -> Codes:
        known = self._tables.get(id(pool))
        size = max(1, len(pool))
        if known is not None and known[0] is pool and known[1].shape[0] >= size:
            return known[1]
        table = np.full(size if known is None else 2 * size, -1, np.int32)
        if known is not None and known[0] is pool:
            table[: known[1].shape[0]] = known[1]
        elif len(self._tables) >= _POOLS:
            del self._tables[next(iter(self._tables))]
        self._tables[id(pool)] = (pool, table)
        return table

    def is_wasteful(self, used: int) -> bool:
        """Whether it pays to renumber, given about how many strings are in use."""
        return len(self.pool) > 2 * used + _SPARE

    def renumber(self, codes: npt.NDArray[np.integer]) -> Codes:
        """Keep only the strings at these codes, in this order; the new code by the old."""
        old = self.pool
        remap = np.zeros(max(1, len(old)), np.int32)
        self.pool = StringPool(old.values[c] for c in codes.tolist())
        self._tables.clear()
        remap[codes] = np.arange(codes.shape[0], dtype=np.int32)
        return remap
