"""Trains of a few tuples, there and back, without numpy's fixed costs: what latency is made of.

At 10,000 tuples a second a read brings one or two. The general way looks at columns and takes 12 us for any small
number of them; here the usual case (no NULL, no ISO text, no float) is looked at value by value, in 2 us, and stays the
rows that it is (see ``storage/rows.py``). Whatever is not usual is None, and the general way does it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite
from typing import Any

import numpy as np
import orjson

from catalog.schema import Field, Schema, Type
from router.codecs.base import NS_PER, Intake
from router.codecs.text import in_unit, iso
from router.codecs.values import INT_RANGE, MisfitError
from storage.rows import Columns, Row, RowTrain
from storage.train import Array, Pools, Train, constant_ns

FEW = 8
_KINDS: dict[Type, type] = {
    Type.BOOLEAN: bool,
    Type.INT: int,
    Type.BIGINT: int,
    Type.DOUBLE: float,
    Type.STRING: str,
    Type.TIMESTAMP: int,
}
_RANGE = INT_RANGE | {Type.TIMESTAMP: INT_RANGE[Type.BIGINT]}
_OPTIONS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE


def _check(f: Field) -> tuple[str, type | None, int, int]:
    """A field's name, the type of its values, and for integers the lowest and the highest."""
    low, high = _RANGE.get(f.type, (0, 0))
    return f.name, _KINDS.get(f.type), low, high


class FewIn:
    """Rows as dicts to a train. Owner: the decoder."""

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self._plan = [_check(f) for f in intake.schema]
        self._knows = all(f.type in _KINDS for f in intake.schema) and intake.ns_per_unit == 1
        self._dtypes = [f.type.dtype for f in intake.schema]
        self._is_string = [f.type is Type.STRING for f in intake.schema]
        self._no_pools: Pools = (None,) * len(self._is_string)

    def train(self, rows: list[dict[str, Any]], arrival_ns: int) -> Train | None:
        if not self._knows or len(rows) > FEW:
            return None
        try:
            checked = [self._row(row) for row in rows]
        except (KeyError, OverflowError, MisfitError):
            return None
        return RowTrain(self._intake.schema, checked, constant_ns(arrival_ns, len(rows)), self._columns)

    def _row(self, row: dict[str, Any]) -> Row:
        """Its values in the order of the schema, each as its type has it."""
        values: list[Any] = []
        for name, kind, low, high in self._plan:
            value: Any = row[name]
            if kind is float:
                if type(value) is not float and type(value) is not int:
                    raise MisfitError
                value = value + 0.0
                if not isfinite(value):
                    raise MisfitError
            elif kind is int:
                if type(value) is not int or not low <= value <= high:
                    raise MisfitError
            elif type(value) is not kind:
                raise MisfitError
            values.append(value)
        return tuple(values)

    def _columns(self, rows: Sequence[Row]) -> Columns:
        """For who looks at them. Any thread: the strings have a lock."""
        by_field = list(zip(*rows))
        pools = self._no_pools
        codes: Iterator[Array] = iter(())
        if texts := [values for values, is_string in zip(by_field, self._is_string) if is_string]:
            pool, interned = self._intake.strings.intern(texts)
            codes = iter(interned)
            pools = tuple([pool if is_string else None for is_string in self._is_string])
        fields = zip(by_field, self._dtypes, self._is_string)
        columns = [next(codes) if is_string else np.array(values, dtype) for values, dtype, is_string in fields]
        return tuple(columns), pools


class FewOut:
    """A train to ndjson, for a few tuples. Owner: the encoder."""

    def __init__(self, schema: Schema, timestamps: str) -> None:
        self._names = schema.names
        self._kinds = [f.type for f in schema]
        self._timestamps = timestamps
        self._timed = any(kind is Type.TIMESTAMP for kind in self._kinds)

    def ndjson(self, train: Train) -> bytes:
        names = self._names
        if isinstance(train, RowTrain):
            rows = train.rows if not self._timed else [self._stamped(row) for row in train.rows]
            return b"".join([orjson.dumps(dict(zip(names, row)), None, _OPTIONS) for row in rows])
        if train.count == 1 and train.valid is None:
            return orjson.dumps(dict(zip(names, self._one(train))), None, _OPTIONS)
        columns = [self._column(train, i, kind) for i, kind in enumerate(self._kinds)]
        return b"".join([orjson.dumps(dict(zip(names, row)), None, _OPTIONS) for row in zip(*columns)])

    def _stamped(self, row: Row) -> list[Any]:
        """A row with its times as text, or in the unit that was asked for."""
        return [self._time(v) if kind is Type.TIMESTAMP else v for kind, v in zip(self._kinds, row)]

    def _time(self, value_ns: int) -> Any:
        return iso(value_ns) if self._timestamps == "iso" else value_ns // NS_PER[self._timestamps]

    def _one(self, train: Train) -> list[Any]:
        """The values of the only tuple of a train: 1.5 us where columns take 5."""
        row: list[Any] = []
        for kind, column, pool in zip(self._kinds, train.columns, train.pools):
            if pool is not None:
                row.append(pool.values[column.item()] if len(pool) else None)
            elif kind is Type.TIMESTAMP:
                row.append(self._time(column.item()))
            else:
                row.append(column[0] if kind is Type.FLOAT else column.item())
        return row

    def _column(self, train: Train, at: int, kind: Type) -> list[Any]:
        values = train.columns[at]
        if kind is Type.TIMESTAMP:
            is_iso = self._timestamps == "iso"
            out: list[Any] = list(map(iso, values.tolist())) if is_iso else in_unit(values, self._timestamps).tolist()
        elif kind is Type.STRING:
            pool = train.pools[at]
            assert pool is not None
            out = [pool.values[code] for code in values.tolist()] if len(pool) else [None] * train.count
        elif kind is Type.FLOAT:
            out = list(values)  # numpy's own scalars: orjson writes the shortest text of 32 bits
        else:
            out = values.tolist()
        flags = train.null_mask(at)
        if flags is not None:
            out = [v if ok else None for v, ok in zip(out, flags.tolist())]
        return out
