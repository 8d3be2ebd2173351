"""What every kind of window has in common: keys, an outlet for closed windows, plain data for a checkpoint."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from engine.expressions import Vector
from engine.windows.gather import take_windows
from engine.windows.groups import Gathered, Groups
from engine.windows.keys import make_keys
from engine.windows.numbers import Numbers
from engine.windows.plan import Plan
from storage.train import NO_WATERMARK, Mask, Train

if TYPE_CHECKING:
    from engine.shed.book import BoxLosses

MAX_TRAIN = 65_536
"""Tuples of one emitted train, and about how many groups are put together at once."""

_LARGE = 262_144

Send = Callable[[Train], None]


@dataclass(frozen=True, slots=True)
class Batch:
    """The rows of a train that are neither late nor dead."""

    keys: Numbers
    times_ns: Numbers
    low_ns: int  # the least and the greatest of the times
    high_ns: int
    arrival_ns: npt.NDArray[np.int64]
    columns: Sequence[Vector]  # by accumulator


class Windows(ABC):
    """What one aggregate box remembers. Owned by the worker that runs the box, while it runs it."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.keys = make_keys(plan.by)
        self.closed_ns = NO_WATERMARK  # windows that end at or before it are closed
        self.null_errors = 0  # since the box last looked
        self.losses: BoxLosses | None = None  # what is missing, where anybody drops

    @property
    def late_below_ns(self) -> int:
        """Tuples below this event time belong to no window that is still open."""
        return NO_WATERMARK

    @abstractmethod
    def add(self, batch: Batch, send: Send) -> None: ...

    @abstractmethod
    def advance(self, watermark_ns: int, send: Send) -> None: ...

    @abstractmethod
    def tick(self, now_ns: int, timeout_ns: int, send: Send) -> None:
        """Emit what has been quiet for ``timeout_ns`` of real time."""

    @abstractmethod
    def tables(self) -> list[Groups]: ...

    @abstractmethod
    def renumbered(self, remaps: Sequence[Numbers], keys: Numbers | None) -> None:
        """Slots have moved: the new one by the old, for each table; and, unless None, keys."""

    @property
    def nbytes(self) -> int:
        return self.keys.nbytes + sum(groups.nbytes for groups in self.tables())

    def emit(self, gathered: Gathered, start_ns: Numbers, end_ns: Numbers, time_ns: Numbers, send: Send) -> None:
        if not gathered.rows.shape[0]:
            return
        shares = None
        if self.losses is not None and self.losses.any:
            if self.plan.tells_share:
                shares = self.shares(start_ns)
            elif (spoiled := self.losses.spoiled(*self.reach(start_ns, end_ns))) is not None:
                self._withhold(gathered, start_ns, end_ns, time_ns, spoiled, send)
                return
        train, errors = self.plan.train(gathered, self.keys, start_ns, end_ns, time_ns, shares)
        self.null_errors += errors
        for start in range(0, train.count, MAX_TRAIN):
            send(train if train.count <= MAX_TRAIN else train.slice(start, min(start + MAX_TRAIN, train.count)))

    def reach(self, start_ns: Numbers, end_ns: Numbers) -> tuple[Numbers, Numbers]:
        """The stretch of event time in which a missing tuple would change each of these windows."""
        return start_ns, end_ns

    def shares(self, start_ns: Numbers) -> npt.NDArray[np.float64] | None:
        """The share of their tuples that these windows saw; None: all of it."""
        return None

    def _withhold(
        self, gathered: Gathered, start_ns: Numbers, end_ns: Numbers, time_ns: Numbers, spoiled: Mask, send: Send
    ) -> None:
        """Let out only the windows that lack nothing."""
        assert self.losses is not None
        whole = np.flatnonzero(~spoiled)
        self.losses.withheld += spoiled.shape[0] - whole.shape[0]
        if whole.shape[0]:
            losses, self.losses = self.losses, None  # what is left has been looked at
            left = take_windows(gathered, whole, self.plan.accumulators)
            self.emit(left, start_ns.take(whole), end_ns.take(whole), time_ns.take(whole), send)
            self.losses = losses

    def forget(self) -> None:
        """Before windows close: what nothing has used since windows last closed. Not at once then, because the same
        keys mostly come again with the next train."""
        self.keys.sweep()
        self._shrink()

    def forget_much(self) -> None:
        """After windows closed: at once only what takes much memory."""
        if max(self.keys.size, *(groups.size for groups in self.tables())) > _LARGE:
            self._shrink()

    def release(self, groups: Groups, slots: Numbers) -> None:
        self.keys.release(groups.key.take(slots))
        groups.release(slots)

    def _shrink(self) -> None:
        """Give memory back when little of it is in use. Its cost is paid by the many releases before it."""
        tables = self.tables()
        keys = self.keys.renumber() if self.keys.is_roomy else None
        if keys is None and not any(groups.is_roomy for groups in tables):
            return
        self.renumbered([groups.renumber(keys) for groups in tables], keys)

    # -- plain data --------------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        tables = [(groups, groups.live_slots()) for groups in self.tables()]
        numbers = distinct_numbers(np.concatenate([groups.key.take(slots) for groups, slots in tables]))
        saved = []
        for groups, slots in tables:
            data = groups.snapshot(slots)
            data["key"] = np.searchsorted(numbers, groups.key.take(slots))
            saved.append(data)
        return {
            "closed_ns": self.closed_ns,
            "keys": self.keys.snapshot(numbers),
            "key_count": len(numbers),
            "tables": saved,
            "more": self.snapshot_more(numbers),
        }

    def restore(self, data: dict[str, Any]) -> None:
        self.closed_ns = int(data["closed_ns"])
        numbers = self.keys.restore(data["keys"], int(data["key_count"]))
        slots = []
        for groups, saved in zip(self.tables(), data["tables"], strict=True):
            keys = numbers.take(np.asarray(saved["key"], np.int64))
            slots.append(groups.restore(saved, keys))
        self.restore_more(data["more"], slots, numbers)

    def snapshot_more(self, numbers: Numbers) -> dict[str, Any]:
        """What a kind of window keeps beside its groups; ``numbers`` are the live keys."""
        return {}

    @abstractmethod
    def restore_more(self, data: dict[str, Any], slots: Sequence[Numbers], numbers: Numbers) -> None:
        """``slots`` of each table, as saved; their keys are to be retained."""


def take_rows(column: Vector, index: npt.NDArray[np.intp]) -> Vector:
    valid = None if column.valid is None else column.valid.take(index)
    return Vector(column.values.take(index), valid, column.pool)


def distinct_numbers(numbers: Numbers) -> Numbers:
    """Ascending, each once. By marks: numbers of keys are small, and np.unique takes a second for half a million."""
    marks = np.zeros(int(numbers.max(initial=-1)) + 1, np.bool_)
    marks[numbers] = True
    return marks.nonzero()[0]
