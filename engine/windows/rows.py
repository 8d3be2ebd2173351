"""The rows of one train on their way into groups: which slot each goes to, and in which order they count.

What only some accumulators need (the distinct slots of the train, the first and last row of each) is found on demand
and once. The trick for all of it is a scratch column as long as there are slots: each row writes its position at its
slot, the last one stands. No sort, and no cost that grows with the number of slots.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from engine.windows.numbers import Array, Numbers


class Rows:
    """``order`` is what "first" and "last" go by: the event time, or the position in a key's sequence."""

    def __init__(self, slots: Numbers, order: Numbers, scratch: Numbers, serials: Numbers) -> None:
        self.slots = slots
        self.order = order
        self.serials = serials  # by slot
        self._scratch = scratch  # by slot; holds nothing between two uses

    def take(self, index: npt.NDArray[np.intp]) -> Rows:
        return Rows(self.slots.take(index), self.order.take(index), self._scratch, self.serials)

    def where(self, valid: npt.NDArray[np.bool_] | None, values: Array) -> tuple[Rows, Array]:
        """Only the rows with a value, and those values."""
        if valid is None:
            return self, values
        index = np.flatnonzero(valid)
        return self.take(index), values.take(index)

    @cached_property
    def distinct(self) -> tuple[Numbers, Numbers]:
        """The slots that occur, each once, and for each row the position of its slot among them."""
        scratch, slots = self._scratch, self.slots
        positions = np.arange(slots.shape[0])
        scratch[slots] = positions
        unique = slots[scratch.take(slots) == positions]
        scratch[unique] = np.arange(unique.shape[0])
        return unique, scratch.take(slots)

    def ends(self, *, last: bool) -> tuple[Numbers, Numbers]:
        """The slots that occur, each once, and the position of the first (or last) row of each; of rows equal in order
        the first (or last) to have arrived."""
        unique, _ = self.distinct
        sequence = np.arange(self.slots.shape[0])
        if (self.order[1:] < self.order[:-1]).any():
            sequence = np.argsort(self.order, kind="stable")
        if not last:
            sequence = sequence[::-1]
        self._scratch[self.slots.take(sequence)] = sequence
        return unique, self._scratch.take(unique)
