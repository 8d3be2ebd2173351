"""Numbers by value: a table instead of a hash, for a key of one integer from a narrow range (most identities)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine.operators.state.columns import Numbers

_RANGE = 131_072


class DirectTable:
    """A cache in front of a hash index. Owned by the worker that runs the box."""

    __slots__ = ("_base", "_table")

    def __init__(self) -> None:
        self._base = 0
        self._table: npt.NDArray[np.int32] | None = None  # the number of value ``_base + i``, -1 for unknown

    @property
    def nbytes(self) -> int:
        return 0 if self._table is None else self._table.nbytes

    def covers(self, values: Numbers) -> bool:
        """Tell whether the table has a place for each value. It moves to where the values are if they fit into it."""
        if not values.shape[0]:
            return False
        low, high = int(values.min()), int(values.max())
        if self._table is not None and low >= self._base and high < self._base + _RANGE:
            return True
        if high - low >= _RANGE // 2:
            return False
        self._base = max(low - _RANGE // 4, -(2**63))
        self._table = np.full(_RANGE, -1, np.int32)
        return high < self._base + _RANGE

    def get(self, values: Numbers) -> Numbers:
        """Return the number of each value, -1 where it is unknown."""
        assert self._table is not None
        return self._table.take(values - self._base).astype(np.int64)

    def put(self, values: Numbers, numbers: Numbers) -> None:
        """Learn the numbers of values that the table covers."""
        assert self._table is not None
        self._table[values - self._base] = numbers
