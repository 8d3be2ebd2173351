"""A train under construction: columns in the order of the schema; strings are interned together at the end.

All decoders end here. So the laws of a train from a socket (one pool for its strings, no validity mask where nothing is
NULL, one time of arrival) stand in one place.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from catalog.schema import Field, Type
from router.codecs.base import Intake, TextColumn
from storage.train import Array, Mask, Train, constant_ns, tidy_valid

_NO_CODES = np.empty(0, np.int32)
_ZERO = np.zeros(1, np.int32)


class Draft:
    """Add one column for each field of the schema, then call ``train``."""

    __slots__ = ("_columns", "_count", "_found", "_intake", "_texts", "_valid")

    def __init__(self, intake: Intake, count: int) -> None:
        self._intake = intake
        self._count = count
        self._columns: list[Array] = []
        self._valid: list[Mask | None] = []
        self._found: list[tuple[int, TextColumn]] = []
        self._texts: list[tuple[int, Sequence[str], Array | None]] = []  # (column, distinct or all strings, places)

    def add(self, values: Array, valid: Mask | None = None) -> None:
        """Add a column that does not hold strings."""
        self._columns.append(values)
        self._valid.append(valid)

    def add_strings(self, texts: Sequence[str], places: Array | None = None, valid: Mask | None = None) -> None:
        """Add a string column: a string for each tuple, or distinct strings and for each tuple its place there."""
        self._texts.append((len(self._columns), texts, places))
        self.add(_NO_CODES, valid)

    def add_texts(self, column: TextColumn, valid: Mask | None = None) -> None:
        """Add a string column as it stands in a block of text."""
        self._found.append((len(self._columns), column))
        self.add(_NO_CODES, valid)

    def add_missing(self, f: Field) -> None:
        """Add a column of NULLs."""
        nothing = np.zeros(self._count, np.bool_)
        if f.type is Type.STRING:
            self.add_strings((), np.zeros(self._count, np.int32), nothing)
        else:
            self.add(np.zeros(self._count, f.type.dtype), nothing)

    def train(self, arrival_ns: int) -> Train:
        pools = None
        if self._found:
            pool, found = self._intake.strings.find([column for _, column in self._found])
            for (at, _), codes in zip(self._found, found):
                self._columns[at] = codes
            for at, _, places in self._texts:  # columns of NULLs
                assert places is not None
                self._columns[at] = places
            pools = tuple([pool if f.type is Type.STRING else None for f in self._intake.schema.fields])
        elif self._texts:
            pool, tables = self._intake.strings.intern([texts for _, texts, _ in self._texts])
            for (at, _, places), codes in zip(self._texts, tables):
                self._columns[at] = codes if places is None else (codes if codes.size else _ZERO).take(places)
            pools = tuple([pool if f.type is Type.STRING else None for f in self._intake.schema.fields])
        arrival = constant_ns(arrival_ns, self._count)
        valid = tidy_valid(self._valid)
        return Train(self._intake.schema, tuple(self._columns), arrival, valid=valid, pools=pools)
