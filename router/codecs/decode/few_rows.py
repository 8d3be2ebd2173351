"""Decode a few tuples without numpy's fixed costs, which dominate the latency of a slow stream.

At 10,000 tuples a second a read brings one or two tuples. The columnar decoder takes 12 us for any small number of
them. The usual case (no NULL, no ISO text, no float field) is checked here value by value, in 2 us, and stays rows
(``storage/rows.py``). For every other case the result is None, and the caller decodes by columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite
from typing import Any

import numpy as np

from catalog.schema import Field, Type
from router.codecs.base import Intake
from router.codecs.decode.values import INT_RANGE, MisfitError
from storage.rows import Columns, Row, RowTrain
from storage.train import Array, Pools, Train, constant_ns

FEW_ROWS = 8
_KINDS: dict[Type, type] = {
    Type.BOOLEAN: bool,
    Type.INT: int,
    Type.BIGINT: int,
    Type.DOUBLE: float,
    Type.STRING: str,
    Type.TIMESTAMP: int,
}
_RANGE = INT_RANGE | {Type.TIMESTAMP: INT_RANGE[Type.BIGINT]}


def _check(f: Field) -> tuple[str, type | None, int, int]:
    """Return a field's name, the Python type of its values, and for integers their lowest and highest."""
    low, high = _RANGE.get(f.type, (0, 0))
    return f.name, _KINDS.get(f.type), low, high


class FewRowsReader:
    """Dicts to a train of rows. Owner: the decoder."""

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self._checks = [_check(f) for f in intake.schema]
        self._applies = all(f.type in _KINDS for f in intake.schema) and intake.ns_per_unit == 1
        self._dtypes = [f.type.dtype for f in intake.schema]
        self._is_string = [f.type is Type.STRING for f in intake.schema]
        self._no_pools: Pools = (None,) * len(self._is_string)

    def train(self, rows: list[dict[str, Any]], arrival_ns: int) -> Train | None:
        """Make a train, or None when a value is not of the usual case."""
        if not self._applies or len(rows) > FEW_ROWS:
            return None
        try:
            checked = [self._row(row) for row in rows]
        except (KeyError, OverflowError, MisfitError):
            return None
        return RowTrain(self._intake.schema, checked, constant_ns(arrival_ns, len(rows)), self._columns)

    def _row(self, row: dict[str, Any]) -> Row:
        """Return the values in the order of the schema; raise when one of them is not of the usual case."""
        values: list[Any] = []
        for name, kind, low, high in self._checks:
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
        """Make columns when a box reads them. Runs on any thread: the string pool has a lock."""
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
