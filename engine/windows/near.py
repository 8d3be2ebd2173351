"""One column of integers that lie close together, as identities mostly do: a table by value instead of a hash."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine.windows.numbers import Numbers

_NEAR = 131_072


class NearTable:
    """Numbers by value, -1 where there is none. Owned by the worker that runs the box."""

    __slots__ = ("_base", "_table")

    def __init__(self) -> None:
        self._base = 0
        self._table: npt.NDArray[np.int32] | None = None

    def covers(self, bits: Numbers) -> bool:
        """Whether the table has a place for each of these; it moves to where they are when they fit into it."""
        if not bits.shape[0]:
            return False
        low, high = int(bits.min()), int(bits.max())
        if self._table is not None and low >= self._base and high < self._base + _NEAR:
            return True
        if high - low >= _NEAR // 2:
            return False
        self._base = max(low - _NEAR // 4, -(2**63))
        self._table = np.full(_NEAR, -1, np.int32)
        return high < self._base + _NEAR

    def get(self, bits: Numbers) -> Numbers:
        assert self._table is not None
        return self._table.take(bits - self._base).astype(np.int64)

    def put(self, bits: Numbers, numbers: Numbers) -> None:
        if self._table is not None:
            inside = np.flatnonzero((bits >= self._base) & (bits < self._base + _NEAR))
            self._table[bits.take(inside) - self._base] = numbers.take(inside)
