"""Schemas that change: which change of fields lets tuples on disk be read right, and how they are read then.

A tuple on disk has the fields with which it was written. A network file may change them later. By name:

| change | tuples on disk |
|---|---|
| a field is added, nullable | read; the field is NULL |
| a field is added, not nullable | refused: there is no value for it |
| a field is dropped | read without it |
| a field is moved | read; fields are found by name |
| `int` becomes `bigint`, `float` becomes `double` | read; every value stays the same |
| a field becomes nullable | read |
| a field is not nullable any more | refused: a tuple may have NULL there |
| any other change of a type | refused. `bigint` to `double` loses digits; nothing is ever reinterpreted |
| a field is renamed | one is dropped and one is added: the rules above |

Pure functions.
"""

from __future__ import annotations

import numpy as np

from catalog.schema import Field, Schema, Type
from storage.strings import StringPool
from storage.train import Array, Mask, Train, tidy_valid

_WIDER = {(Type.INT, Type.BIGINT), (Type.FLOAT, Type.DOUBLE)}


def obstacles(old: Schema, new: Schema) -> list[str]:
    """Say why tuples of the old schema cannot be read as tuples of the new one; empty when they can."""
    found: list[str] = []
    for field in new:
        if field.name not in old:
            if not field.nullable:
                found.append(f"{field} is new and not nullable: {field.name}: {field.type}? can be read")
            continue
        before = old[field.name]
        if before.type is not field.type and (before.type, field.type) not in _WIDER:
            found.append(f"{before} has become {field.type}")
        elif before.nullable and not field.nullable:
            found.append(f"{before} may have NULLs, {field} may not")
    return found


def adapted(train: Train, schema: Schema) -> Train:
    """Return a train as one of another schema. The caller has checked that there is no obstacle."""
    if train.schema == schema:
        return train
    columns: list[Array] = []
    valid: list[Mask | None] = []
    pools: list[StringPool | None] = []
    for field in schema:
        if field.name in train.schema:
            at = train.schema.index(field.name)
            columns.append(train.columns[at].astype(field.type.dtype, copy=False))
            valid.append(train.null_mask(at))
            pools.append(train.pools[at])
        else:
            column, mask, pool = _nulls(field, train.count)
            columns.append(column)
            valid.append(mask)
            pools.append(pool)
    return Train(
        schema,
        tuple(columns),
        train.arrival_ns,
        valid=tidy_valid(valid),
        pools=tuple(pools),
        watermark_ns=train.watermark_ns,
    )


def _nulls(field: Field, count: int) -> tuple[Array, Mask, StringPool | None]:
    pool = StringPool([""]) if field.type is Type.STRING else None
    return np.zeros(count, field.type.dtype), np.zeros(count, np.bool_), pool
