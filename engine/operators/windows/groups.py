"""Groups: one key in one pane. Each has a slot, and columns over the slots hold everything that was folded into the
group.

A slot that is released is used again. Its ``serial`` is never used again: a log of values knows its groups by it.
``renumber`` moves the live slots together when few of many are left.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.operators.compiled.folding import ARRIVALS, BOUNDS
from engine.operators.expressions import Vector
from engine.operators.state.columns import Array, Numbers, grown
from engine.operators.state.distinct import distinct_rows
from engine.operators.state.hash_index import HashIndex
from engine.operators.windows.accumulators import Accumulator, Partial, plain_column
from engine.operators.windows.logged import Logged
from engine.operators.windows.slots import Slots
from engine.operators.windows.slotted import SlottedRows
from engine.operators.windows.value_log import ValueLog

NO_PANE = -(2**63)
"""The pane of a slot that is not in use: no tuple has it."""


class Gathered:
    """The content of several windows, one row for each, from which the functions compute their results."""

    __slots__ = ("first_ns", "key", "last_ns", "newest_ns", "partials", "rows")

    def __init__(
        self,
        key: Numbers,
        rows: Numbers,
        newest_ns: Numbers,
        first_ns: Numbers,
        last_ns: Numbers,
        partials: list[Partial],
    ) -> None:
        self.key = key
        self.rows = rows  # the number of tuples
        self.newest_ns = newest_ns  # the arrival of the newest tuple
        self.first_ns = first_ns  # the lowest and the highest event time
        self.last_ns = last_ns
        self.partials = partials  # by accumulator; for a log its entries by segment


class Groups:
    """Owned by the worker that runs the box."""

    def __init__(self, accumulators: Sequence[Accumulator], *, has_bounds: bool = False) -> None:
        """With ``has_bounds`` the lowest and the highest event time of each group are kept."""
        self.accumulators = tuple(accumulators)
        self.logs = [ValueLog(a.width) if isinstance(a, Logged) else None for a in self.accumulators]
        self._next_serial = 0
        fills = {"pane": NO_PANE, "key": 0, "rows": 0, "newest_ns": NO_PANE}
        if has_bounds:
            fills |= {"first_ns": 2**63 - 1, "last_ns": NO_PANE}
        if any(log is not None for log in self.logs):
            fills |= {"serial": -1}
        self._fills = fills  # the columns that are kept, and what a slot that is not in use holds
        self._reset(Slots())

    def _reset(self, slots: Slots) -> None:
        size = slots.size
        self._slots = slots
        self._index = HashIndex(2)
        self.pane: Numbers
        self.key: Numbers
        self.rows: Numbers
        self.newest_ns: Numbers
        self._make_unkept(size)
        for name, fill in self._fills.items():
            setattr(self, name, np.full(size, fill, np.int64))
        self.cells = [[c.new(size) for c in a.cells] for a in self.accumulators]
        self._scratch: Numbers | None = None

    @property
    def live(self) -> int:
        return self._slots.live

    @property
    def size(self) -> int:
        return self._slots.size

    @property
    def is_roomy(self) -> bool:
        return self._slots.is_roomy

    @property
    def nbytes(self) -> int:
        cells = sum(c.nbytes for columns in self.cells for c in columns)
        logs = sum(log.nbytes for log in self.logs if log is not None)
        scratch = 0 if self._scratch is None else self._scratch.nbytes
        return cells + logs + scratch + self._index.nbytes + 8 * (len(self._fills) + 1) * self._slots.size

    def live_slots(self) -> Numbers:
        return np.flatnonzero(self.pane != NO_PANE)

    def _make_unkept(self, size: int) -> None:
        """Make the columns that may not be kept: constant ones, which take no memory. Those that are kept replace
        them."""
        self.serial = self.first_ns = self.last_ns = np.broadcast_to(np.int64(NO_PANE), size)

    def scratch(self) -> Numbers:
        """Return a column for intermediate results, made on first use. Its content means nothing between two uses."""
        if self._scratch is None:
            self._scratch = np.zeros(self._slots.size, np.int64)
        return self._scratch

    # -- finding -----------------------------------------------------------------------------------------------------

    def find(self, panes: Numbers, keys: Numbers) -> Numbers:
        """Return the slot of each group, -1 where there is none. ``panes`` may be one for all."""
        return self._index.find((panes, keys), (self.pane, self.key))

    def locate(self, panes: Numbers, keys: Numbers) -> tuple[Numbers, Numbers]:
        """Return the slot of each group, made where there was none, and the slots that are new."""
        slots = self.find(panes, keys)
        if not slots.shape[0] or slots.min() >= 0:
            return slots, slots[:0]
        missing = np.flatnonzero(slots < 0)
        wanted = (panes.take(missing) if panes.shape[0] > 1 else panes.repeat(missing.shape[0]), keys.take(missing))
        first, inverse = distinct_rows(wanted)
        fresh = self._add(wanted[0].take(first), wanted[1].take(first))
        slots[missing] = fresh.take(inverse)
        return slots, fresh

    def _add(self, panes: Numbers, keys: Numbers) -> Numbers:
        """Make slots for groups that have none."""
        count = panes.shape[0]
        if size := self._slots.lacks(count):
            self._grow(size)
        if self._index.is_full(count):
            live = self.live_slots()
            self._index.rebuild((self.pane.take(live), self.key.take(live)), live, count)
        slots = self._slots.take(count)
        self._index.insert((panes, keys), slots)
        self.pane[slots] = panes
        self.key[slots] = keys
        if "serial" in self._fills:
            self.serial[slots] = np.arange(self._next_serial, self._next_serial + count)
            self._next_serial += count
        return slots

    def _grow(self, size: int) -> None:
        self._slots.grow(size)
        kept = {name: getattr(self, name) for name in self._fills}
        self._make_unkept(size)
        for name, fill in self._fills.items():
            setattr(self, name, grown(kept[name], size, fill))
        for accumulator, columns in zip(self.accumulators, self.cells, strict=True):
            columns[:] = [grown(c, size, cell.fill) for c, cell in zip(columns, accumulator.cells, strict=True)]
        self._scratch = None

    # -- rows come in ------------------------------------------------------------------------------------------------

    def add(
        self,
        slots: Numbers,
        columns: Sequence[Vector],
        arrival_ns: npt.NDArray[np.int64],
        times_ns: Numbers | None,
        order: Numbers,
    ) -> None:
        """Fold rows in. ``columns`` are the arguments by accumulator. Without ``times_ns`` the bounds are not kept."""
        constant = slots.shape[0] and arrival_ns.strides[0] == 0
        ARRIVALS.run(self.rows, self.newest_ns, slots, plain_column(arrival_ns[:1] if constant else arrival_ns))
        if times_ns is not None:
            BOUNDS.run(self.first_ns, self.last_ns, slots, plain_column(times_ns))
        rows = SlottedRows(slots, order, self.scratch, self.serial)
        for accumulator, cells, log, column in zip(self.accumulators, self.cells, self.logs, columns, strict=True):
            if log is not None:
                assert isinstance(accumulator, Logged)
                accumulator.log(log, rows, column)
            else:
                accumulator.add(cells, rows, column)

    def merge(self, slots: Numbers, gathered: Gathered) -> None:
        """Add the content of other groups to groups at distinct slots."""
        self.rows[slots] += gathered.rows
        self.newest_ns[slots] = np.maximum(self.newest_ns[slots], gathered.newest_ns)
        if "first_ns" in self._fills:
            self.first_ns[slots] = np.minimum(self.first_ns[slots], gathered.first_ns)
            self.last_ns[slots] = np.maximum(self.last_ns[slots], gathered.last_ns)
        parts = zip(self.accumulators, self.cells, self.logs, gathered.partials, strict=True)
        for accumulator, cells, log, partial in parts:
            if log is not None:
                log.append(self.serial.take(slots.take(partial[0])), tuple(partial[1:]))
            else:
                accumulator.merge(cells, slots, partial)

    # -- forgetting --------------------------------------------------------------------------------------------------

    def release(self, slots: Numbers) -> None:
        for log in self.logs:
            if log is not None and log.forget(self.serial.take(slots)):
                gone = np.zeros(self._slots.size, np.bool_)
                gone[slots] = True
                log.sweep(np.sort(self.serial[(self.pane != NO_PANE) & ~gone]))
        for name, fill in self._fills.items():
            if name != "key":  # the pane says that the slot is free
                getattr(self, name)[slots] = fill
        for accumulator, columns in zip(self.accumulators, self.cells, strict=True):
            for column, cell in zip(columns, accumulator.cells, strict=True):
                column[slots] = cell.fill
        self._slots.give_back(slots)

    def renumber(self, keys: Numbers | None) -> Numbers:
        """Move the live slots together and take up new numbers of keys, if given; return the new slot by the old."""
        live = self.live_slots()
        remap = np.full(self._slots.size, -1)
        kept: dict[str, Numbers] = {name: getattr(self, name).take(live) for name in self._fills}
        if keys is not None:
            kept["key"] = keys.take(kept["key"])
        cells = [[c.take(live, axis=0) for c in columns] for columns in self.cells]
        self._reset(Slots.fitting(live.shape[0]))
        remap[live] = slots = self._slots.take(live.shape[0])
        for name, values in kept.items():
            getattr(self, name)[slots] = values
        for columns, values_of_all in zip(self.cells, cells, strict=True):
            for column, values in zip(columns, values_of_all, strict=True):
                column[slots] = values
        self._index.rebuild((kept["pane"], kept["key"]), slots, 0)
        return remap

    # -- plain data --------------------------------------------------------------------------------------------------

    def snapshot(self, slots: Numbers) -> dict[str, Any]:
        """Return the content of these slots without their keys, which only the owner of the groups can name."""
        names = ("pane", "rows", "newest_ns", "first_ns", "last_ns")
        data: dict[str, Any] = {name: getattr(self, name).take(slots) for name in names}
        data["cells"] = [[plain(c.take(slots, axis=0)) for c in columns] for columns in self.cells]
        serials = self.serial.take(slots)
        data["logs"] = [
            None if log is None else _plain_entries(log.read(serials, np.arange(slots.shape[0]))) for log in self.logs
        ]
        return data

    def restore(self, data: dict[str, Any], keys: Numbers) -> Numbers:
        """Make slots with the content that ``snapshot`` gave; return them."""
        slots = self._add(np.asarray(data["pane"], np.int64), keys)
        for name in ("rows", "newest_ns", "first_ns", "last_ns"):
            if name in self._fills:
                getattr(self, name)[slots] = data[name]
        for columns, values_of_all in zip(self.cells, data["cells"], strict=True):
            for column, values in zip(columns, values_of_all, strict=True):
                column[slots] = values
        for log, entries in zip(self.logs, data["logs"], strict=True):
            if log is not None:
                segments, columns = entries
                log.append(self.serial.take(slots.take(segments)), tuple([unplain(c) for c in columns]))
        return slots


def plain(column: Array) -> Any:
    """Return an array as plain data: one of Python strings as a list."""
    return column.tolist() if column.dtype == object else column


def unplain(column: Any) -> Array:
    """Return the array that ``plain`` was given."""
    if isinstance(column, list):
        out = np.empty(len(column), object)
        out[:] = column
        return out
    return np.asarray(column)


def _plain_entries(entries: tuple[Numbers, tuple[Array, ...]]) -> Any:
    return [entries[0], [plain(c) for c in entries[1]]]
