"""Boxes that go by key on one input: the fields of ``by``, and tables of one value a key that forget with time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from catalog.errors import BindError
from catalog.schema import Schema
from engine.expressions import Vector
from engine.joins.index import Column, clamped
from engine.joins.keys import KeyTable
from engine.joins.rows import pack, unpack
from storage.train import NO_WATERMARK, Train, constant_ns, tidy_valid

_CHECK = 4_096  # keys before it pays to look for those that have passed


def field_of(schema: Schema, name: str, key: tuple[str | int, ...]) -> int:
    """The column of a field named in a parameter. Raises BindError."""
    if name not in schema:
        raise BindError(f"no field {name}", key, f"there are {', '.join(schema.names)}")
    return schema.index(name)


def fields_of(schema: Schema, names: Sequence[str], key: str) -> tuple[int, ...]:
    """The columns of fields named in a parameter. Raises BindError."""
    for i, name in enumerate(names):
        field_of(schema, name, (key, i))
        if name in names[:i]:
            raise BindError(f"{name} twice", (key, i))
    return tuple(schema.index(name) for name in names)


def vector_at(train: Train, column: int) -> Vector:
    return Vector(train.columns[column], train.null_mask(column), train.pools[column])


class LastTimes:
    """For each key a last event time; keys whose time is ``keep_ns`` below the watermark count as never seen.

    They really go when as many keys again have come, or all have passed: a constant effort for each new key.
    """

    __slots__ = ("_check", "_columns", "_newest_ns", "keep_ns", "keys", "schema", "times", "watermark_ns")

    def __init__(self, schema: Schema, columns: Sequence[int], keep_ns: int | None) -> None:
        self.schema = Schema(tuple(schema.fields[c] for c in columns))
        self._columns = tuple(columns)
        self.keep_ns = keep_ns  # None: for ever
        self.keys = KeyTable([f.type for f in self.schema], nulls_alike=True)
        self.times = np.full(64, NO_WATERMARK, np.int64)  # by number
        self.watermark_ns = NO_WATERMARK
        self._newest_ns = NO_WATERMARK
        self._check = _CHECK

    @property
    def nbytes(self) -> int:
        return self.keys.nbytes + self.times.nbytes

    def numbers(self, train: Train) -> Column:
        """The number of each tuple's key."""
        numbers = self.keys.numbers([vector_at(train, c) for c in self._columns], train.count)
        if self.keys.count > self.times.shape[0]:
            longer = np.full(2 * self.keys.count, NO_WATERMARK, np.int64)
            longer[: self.times.shape[0]] = self.times
            self.times = longer
        return numbers

    def last(self, numbers: Column) -> Column:
        """The last times, NO_WATERMARK for a key that was never seen or has passed."""
        times = self.times.take(numbers)
        horizon_ns = self._horizon_ns()
        return times if horizon_ns is None else np.where(times <= horizon_ns, NO_WATERMARK, times)

    def set(self, numbers: Column, times: Column) -> None:
        if times.shape[0]:
            self.times[numbers] = times
            self._newest_ns = max(self._newest_ns, int(times.max()))

    def _horizon_ns(self) -> int | None:
        return None if self.keep_ns is None else clamped(self.watermark_ns - self.keep_ns)

    def passed(self) -> Column | None:
        """When it is time to forget: the numbers to ``keep``; else None."""
        horizon_ns = self._horizon_ns()
        if horizon_ns is None:
            return None
        all_passed = self._newest_ns <= horizon_ns and self.keys.count > 64
        if not all_passed and self.keys.count < self._check:
            return None
        live = np.flatnonzero(self.times[: self.keys.count] > horizon_ns)
        self._check = max(_CHECK, 2 * live.shape[0])
        return live if 2 * live.shape[0] <= self.keys.count else None

    def keep(self, live: Column) -> None:
        """Forget all other keys. The number of key ``live[i]`` is from now on ``keys.remap(live, live)[i]``."""
        times = self.times.take(live)
        self.keys.keep(live)
        self.times = np.full(max(64, 2 * self.keys.count), NO_WATERMARK, np.int64)
        self.times[self.keys.remap(live, live)] = times

    # -- as plain data -----------------------------------------------------------------------------------------------

    def live(self) -> Column:
        """The numbers that count as seen."""
        times = self.last(np.arange(self.keys.count))
        return np.flatnonzero(times != NO_WATERMARK)

    def snapshot(self, live: Column) -> dict[str, Any]:
        vectors = self.keys.vectors(live)
        train = Train(
            self.schema,
            tuple(v.values for v in vectors),
            constant_ns(0, live.shape[0]),
            valid=tidy_valid([v.valid for v in vectors]),
            pools=tuple(v.pool for v in vectors),
        )
        return {"keys": pack(train), "times": self.times.take(live), "watermark_ns": self.watermark_ns}

    def restore(self, data: dict[str, Any]) -> Column:
        """The new numbers of the keys, in the order of the snapshot's ``live``."""
        self.watermark_ns = int(data["watermark_ns"])
        train = unpack(self.schema, data["keys"])
        columns, self._columns = self._columns, tuple(range(len(self.schema)))
        numbers = self.numbers(train)
        self._columns = columns
        self.set(numbers, np.asarray(data["times"], np.int64))
        return numbers
