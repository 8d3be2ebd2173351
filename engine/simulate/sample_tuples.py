"""Sample tuples of a stream: trades or quotes of the demo's market if the schema is theirs, else random values by type.

The simulator, its check against the engine and ``bench overload`` share these tuples, because a box's selectivity and
a tuple's worth follow from their values. The same stream and seed give the same tuples.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from catalog.network import Stream
from catalog.schema import Schema, Type
from engine.simulate.market import Market
from router.codecs.arrow import arrow_type
from storage.strings import StringPool
from storage.train import Array, Mask, Train

SAMPLE_TUPLES = 20_000


def sample(stream: Stream, seed: int) -> pa.RecordBatch:
    market = Market(seed)
    columns = {"trades": "price", "quotes": "bid"}
    if stream.name in columns and columns[stream.name] in stream.schema:
        trades, quotes = market.step(0, 1.0, SAMPLE_TUPLES, 1.0)
        rows = [json.loads(line) for line in (trades if stream.name == "trades" else quotes).splitlines()]
        if set(rows[0]) == {f.name for f in stream.schema}:
            return _batch(stream.schema, {f.name: [row[f.name] for row in rows] for f in stream.schema})
    random = np.random.default_rng(seed)
    return _batch(stream.schema, {f.name: _made_up(f.type, random) for f in stream.schema})


def _made_up(kind: Type, random: np.random.Generator) -> Any:
    if kind is Type.BOOLEAN:
        return random.random(SAMPLE_TUPLES) < 0.5
    if kind is Type.STRING:
        return [f"key{i}" for i in random.integers(0, 100, SAMPLE_TUPLES).tolist()]
    if kind in (Type.FLOAT, Type.DOUBLE):
        return random.random(SAMPLE_TUPLES) * 100
    return random.integers(0, 1_000, SAMPLE_TUPLES)


def _batch(schema: Schema, columns: Mapping[str, Any]) -> pa.RecordBatch:
    fields = [pa.field(f.name, arrow_type(f.type, "ns"), f.nullable) for f in schema]
    arrays = [pa.array(columns[f.name]).cast(f.type) for f in fields]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def as_train(stream: Stream, batch: pa.RecordBatch) -> Train:
    """Make one train of the batch. A tuple's arrival time is its row number, so that a result names its input row."""
    columns: list[Array] = []
    valid: list[Mask | None] = []
    pools: list[StringPool | None] = []
    for i, field in enumerate(stream.schema):
        column = batch.column(i)
        valid.append(column.is_valid().to_numpy(zero_copy_only=False) if column.null_count else None)
        if field.type is Type.STRING:
            pool = StringPool()
            columns.append(pool.encode([v or "" for v in column.to_pylist()]))
            pools.append(pool)
        else:
            plain = column.cast(pa.int64()) if field.type is Type.TIMESTAMP else column
            columns.append(plain.to_numpy(zero_copy_only=False).astype(field.type.dtype))
            pools.append(None)
    stamps = np.arange(batch.num_rows, dtype=np.int64)
    flags = tuple(valid) if any(v is not None for v in valid) else None
    return Train(stream.schema, tuple(columns), stamps, valid=flags, pools=tuple(pools))
