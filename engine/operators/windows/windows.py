"""What all kinds of windows have in common: keys, emitting closed windows, forgetting, plain data for a checkpoint."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from catalog.schema import Field, Type
from engine.operators.bounded.waiting import NEVER_NS
from engine.operators.expressions import Vector
from engine.operators.state.columns import START, Numbers
from engine.operators.state.distinct import values_of
from engine.operators.state.keys import group_keys
from engine.operators.windows.gather import take_windows
from engine.operators.windows.groups import Gathered, Groups
from engine.operators.windows.layout import WindowLayout
from storage.train import NO_WATERMARK, Mask, Train

if TYPE_CHECKING:
    from load_shedder.record.book import BoxLosses

MAX_TRAIN = 65_536
"""The most tuples of an emitted train, and about how many groups are put together at once."""

_LARGE = 262_144  # slots, or unused keys, that are worth giving back at once

Send = Callable[[Train], None]


@dataclass(frozen=True, slots=True)
class LiveRows:
    """The rows of a train that are neither late nor dead."""

    keys: Numbers
    times_ns: Numbers
    low_ns: int  # the lowest and the highest of the times
    high_ns: int
    arrival_ns: npt.NDArray[np.int64]
    columns: Sequence[Vector]  # by accumulator


class Windows(ABC):
    """The state of one aggregate box. Owned by the worker that runs the box, while it runs it."""

    def __init__(self, layout: WindowLayout) -> None:
        self.layout = layout
        self.keys = group_keys(layout.by)
        self.closed_ns = NO_WATERMARK  # windows that end at or before it are closed
        self.null_errors = 0  # since the box last read them
        self.losses: BoxLosses | None = None  # the dropped tuples, where a shedder may drop some

    @property
    def late_below_ns(self) -> int:
        """Return the event time below which no window is open."""
        return NO_WATERMARK

    @abstractmethod
    def add(self, batch: LiveRows, send: Send) -> None: ...

    @abstractmethod
    def advance(self, watermark_ns: int, send: Send) -> None: ...

    @abstractmethod
    def tick(self, now_ns: int, timeout_ns: int, send: Send) -> None:
        """Close the windows that got no tuple for ``timeout_ns`` of real time."""

    @abstractmethod
    def tables(self) -> list[Groups]: ...

    @abstractmethod
    def renumbered(self, remaps: Sequence[Numbers], keys: Numbers | None) -> None:
        """Take up new slots, given by the old for each table, and new numbers of keys unless None."""

    @property
    def held_tuples(self) -> int:
        """Return the number of tuples in open windows."""
        return int(self.tables()[0].rows.sum())

    @property
    def nbytes(self) -> int:
        return self.keys.nbytes + sum(groups.nbytes for groups in self.tables())

    def emit(self, gathered: Gathered, start_ns: Numbers, end_ns: Numbers, time_ns: Numbers, send: Send) -> None:
        if not gathered.rows.shape[0]:
            return
        shares = None
        if self.losses is not None and self.losses.any:
            if self.layout.with_share:
                shares = self.shares(start_ns)
            elif (spoiled := self.losses.spoiled(*self.reach(start_ns, end_ns))) is not None:
                self._withhold(gathered, start_ns, end_ns, time_ns, spoiled, send)
                return
        if self.losses is not None and self.losses.limit is not None:
            self.layout.note_errors(self.losses.limit, gathered, shares)
        train, errors = self.layout.train(gathered, self.keys, start_ns, end_ns, time_ns, shares)
        self.null_errors += errors
        for start in range(0, train.count, MAX_TRAIN):
            send(train if train.count <= MAX_TRAIN else train.slice(start, min(start + MAX_TRAIN, train.count)))

    def reach(self, start_ns: Numbers, end_ns: Numbers) -> tuple[Numbers, Numbers]:
        """Return the stretch of event time in which a missing tuple would change each of these windows."""
        return start_ns, end_ns

    def shares(self, start_ns: Numbers) -> npt.NDArray[np.float64] | None:
        """Return the share of their tuples that these windows saw; None: all."""
        return None

    def _withhold(
        self, gathered: Gathered, start_ns: Numbers, end_ns: Numbers, time_ns: Numbers, spoiled: Mask, send: Send
    ) -> None:
        """Emit only the windows that lack no tuple."""
        assert self.losses is not None
        whole = np.flatnonzero(~spoiled)
        self.losses.withheld += spoiled.shape[0] - whole.shape[0]
        if whole.shape[0]:
            losses, self.losses = self.losses, None  # the windows that are left are complete
            left = take_windows(gathered, whole, self.layout.accumulators)
            self.emit(left, start_ns.take(whole), end_ns.take(whole), time_ns.take(whole), send)
            self.losses = losses

    def forget(self) -> None:
        """Forget unused keys and shrink tables, before windows close.

        Keys are not forgotten right after a window has closed, because most of them come again with the next train.
        """
        live = sum([groups.live for groups in self.tables()])
        self._shrink(self.keys.is_wasteful(live) or (not live and self.keys.count > START))

    def forget_much(self) -> None:
        """Give back, after windows have closed, only large amounts of memory."""
        tables = self.tables()
        wasteful = self.keys.is_wasteful(sum([groups.live for groups in tables]), _LARGE)
        if wasteful or max([groups.size for groups in tables]) > _LARGE:
            self._shrink(wasteful)

    def _shrink(self, keys_too: bool) -> None:
        """Give memory back when little of it is in use. The many releases before pay for the cost."""
        tables = self.tables()
        if keys_too or any(groups.is_roomy for groups in tables):
            remap = self.keys.keep(self._live_keys()) if keys_too else None
            self.renumbered([groups.renumber(remap) for groups in tables], remap)

    def _live_keys(self) -> Numbers:
        """Return the numbers of the keys that have a group, ascending, each once."""
        return distinct_numbers(np.concatenate([groups.key.take(groups.live_slots()) for groups in self.tables()]))

    # -- the state by key --------------------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        return not any(groups.live for groups in self.tables())

    def last_ns(self) -> Numbers:
        """Return the event time at which each key was last seen, by its number."""
        last_ns = np.full(self.keys.count, NO_WATERMARK)
        for groups in self.tables():
            slots = groups.live_slots()
            np.maximum.at(last_ns, groups.key.take(slots), self.last_of(groups, slots))
        return last_ns

    def last_of(self, groups: Groups, slots: Numbers) -> Numbers:
        """Return the event time of the last tuple in each of these groups, or about that."""
        return groups.last_ns.take(slots)

    def due_ns(self) -> int:
        """Return the lowest watermark at which a window may close."""
        return NEVER_NS

    def first_due_ns(self, low_ns: int) -> int:
        """Return the lowest watermark at which a window with a tuple of this event time closes."""
        return NEVER_NS

    # -- plain data --------------------------------------------------------------------------------------------------

    def snapshot(self, chosen: Mask | None = None) -> dict[str, Any]:
        """Return the state of the chosen keys; None stands for all."""
        tables = [(groups, groups.live_slots()) for groups in self.tables()]
        numbers = self._live_keys()
        if chosen is not None:
            tables = [(groups, slots[chosen.take(groups.key.take(slots))]) for groups, slots in tables]
            numbers = numbers[chosen.take(numbers)]
        saved = []
        for groups, slots in tables:
            data = groups.snapshot(slots)
            data["key"] = np.searchsorted(numbers, groups.key.take(slots))
            saved.append(data)
        return {
            "closed_ns": self.closed_ns,
            "keys": self.keys.snapshot(numbers),
            "tables": saved,
            "more": self.snapshot_more(numbers),
        }

    def restore(self, data: dict[str, Any]) -> None:
        self.closed_ns = int(data["closed_ns"])
        numbers = self.keys.restore(key_data(data["keys"], self.layout.by, data.get("key_count", 0)))
        slots = []
        for groups, saved in zip(self.tables(), data["tables"], strict=True):
            keys = numbers.take(np.asarray(saved["key"], np.int64))
            slots.append(groups.restore(saved, keys))
        self.restore_more(data["more"], slots, numbers)

    def snapshot_more(self, numbers: Numbers) -> dict[str, Any]:
        """Return what a kind of window keeps beside its groups. ``numbers`` are the live keys."""
        return {}

    @abstractmethod
    def restore_more(self, data: dict[str, Any], slots: Sequence[Numbers], numbers: Numbers) -> None:
        """Restore what ``snapshot_more`` gave. ``slots`` are those of each table, ``numbers`` those of the keys, as
        saved."""


def take_rows(column: Vector, index: npt.NDArray[np.intp]) -> Vector:
    """Return some rows of a column."""
    valid = None if column.valid is None else column.valid.take(index)
    return Vector(column.values.take(index), valid, column.pool)


def distinct_numbers(numbers: Numbers) -> Numbers:
    """Return numbers ascending, each once. It uses marks: np.unique takes a second for half a million numbers."""
    marks = np.zeros(int(numbers.max(initial=-1)) + 1, np.bool_)
    marks[numbers] = True
    return marks.nonzero()[0]


def key_data(saved: Any, by: Sequence[Field], count: int) -> dict[str, Any]:
    """Return the keys of a snapshot as ``KeyTable.restore`` takes them.

    Before version 0.2 they were a list: a column of null bits, then the bits or the texts of each field; for one string
    only the texts.
    """
    if isinstance(saved, dict):
        return saved
    is_one_string = len(by) == 1 and by[0].type is Type.STRING
    nulls = np.zeros(count, np.int64) if is_one_string or not by else np.asarray(saved[0], np.int64)
    columns: list[Any] = []
    valid: list[Any] = []
    for i, (field, part) in enumerate(zip(by, saved if is_one_string else saved[1:], strict=True)):
        if field.type is Type.STRING:
            columns.append({"texts": [text or "" for text in part], "places": np.arange(count)})
            valid.append(np.array([text is not None for text in part], np.bool_))
        else:
            columns.append(values_of(np.array(part, np.int64), field.type))
            valid.append((nulls >> i) & 1 == 0)
    return {"rows": count, "columns": columns, "valid": valid}
