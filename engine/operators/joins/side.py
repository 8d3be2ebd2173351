"""One input of a box with two: which of its fields are kept, its key, its time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from catalog.schema import Schema
from engine.operators.expressions import Expression, Scope, Vector
from engine.operators.state.columns import Numbers, vector_at
from storage.train import Train


class Side:
    """The definition of one input, constant after ``bind``. ``schema`` has only the fields that are kept."""

    def __init__(self, prefix: str, schema: Schema, time: str | None, key: Sequence[Expression], used: Iterable[str]):
        """Keep the fields of the key, the time, and the fields ``used`` (as ``l.x``) by results."""
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
        """Return the train with only the fields that are kept."""
        return train if self.keeps_all else train.select(self.schema.names)

    def times(self, train: Train) -> Numbers:
        """Return the event time of each tuple of a kept train."""
        column = self.time_column
        return train.arrival_ns if column is None else train.columns[column]

    def index(self, name: str) -> int:
        """Return the column of ``l.x``."""
        return self.schema.index(name.removeprefix(self.prefix))

    def key_of(self, train: Train) -> list[Vector]:
        """Compute the key of each tuple of a kept train."""
        if not self.key:
            return []
        columns = {}
        for name in self._key_fields:
            columns[name] = vector_at(train, self.index(name))
        scope = Scope(None, count=train.count, columns=columns)
        return [e.evaluate(scope) for e in self.key]
