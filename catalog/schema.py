"""The shape of a tuple: the seven types, fields and schemas.

The type names are those of Spark SQL, because the same network file also runs on Spark. A timestamp is int64 ns since
1970 in UTC. A string is an int32 code into a pool (``storage/strings.py``); the schema knows nothing of pools.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

import numpy as np


class Type(StrEnum):
    """A column type; the value is its name in a network file."""

    BOOLEAN = "boolean"
    INT = "int"
    BIGINT = "bigint"
    FLOAT = "float"
    DOUBLE = "double"
    STRING = "string"
    TIMESTAMP = "timestamp"

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """The numpy type of the column; for strings, of the codes."""
        return _DTYPES[self]

    @property
    def is_integer(self) -> bool:
        return self in (Type.INT, Type.BIGINT)

    @property
    def is_numeric(self) -> bool:
        return self in (Type.INT, Type.BIGINT, Type.FLOAT, Type.DOUBLE)


_DTYPES: dict[Type, np.dtype[np.generic]] = {
    Type.BOOLEAN: np.dtype(np.bool_),
    Type.INT: np.dtype(np.int32),
    Type.BIGINT: np.dtype(np.int64),
    Type.FLOAT: np.dtype(np.float32),
    Type.DOUBLE: np.dtype(np.float64),
    Type.STRING: np.dtype(np.int32),
    Type.TIMESTAMP: np.dtype(np.int64),
}


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    type: Type
    nullable: bool = False

    def __str__(self) -> str:
        return f"{self.name}: {self.type}{'?' if self.nullable else ''}"

    @classmethod
    def parse(cls, name: str, text: str) -> Field:
        """Parse the type: ``Field.parse("venue", "string?")``. Raises ValueError for an unknown type."""
        text = text.strip()
        return cls(name, Type(text.removesuffix("?").strip()), text.endswith("?"))


@dataclass(frozen=True)
class Schema:
    """An ordered set of fields with distinct names."""

    fields: tuple[Field, ...]
    _index: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        index = {f.name: i for i, f in enumerate(self.fields)}
        assert len(index) == len(self.fields), f"a field name twice in {self}"
        object.__setattr__(self, "_index", index)

    @classmethod
    def of(cls, fields: Iterable[Field] | None = None, **types: str) -> Schema:
        """Make a schema: ``Schema.of(ts="timestamp", venue="string?")``."""
        return cls((*(fields or ()), *(Field.parse(n, t) for n, t in types.items())))

    def __len__(self) -> int:
        return len(self.fields)

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def __contains__(self, name: object) -> bool:
        return name in self._index

    def __getitem__(self, name: str) -> Field:
        return self.fields[self._index[name]]

    def index(self, name: str) -> int:
        """Return the position of a field. Raises KeyError when there is none."""
        return self._index[name]

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(f.name for f in self.fields)

    @cached_property
    def string_columns(self) -> tuple[int, ...]:
        return tuple(i for i, f in enumerate(self.fields) if f.type is Type.STRING)

    def select(self, names: Iterable[str]) -> Schema:
        return Schema(tuple(self[name] for name in names))

    def __str__(self) -> str:
        return "{" + ", ".join(str(f) for f in self.fields) + "}"
