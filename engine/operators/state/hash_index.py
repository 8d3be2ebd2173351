"""A hash index from columns of integers to numbers, probed a whole column at a time.

Open addressing with linear probing, over int32 cells that hold only the number. The key of a number is in columns of
the owner, and every hit is checked against them. So nothing is deleted here: an entry whose number was given to another
key does not match any more and counts as a collision until ``rebuild``. The owner keeps one unused row at the end of
its columns: an empty cell (-1) reads it, and needs no test of its own.

The hash is multiply-shift with random odd multipliers, because keys come from outside and must not be able to choose
their cells. No result depends on the multipliers.

``find`` and ``insert`` are kernels (``engine/operators/compiled``): numpy here, loops there.
"""

from __future__ import annotations

from collections.abc import Callable
from secrets import randbits

import numpy as np
import numpy.typing as npt

from engine.operators.compiled.hashing import (
    ByWidth,
    Cells,
    Multipliers,
    find_loop,
    find_signature,
    insert_loop,
    insert_signature,
    own,
)

Array = npt.NDArray[np.int64]
Columns = tuple[npt.NDArray[np.int64], ...]

_MIN_BITS = 6
_SPARSE = 4  # cells for each number after a rebuild: three of four probes that miss end at once


class HashIndex:
    """Owned by the worker that runs the box."""

    __slots__ = ("_bits", "_cells", "_find", "_insert", "_multipliers", "used")

    def __init__(self, columns: int) -> None:
        self._multipliers = np.array([randbits(64) | 1 for _ in range(columns)], np.uint64)
        self._find, self._insert = FIND[columns], INSERT[columns]
        self._clear(0)

    def _clear(self, expected: int) -> None:
        self._bits = max(_MIN_BITS, (_SPARSE * expected - 1).bit_length())
        self._cells = np.full(1 << self._bits, -1, np.int32)
        self.used = 0  # cells that are not empty

    @property
    def nbytes(self) -> int:
        return self._cells.nbytes

    def find(self, probes: Columns, columns: Columns) -> Array:
        """Return the number of each probe, -1 where there is none. The first probe may be one row for all."""
        return self._find.run(self._cells, self._bits, self._multipliers, probes, columns)

    def insert(self, probes: Columns, numbers: Array) -> None:
        """Add numbers that are not in the index. The owner must ask ``is_full`` first."""
        self._insert.run(self._cells, self._bits, self._multipliers, probes, numbers)
        self.used += numbers.shape[0]

    def is_full(self, more: int) -> bool:
        return 2 * (self.used + more) > len(self._cells)

    def rebuild(self, probes: Columns, numbers: Array, more: int) -> None:
        """Hold only these numbers, in a table with room for ``more``."""
        self._clear(numbers.shape[0] + more)
        self.insert(probes, numbers)


def _find(cells: Cells, bits: int, multipliers: Multipliers, probes: Columns, columns: Columns) -> Array:
    at = _home(probes, bits, multipliers)
    numbers = cells.take(at).astype(np.int64)
    match = _equal(probes, columns, numbers)
    if match.all():
        return numbers
    left = np.flatnonzero(~match)
    found = numbers.take(left)
    mask = len(cells) - 1
    while left.shape[0]:
        numbers[left] = -1
        left = left[found != -1]
        at[left] = (at.take(left) + 1) & mask
        found = cells.take(at.take(left)).astype(np.int64)
        match = _equal(tuple([p.take(left) if p.shape[0] != 1 else p for p in probes]), columns, found)
        numbers[left[match]] = found[match]
        left, found = left[~match], found[~match]
    return numbers


def _insert(cells: Cells, bits: int, multipliers: Multipliers, probes: Columns, numbers: Array) -> None:
    at = _home(probes, bits, multipliers)
    mask = len(cells) - 1
    left = np.arange(numbers.shape[0])
    while left.shape[0]:
        free = cells.take(at.take(left)) == -1
        wanted = left[free]
        cells[at.take(wanted)] = numbers.take(wanted)
        lost = cells.take(at.take(wanted)) != numbers.take(wanted)  # two numbers wanted the same cell
        left = np.concatenate([left[~free], wanted[lost]])
        at[left] = (at.take(left) + 1) & mask


def _home(probes: Columns, bits: int, multipliers: Multipliers) -> Array:
    total = probes[0].view(np.uint64) * multipliers[0]
    for probe, multiplier in zip(probes[1:], multipliers[1:], strict=True):
        total = total + probe.view(np.uint64) * multiplier
    home: Array = (total >> np.uint64(64 - bits)).view(np.int64)
    return home


def _equal(probes: Columns, columns: Columns, numbers: Array) -> npt.NDArray[np.bool_]:
    match: npt.NDArray[np.bool_] = columns[0].take(numbers) == probes[0]
    for probe, column in zip(probes[1:], columns[1:], strict=True):
        match &= column.take(numbers) == probe
    return match


def _find_compiled(loop: Callable[..., None]) -> Callable[[Cells, int, Multipliers, Columns, Columns], Array]:
    def find(cells: Cells, bits: int, multipliers: Multipliers, probes: Columns, columns: Columns) -> Array:
        out = np.empty(probes[-1].shape[0], np.int64)
        loop(cells, np.uint64(64 - bits), multipliers, own(probes), columns, out)
        return out

    return find


def _insert_compiled(loop: Callable[..., None]) -> Callable[[Cells, int, Multipliers, Columns, Array], None]:
    def insert(cells: Cells, bits: int, multipliers: Multipliers, probes: Columns, numbers: Array) -> None:
        loop(cells, np.uint64(64 - bits), multipliers, own(probes), numbers)

    return insert


FIND = ByWidth("find", _find, find_loop, find_signature, _find_compiled)
INSERT = ByWidth("insert", _insert, insert_loop, insert_signature, _insert_compiled)
