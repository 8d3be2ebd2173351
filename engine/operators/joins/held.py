"""What a box with two inputs remembers: the rows of each input by key and time, and one table of keys for both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from catalog.schema import Type
from engine.operators.boxes.base import Tally
from engine.operators.joins.side import Side
from engine.operators.state.chunk import Chunk
from engine.operators.state.columns import Numbers
from engine.operators.state.keys import KeyTable, key_table
from engine.operators.state.ordered_inputs import OrderedInputs
from engine.operators.state.plain import pack, unpack
from engine.operators.state.timed_rows import TimedRows
from storage.train import NO_WATERMARK, Mask, Train


class HeldSide(TimedRows):
    """The rows of one input that wait. ``store.flags`` marks those that have found a partner."""

    __slots__ = ("side",)

    def __init__(self, side: Side) -> None:
        super().__init__(side.schema)
        self.side = side

    def take(self, train: Train, keys: KeyTable) -> Chunk:
        """Store a kept train's rows; return the chunk to search with and, after that, to ``index.insert``."""
        times = np.array(self.side.times(train))  # a copy: a train's column may be a view of something large
        numbers = keys.numbers(self.side.key_of(train), train.count)
        return Chunk(times, self.store.append(train), numbers)

    def times_of(self, rows: Numbers) -> Numbers:
        """Return the event times of stored rows."""
        return self.side.times(self.store.train(rows))

    def snapshot(self, chosen: Mask | None) -> dict[str, Any]:
        rows = self.index.rows(chosen)
        return {"rows": pack(self.store.train(rows)), "flags": self.store.flags.take(rows)}

    def restore(self, data: dict[str, Any], keys: KeyTable) -> None:
        train = unpack(self.side.schema, data["rows"])
        if train.count:
            chunk = self.take(train, keys)
            self.store.flags[: train.count] = np.asarray(data["flags"], np.bool_)
            self.index.insert(chunk)


class JoinState:
    """Left and right. A key with a NULL matches nothing. Owned by the worker that runs the box."""

    __slots__ = ("keys", "sides", "waiting", "watermark_ns")

    def __init__(self, sides: tuple[Side, Side], key_types: Sequence[Type], *, is_ordered: bool = False) -> None:
        self.keys = key_table(key_types, null_is_key=False)
        self.sides = (HeldSide(sides[0]), HeldSide(sides[1]))
        self.watermark_ns = NO_WATERMARK
        # Tuples that are not joined yet because an older one may come on the other side.
        self.waiting = OrderedInputs([(side.schema, side.time_column) for side in sides]) if is_ordered else None

    @property
    def nbytes(self) -> int:
        waiting = 0 if self.waiting is None else self.waiting.nbytes
        return waiting + self.keys.nbytes + sum(held.nbytes for held in self.sides)

    def absorb(self, port: int, train: Train, tally: Tally) -> Train:
        """Return the tuples that are not late, with the fields that are kept, and count both kinds."""
        side = self.sides[port].side
        train = side.kept(train)
        times = side.times(train)
        late = times < self.watermark_ns
        if late.any():
            in_time = train.where(~late)
            tally.add_late(train.count - in_time.count, self.watermark_ns - int(times.min()))
            train = in_time
        tally.absorbed += train.count
        return train

    def close_gaps(self) -> None:
        """Drop expired rows, and keys that no row has any more, if it pays."""
        for held in self.sides:
            held.close_gaps()
        self.forget_keys()

    def forget_keys(self) -> None:
        if self.keys.is_wasteful(sum([held.index.live for held in self.sides])):
            used = np.zeros(self.keys.count, np.bool_)
            for held in self.sides:
                used[held.index.keys()] = True
            remap = self.keys.keep(np.flatnonzero(used))
            for held in self.sides:
                held.index.renumber_keys(remap)

    @property
    def is_empty(self) -> bool:
        return not any(held.index.live for held in self.sides)

    def last_ns(self) -> Numbers:
        """Return the highest event time of each key, by its number."""
        left, right = (held.index.last_times(self.keys.count) for held in self.sides)
        return np.maximum(left, right)

    def snapshot(self, chosen: Mask | None = None) -> dict[str, Any]:
        """Return the state of the chosen keys; None stands for all."""
        waiting = {} if self.waiting is None else {"waiting": self.waiting.snapshot()}
        return {"watermark_ns": self.watermark_ns, "sides": [held.snapshot(chosen) for held in self.sides], **waiting}

    def restore(self, data: dict[str, Any]) -> None:
        self.watermark_ns = int(data["watermark_ns"])
        for held, side in zip(self.sides, data["sides"], strict=True):
            held.restore(side, self.keys)
        if self.waiting is not None:
            self.waiting.restore(data["waiting"])
