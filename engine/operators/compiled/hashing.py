"""The loops of the hash index: find keys, insert new ones, number the distinct rows of a train.

Loops are compiled for a number of columns. A key of more than ``WIDEST`` columns stays with numpy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic

import numpy as np
import numpy.typing as npt

from storage.compiled.kernel import Kernel, R

Integers = npt.NDArray[np.int64]
Columns = tuple[Integers, ...]
Cells = npt.NDArray[np.int32]
Multipliers = npt.NDArray[np.uint64]

WIDEST = 4


def find_loop(
    cells: Cells, shift: Any, multipliers: Multipliers, probes: Columns, columns: Columns, out: Integers
) -> None:
    """Write the number of each probe, -1 where there is none. A probe of one row stands for all rows."""
    count = out.shape[0]
    mask = cells.shape[0] - 1
    for i in range(count):
        total = np.uint64(0)
        for c in range(len(probes)):
            probe = probes[c]
            total += np.uint64(probe[i if probe.shape[0] == count else 0]) * multipliers[c]
        at = np.int64(total >> shift)
        number = np.int64(cells[at])
        while number >= 0:
            same = True
            for c in range(len(probes)):
                probe = probes[c]
                if columns[c][number] != probe[i if probe.shape[0] == count else 0]:
                    same = False
            if same:
                break
            at = (at + 1) & mask
            number = np.int64(cells[at])
        out[i] = number


def insert_loop(cells: Cells, shift: Any, multipliers: Multipliers, probes: Columns, numbers: Integers) -> None:
    """Put each number into the first empty cell from the home of its probe on."""
    mask = cells.shape[0] - 1
    for i in range(numbers.shape[0]):
        total = np.uint64(0)
        for c in range(len(probes)):
            total += np.uint64(probes[c][i]) * multipliers[c]
        at = np.int64(total >> shift)
        while cells[at] >= 0:
            at = (at + 1) & mask
        cells[at] = numbers[i]


def distinct_loop(
    cells: Cells, shift: Any, multipliers: Multipliers, columns: Columns, first: Integers, inverse: Integers
) -> None:
    """Number rows by their first appearance; write how many numbers there are at the end of ``first``."""
    mask = cells.shape[0] - 1
    found = 0
    for i in range(inverse.shape[0]):
        total = np.uint64(0)
        for c in range(len(columns)):
            total += np.uint64(columns[c][i]) * multipliers[c]
        at = np.int64(total >> shift)
        number = np.int64(cells[at])
        while number >= 0:
            same = True
            row = first[number]
            for c in range(len(columns)):
                if columns[c][row] != columns[c][i]:
                    same = False
            if same:
                break
            at = (at + 1) & mask
            number = np.int64(cells[at])
        if number < 0:
            number = np.int64(found)
            cells[at] = found
            first[found] = i
            found += 1
        inverse[i] = number
    first[inverse.shape[0]] = found


def find_signature(types: Any, columns: Any) -> tuple[Any, ...]:
    return (types.int32[::1], types.uint64, types.uint64[::1], columns, columns, types.int64[::1])


def insert_signature(types: Any, columns: Any) -> tuple[Any, ...]:
    return (types.int32[::1], types.uint64, types.uint64[::1], columns, types.int64[::1])


def distinct_signature(types: Any, columns: Any) -> tuple[Any, ...]:
    return (types.int32[::1], types.uint64, types.uint64[::1], columns, types.int64[::1], types.int64[::1])


class Twin(Generic[R]):
    """What stays with numpy, called as a kernel is."""

    def __init__(self, twin: Callable[..., R]) -> None:
        self.run = twin


class ByWidth(Generic[R]):
    """A kernel for each number of columns."""

    def __init__(
        self,
        name: str,
        twin: Callable[..., R],
        loop: Callable[..., None],
        signature: Callable[[Any, Any], tuple[Any, ...]],
        wrap: Callable[[Callable[..., None]], Callable[..., R]],
    ) -> None:
        def kernel(width: int) -> Kernel[R]:
            def signatures(types: Any) -> list[tuple[Any, ...]]:
                return [signature(types, types.UniTuple(types.int64[::1], width))]

            return Kernel(f"{name}/{width}", twin, loop, signatures, wrap)

        self.kernels = tuple(kernel(width) for width in range(1, WIDEST + 1))
        self._wider = Twin(twin)

    def __getitem__(self, width: int) -> Kernel[R] | Twin[R]:
        return self.kernels[width - 1] if 0 < width <= WIDEST else self._wider


def own(columns: Columns) -> Columns:
    """Return columns as loops take them: in one piece and not read-only, as those of a sender may be."""
    return tuple([c if c.flags.carray else c.copy() for c in columns])
