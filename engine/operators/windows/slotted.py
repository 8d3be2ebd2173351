"""The rows of one train on their way into groups: the slot of each row, and the order that first and last go by.

Some accumulators need the distinct slots of the train, or the first or last row of each slot. These are computed on
demand, and once, with a scratch column that has a cell for each slot: each row writes its position at its slot, and the
last one stays. That needs no sort, and the cost does not grow with the number of slots.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
import numpy.typing as npt

from engine.operators.state.columns import Array, Numbers


class SlottedRows:
    """``order`` is the event time, or the position in the sequence of the key."""

    def __init__(self, slots: Numbers, order: Numbers, scratch: Callable[[], Numbers], serials: Numbers) -> None:
        self.slots = slots
        self.order = order
        self.serials = serials  # by slot
        self._scratch = scratch  # a column by slot; its content means nothing between two uses

    def take(self, index: npt.NDArray[np.intp]) -> SlottedRows:
        return SlottedRows(self.slots.take(index), self.order.take(index), self._scratch, self.serials)

    def where(self, valid: npt.NDArray[np.bool_] | None, values: Array) -> tuple[SlottedRows, Array]:
        """Return only the rows with a value, and those values."""
        if valid is None:
            return self, values
        index = np.flatnonzero(valid)
        return self.take(index), values.take(index)

    @cached_property
    def distinct(self) -> tuple[Numbers, Numbers]:
        """Return the slots that occur, each once, and for each row the position of its slot among them."""
        scratch, slots = self._scratch(), self.slots
        positions = np.arange(slots.shape[0])
        scratch[slots] = positions
        unique = slots[scratch.take(slots) == positions]
        scratch[unique] = np.arange(unique.shape[0])
        return unique, scratch.take(slots)

    def ends(self, *, last: bool) -> tuple[Numbers, Numbers]:
        """Return the slots that occur, each once, and the position of the first (or last) row of each.

        Of rows with equal order it is the first (or last) to arrive.
        """
        unique, _ = self.distinct
        sequence = np.arange(self.slots.shape[0])
        if (self.order[1:] < self.order[:-1]).any():
            sequence = np.argsort(self.order, kind="stable")
        if not last:
            sequence = sequence[::-1]
        scratch = self._scratch()
        scratch[self.slots.take(sequence)] = sequence
        return unique, scratch.take(unique)
