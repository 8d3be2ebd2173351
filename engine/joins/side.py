"""One input of a box with two: its definition (which fields to keep, its key, its time) and what it holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from catalog.schema import Schema
from engine.expressions import Expression, Scope, Vector
from engine.joins.index import Chunk, Column, TimeIndex
from engine.joins.keys import KeyTable
from engine.joins.rows import RowStore, pack, unpack
from storage.train import Train


class Side:
    """Constant after ``bind``. ``schema`` is of the kept fields only; ``names`` lead to them from ``l.x``."""

    def __init__(self, prefix: str, schema: Schema, time: str | None, key: Sequence[Expression], used: Iterable[str]):
        """``used``: the fields that results need, as ``l.x``; those of the other side are ignored."""
        wanted = {name.removeprefix(prefix) for name in used if name.startswith(prefix)}
        wanted |= {name.removeprefix(prefix) for e in key for name in e.fields}
        if time is not None:
            wanted.add(time)
        self.prefix = prefix
        self.schema = schema.select(name for name in schema.names if name in wanted)
        self.keeps_all = len(self.schema) == len(schema)
        self.key = tuple(key)
        self.time_column = None if time is None else self.schema.index(time)
        self._key_fields = sorted({name for e in key for name in e.fields})

    def kept(self, train: Train) -> Train:
        """The train with only the fields that are kept."""
        return train if self.keeps_all else train.select(self.schema.names)

    def times(self, train: Train) -> Column:
        """The event time of each tuple of a kept train."""
        column = self.time_column
        return train.arrival_ns if column is None else train.columns[column]

    def index(self, name: str) -> int:
        """The column of ``l.x``."""
        return self.schema.index(name.removeprefix(self.prefix))

    def key_of(self, train: Train) -> list[Vector]:
        if not self.key:
            return []
        columns = {}
        for name in self._key_fields:
            at = self.index(name)
            columns[name] = Vector(train.columns[at], train.null_mask(at), train.pools[at])
        scope = Scope(None, count=train.count, columns=columns)
        return [e.evaluate(scope) for e in self.key]


class Held:
    """What a side holds: rows, by key and time. Owned by the worker that runs the box."""

    __slots__ = ("index", "side", "store")

    def __init__(self, side: Side) -> None:
        self.side = side
        self.store = RowStore(side.schema)
        self.index = TimeIndex()

    def take(self, train: Train, keys: KeyTable) -> Chunk:
        """Store a kept train's rows; the chunk to search with and, after that, to ``index.insert``."""
        times = np.array(self.side.times(train))  # a copy: a train's column may be a view of something large
        numbers = keys.numbers(self.side.key_of(train), train.count)
        return Chunk(times, numbers, self.store.append(train))

    def tidy(self) -> None:
        """Close the gaps that expired rows have left."""
        if self.store.is_wasteful(self.index.live):
            rows = self.index.rows()
            self.store.keep(rows)
            self.index.renumber_rows(rows)

    @property
    def nbytes(self) -> int:
        return self.store.nbytes + self.index.nbytes

    def snapshot(self) -> dict[str, Any]:
        rows = self.index.rows()
        return {"rows": pack(self.store.train(rows)), "flags": self.store.flags.take(rows)}

    def restore(self, data: dict[str, Any], keys: KeyTable) -> None:
        train = unpack(self.side.schema, data["rows"])
        if train.count:
            chunk = self.take(train, keys)
            self.store.flags[: train.count] = np.asarray(data["flags"], np.bool_)
            self.index.insert(chunk)


def tidy_keys(keys: KeyTable, helds: Sequence[Held]) -> None:
    """Take back the numbers of keys that no row has any more."""
    if not keys.is_wasteful(sum(h.index.live for h in helds)):
        return
    kept = np.unique(np.concatenate([h.index.keys() for h in helds]))
    keys.keep(kept)
    for held in helds:
        held.index.renumber_keys(lambda numbers: keys.remap(kept, numbers))
