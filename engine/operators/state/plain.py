"""Columns and trains as plain data, for a checkpoint: arrays, lists and strings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from catalog.schema import Schema, Type
from engine.operators.expressions import Vector
from storage.strings import StringPool
from storage.train import Array, Mask, Train, tidy_valid


def pack_columns(vectors: Sequence[Vector], rows: int) -> dict[str, Any]:
    """Return columns as arrays; a string column as its distinct texts and each row's place among them."""
    columns: list[Any] = []
    for vector in vectors:
        pool = vector.pool
        if pool is None:
            columns.append(vector.values)
        else:
            used, places = np.unique(vector.values, return_inverse=True)
            texts = [pool.values[c] for c in used.tolist()] if len(pool) else [""] * used.shape[0]
            columns.append({"texts": texts, "places": places.astype(np.int32)})
    return {"rows": rows, "columns": columns, "valid": [vector.valid for vector in vectors]}


def unpack_columns(types: Sequence[Type], data: dict[str, Any]) -> tuple[list[Vector], int]:
    """Return the columns that ``pack_columns`` gave, and how many rows they have."""
    vectors: list[Vector] = []
    for type, column, flags in zip(types, data["columns"], data["valid"], strict=True):
        valid: Mask | None = None if flags is None else np.asarray(flags, np.bool_)
        if type is Type.STRING:
            pool = StringPool()
            codes = pool.encode(column["texts"])
            places = np.asarray(column["places"], np.int64)
            values: Array = codes.take(places) if codes.shape[0] else np.zeros(places.shape[0], np.int32)
            vectors.append(Vector(values, valid, pool))
        else:
            vectors.append(Vector(np.asarray(column, type.dtype), valid))
    rows = data["rows"] if "rows" in data else len(data["arrival_ns"])  # checkpoints before 0.2 have no "rows"
    return vectors, int(rows)


def pack(train: Train) -> dict[str, Any]:
    """Return a train as plain data."""
    valid = train.valid or (None,) * len(train.columns)
    vectors = [Vector(v, flags, pool) for v, flags, pool in zip(train.columns, valid, train.pools, strict=True)]
    return pack_columns(vectors, train.count) | {"arrival_ns": np.array(train.arrival_ns)}


def unpack(schema: Schema, data: dict[str, Any]) -> Train:
    """Return the train that ``pack`` gave."""
    vectors, _ = unpack_columns([f.type for f in schema], data)
    return Train(
        schema,
        tuple(v.values for v in vectors),
        np.asarray(data["arrival_ns"], np.int64),
        valid=tidy_valid([v.valid for v in vectors]),
        pools=tuple(v.pool for v in vectors),
    )
