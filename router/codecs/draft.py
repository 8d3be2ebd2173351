"""A train in the making: columns one after another, in the order of the schema, strings interned together at the end.

All decoders end here, so that what a train must be (one pool for its strings, no validity where nothing is NULL, one
arrival) is said once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from catalog.schema import Field, Type
from router.codecs.base import Intake
from storage.train import Array, Mask, Train, constant_ns, tidy_valid

_NO_CODES = np.empty(0, np.int32)
_ZERO = np.zeros(1, np.int32)


class Draft:
    __slots__ = ("_columns", "_count", "_intake", "_texts", "_valid")

    def __init__(self, intake: Intake, count: int) -> None:
        self._intake = intake
        self._count = count
        self._columns: list[Array] = []
        self._valid: list[Mask | None] = []
        self._texts: list[tuple[int, Sequence[str], Array | None]] = []  # (column, distinct or all strings, places)

    def add(self, values: Array, valid: Mask | None = None) -> None:
        """A column that is not of strings."""
        self._columns.append(values)
        self._valid.append(valid)

    def add_strings(self, texts: Sequence[str], places: Array | None = None, valid: Mask | None = None) -> None:
        """A string for each tuple, or for each tuple its place among distinct strings."""
        self._texts.append((len(self._columns), texts, places))
        self.add(_NO_CODES, valid)

    def add_missing(self, f: Field) -> None:
        """NULL in every tuple."""
        nothing = np.zeros(self._count, np.bool_)
        if f.type is Type.STRING:
            self.add_strings((), np.zeros(self._count, np.int32), nothing)
        else:
            self.add(np.zeros(self._count, f.type.dtype), nothing)

    def train(self, arrival_ns: int) -> Train:
        pools = None
        if self._texts:
            pool, tables = self._intake.strings.intern([texts for _, texts, _ in self._texts])
            for (at, _, places), codes in zip(self._texts, tables):
                self._columns[at] = codes if places is None else (codes if codes.size else _ZERO).take(places)
            pools = tuple([pool if f.type is Type.STRING else None for f in self._intake.schema.fields])
        arrival = constant_ns(arrival_ns, self._count)
        valid = tidy_valid(self._valid)
        return Train(self._intake.schema, tuple(self._columns), arrival, valid=valid, pools=pools)
