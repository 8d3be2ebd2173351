"""Lanes: how tuples of several schemas travel through one shuffle.

A batch goes through Spark once, with the tuples of all streams in it. Each place at which tuples enter a stage is a
lane with a number. A row is the number of its lane, its shard and values in slots. Lanes share slots of one type: with
two lanes of a string and two doubles each, a row has three slots and not six.

From Spark's front a stage gets Arrow batches of such rows. From an earlier stage of ours it gets whole trains, encoded
as the daemon's log has them: those keep nanoseconds, and a train of results costs no conversion.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from catalog.schema import Schema, Type
from router.codecs.decode.arrow_columns import distinct, validity, values
from router.codecs.encode.pool_arrays import PoolArrays
from storage.history.segment import ARROW_TYPES
from storage.strings import StringPool
from storage.train import Array, Train, constant_ns, tidy_valid

LANE, SHARD = "lane", "shard"
NS_PER_US = 1_000

_SLOT_TYPES = {kind: "bigint" if kind is Type.TIMESTAMP else str(kind) for kind in Type}


@dataclass(frozen=True)
class SlotLayout:
    """The slots of a row. ``slots[i]`` has, by lane, the slot of each field."""

    types: tuple[str, ...]  # Spark's name of the type of each slot
    slots: tuple[tuple[int, ...], ...]

    @staticmethod
    def name(slot: int) -> str:
        return f"c{slot}"


def lay_out(schemas: Sequence[Schema]) -> SlotLayout:
    """Give the fields of each lane slots of their types."""
    types: list[str] = []
    lanes: list[tuple[int, ...]] = []
    for schema in schemas:
        free = list(range(len(types)))
        mine: list[int] = []
        for field in schema:
            wanted = _SLOT_TYPES[field.type]
            slot = next((s for s in free if types[s] == wanted), None)
            if slot is None:
                slot = len(types)
                types.append(wanted)
            else:
                free.remove(slot)
            mine.append(slot)
        lanes.append(tuple(mine))
    return SlotLayout(tuple(types), tuple(lanes))


def trains_of(
    batch: pa.RecordBatch, schemas: Sequence[Schema], slots: Sequence[Sequence[int]], now_ns: int
) -> Iterator[tuple[int, Train]]:
    """Yield the trains of an Arrow batch of rows, by lane. Columns are lane, shard, then the slots."""
    lanes = np.asarray(batch.column(0))
    for lane in np.unique(lanes).tolist():
        at = np.flatnonzero(lanes == lane)
        index: Any = None if at.shape[0] == lanes.shape[0] else pa.array(at)
        columns = [batch.column(2 + slot) for slot in slots[lane]]
        taken = columns if index is None else [column.take(index) for column in columns]
        yield lane, _train(schemas[lane], taken, at.shape[0], now_ns)


def _train(schema: Schema, arrays: Sequence[Any], count: int, now_ns: int) -> Train:
    columns: list[Array] = []
    pools: list[StringPool | None] = []
    for field, array in zip(schema, arrays, strict=True):
        if field.type is Type.STRING:
            texts, codes = distinct(array)
            pool = StringPool()
            known = pool.encode(texts)
            columns.append(known.take(codes) if known.shape[0] else np.zeros(count, np.int32))
            pools.append(pool)
        else:
            column = values(array)
            columns.append(column * NS_PER_US if field.type is Type.TIMESTAMP else column)
            pools.append(None)
    valid = [validity(array) for array in arrays]
    return Train(schema, tuple(columns), constant_ns(now_ns, count), valid=tidy_valid(valid), pools=tuple(pools))


def result_schema(schema: Schema) -> pa.Schema:
    """Return the schema of the files in which results wait for their commit."""
    return pa.schema([pa.field(f.name, ARROW_TYPES[f.type], nullable=f.nullable) for f in schema])


def result_batch(train: Train, strings: PoolArrays) -> pa.RecordBatch:
    """Return results as Arrow, with microseconds as Spark has them."""
    arrays: list[Any] = []
    for i, field in enumerate(train.schema):
        column, pool, valid = train.columns[i], train.pools[i], train.null_mask(i)
        if pool is not None:
            arrays.append(strings.strings(pool, column, valid))
            continue
        if field.type is Type.TIMESTAMP:
            column = np.floor_divide(column, NS_PER_US)
        array: Any = pa.array(column, mask=None if valid is None else ~valid)
        arrays.append(array.cast(ARROW_TYPES[field.type]) if field.type is Type.TIMESTAMP else array)
    return pa.RecordBatch.from_arrays(arrays, schema=result_schema(train.schema))
